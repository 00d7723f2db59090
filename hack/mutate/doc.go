// Command mutate asks the tests of podd's pure packages whether they would
// notice a wrong line: it changes one place of the code at a time, runs the
// package's tests, and counts the changes that no test fails for.
//
// A change is a condition turned around, && for ||, a bound moved by one (<= for
// <), a comparison turned around, + for -, min for max, a statement left out (a
// deferred one, too), the other boolean returned, an error lost or another one
// returned, a longer time, or two arguments of one type in each other's place. Tools that are to be had (gremlins) change
// operators only, leave out the conditions of a switch's cases, where most of
// podd's rules stand, and compile the package for each change: a second where
// this takes milliseconds. Here all changes of a package are compiled at once,
// and an environment variable says which of them is in force:
//
//	if n > 0 && ok       becomes       if mutateAnd(7, mutateGreater(8, n, 0), func() bool { return mutateNot(9, ok) })
//
// The working tree is not touched: the changed files are laid over it (go build
// -overlay). The score is what was noticed, in percent of all changes, those that
// no test reaches included; below -least the program fails.
//
// Each test is run by itself first, to find out which changes it comes by: a change is
// tried with these alone, the fastest first. As root, tests run in namespaces of their
// own, in which only temporary directories can be written.
//
// What only logs or locks is left alone. Some changes do the same as the code (a bound that
// cannot be met, a short cut left out), which is why the score is never 100.
package main

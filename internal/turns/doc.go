// Package turns is for tests that judge what something takes. A machine that is
// slow or busy makes everything take longer, so that no number of milliseconds
// tells a fault from a neighbour: what a test measures is compared with a control,
// a piece of work that can be nothing but its share of the same machine, measured
// in the same test by turns. It is no part of the program.
package turns

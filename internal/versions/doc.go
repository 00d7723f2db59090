// Package versions is the one home of the releases that podd is made of and tested with.
//
// They are in versions.env: make and shell scripts read it, too, and hack/bump writes them
// into every go.mod and page.
package versions

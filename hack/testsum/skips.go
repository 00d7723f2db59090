package main

import (
	"fmt"
	"os"
	"strings"
)

// skips are the tests that may be skipped; nil for any.
type skips map[name]bool

// readSkips reads a file of lines "PACKAGE TEST REASON"; a line that begins with # is none.
// Without root there is no telling what is skipped.
func readSkips(path string, root bool) (skips, error) {
	if path == "" || !root {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := skips{}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		switch words := strings.Fields(line); {
		case len(words) == 0 || strings.HasPrefix(line, "#"):
		case len(words) < 3:
			return nil, fmt.Errorf("%s:%d: want a package, a test and the reason for which it may be skipped", path, n)
		default:
			all[name{words[0], words[1]}] = true
		}
	}
	return all, nil
}

// mayBe says that a test may be skipped: it is listed, or the one whose case it is.
func (s skips) mayBe(id name) bool {
	test, _, _ := strings.Cut(id.test, "/")
	return s == nil || s[id] || s[name{id.pkg, test}]
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Known is one entry of differences.txt: what may differ, and why.
type Known struct {
	Line     int
	Scenario string // a pattern as of filepath.Match
	Column   string
	What     *regexp.Regexp
	Reason   string
	// Sometimes: timing decides whether a run shows it.
	Sometimes bool

	used bool
}

// loadKnown reads differences.txt; its head says how it is written.
func loadKnown(path string) ([]*Known, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the known differences: %w", err)
	}
	var all, block []*Known
	var reason []string
	end := func() error {
		for _, k := range block {
			if k.Reason = strings.Join(reason, " "); k.Reason == "" {
				return fmt.Errorf("%s:%d: a difference without a reason", path, k.Line)
			}
		}
		all, block, reason = append(all, block...), nil, nil
		return nil
	}
	for i, line := range strings.Split(string(text), "\n") {
		var err error
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			err = end()
		case line[0] == ' ' || line[0] == '\t':
			reason = append(reason, strings.TrimSpace(line))
		default:
			var k *Known
			if k, err = parseKnown(line); err == nil {
				k.Line = i + 1
				block = append(block, k)
			} else {
				err = fmt.Errorf("%s:%d: %w", path, i+1, err)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return all, end()
}

func parseKnown(line string) (*Known, error) {
	head, what, ok := strings.Cut(line, ": ")
	words := strings.Fields(head)
	if !ok || len(words) < 2 || len(words) > 3 || len(words) == 3 && words[1] != "sometimes" {
		return nil, fmt.Errorf("not of the form: scenario [sometimes] column: regular expression")
	}
	k := &Known{Scenario: words[0], Column: words[len(words)-1], Sometimes: len(words) == 3}
	var err error
	k.What, err = regexp.Compile(what)
	return k, err
}

// covers says whether a difference is this one, and notes it.
func (k *Known) covers(d Difference) bool {
	ok, err := filepath.Match(k.Scenario, d.Scenario)
	if err != nil || !ok || k.Column != d.Column || !k.What.MatchString(d.What) {
		return false
	}
	k.used = true
	return true
}

// sort out splits differences into those nobody listed and those that are known.
func sortOut(found []Difference, known []*Known) (open, listed []Difference) {
	for _, d := range found {
		covered := false
		for _, k := range known {
			covered = k.covers(d) || covered
		}
		if covered {
			listed = append(listed, d)
		} else {
			open = append(open, d)
		}
	}
	return open, listed
}

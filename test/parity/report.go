package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// outcome is what came of one scenario, under one of podd's names.
type outcome struct {
	Name string
	// Missing says whose record there is not.
	Missing string
	// Open are the differences that nobody listed, Listed the others; Expired are
	// the listed ones, in words, that did not occur.
	Open, Listed []Difference
	Expired      []string
}

func (r outcome) same() bool { return r.Missing == "" && len(r.Open) == 0 && len(r.Expired) == 0 }

// complaints are the lines that say why it is not the same.
func (r outcome) complaints() []string {
	var all []string
	if r.Missing != "" {
		all = append(all, r.Name+": "+r.Missing)
	}
	for _, d := range r.Open {
		all = append(all, d.String())
	}
	return append(all, r.Expired...)
}

// outcomes compares all records.
func (o options) outcomes(scenarios []*Scenario, known []*Known) ([]outcome, error) {
	var all []outcome
	began := starts{}
	for _, s := range scenarios {
		upstream, err := o.load(sideKubelet, s.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, side := range []string{sidePodd, sideOwn} {
			as := asKubelet
			if side == sideOwn {
				if !s.underOwnName() {
					continue
				}
				as = asPodd
			}
			r := outcome{Name: called(s.Name, as)}
			ours, err := o.load(side, s.Name)
			switch {
			case upstream == nil:
				r.Missing = "no record of the kubelet's"
			case errors.Is(err, fs.ErrNotExist):
				r.Missing = "no record of podd's"
			case err != nil:
				return nil, err
			default:
				r.Open, r.Listed = sortOut(compare(upstream, ours, as), known)
				if upstream.Failed == "" && ours.Failed == "" {
					r.Expired = expired(known, s.Name, as)
					began.add(upstream, ours)
				}
			}
			all = append(all, r)
		}
	}
	for _, rarely := range began.rarely() {
		all = append(all, outcome{Name: "all of them", Missing: rarely})
	}
	return all, nil
}

// report compares all records and prints the table; it returns whether every
// difference is known and every known one was seen.
func (o options) report(scenarios []*Scenario, known []*Known) (bool, error) {
	all, err := o.outcomes(scenarios, known)
	if err != nil {
		return false, err
	}
	var table strings.Builder
	bad := 0
	fmt.Fprintf(&table, "%-42s %-10s %-10s %-10s %s\n", "scenario", "statuses", "events", "trace", "verdict")
	for _, r := range all {
		table.WriteString(r.row())
		if !r.same() {
			bad++
		}
		for _, line := range r.complaints() {
			fmt.Println(line)
		}
		for _, d := range r.Listed {
			if o.verbose {
				fmt.Printf("known: %v\n", d)
			}
		}
	}
	if err := o.writeOpen(all); err != nil {
		return false, err
	}
	fmt.Printf("\n%s\n%d scenarios, %d that differ from what is listed\n", table.String(), len(all), bad)
	if o.results != "" {
		return bad == 0, os.WriteFile(o.results, []byte("```\n"+table.String()+"```\n"), 0o644)
	}
	return bad == 0, nil
}

// writeOpen keeps what nobody listed in the form of differences.yaml, for an entry
// that only wants its reason.
func (o options) writeOpen(all []outcome) error {
	entries := []Known{}
	for _, r := range all {
		for _, d := range r.Open {
			k := Known{Scenarios: []string{d.Scenario}, As: d.As, Field: d.Field, Kubelet: d.Kubelet, Podd: d.Podd}
			if d.Pod != d.Scenario {
				k.Pod = d.Pod
			}
			entries = append(entries, k)
		}
	}
	text, err := yaml.Marshal(entries)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.keep, "open.yaml"), text, 0o644)
}

// row is the scenario's line of the table.
func (r outcome) row() string {
	if r.Missing != "" {
		return fmt.Sprintf("%-42s %s\n", r.Name, r.Missing)
	}
	cell := func(column string) string {
		count := func(all []Difference) (n int) {
			for _, d := range all {
				if d.Column == column {
					n++
				}
			}
			return n
		}
		switch a, b := count(r.Open), count(r.Listed); {
		case a > 0:
			return fmt.Sprintf("%d differ", a)
		case b > 0:
			return fmt.Sprintf("%d known", b)
		default:
			return "same"
		}
	}
	verdict := "same"
	switch {
	case len(r.Open) > 0:
		verdict = "DIFFERS"
	case len(r.Expired) > 0:
		verdict = "EXPIRED"
	case len(r.Listed) > 0:
		verdict = "known"
	}
	return fmt.Sprintf("%-42s %-10s %-10s %-10s %s\n", r.Name, cell(colStatuses), cell(colEvents), cell(colTrace), verdict)
}

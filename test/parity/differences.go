package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Known is one entry of differences.yaml: one field that differs, what either
// side has there, and why. It must be seen in every scenario that it names.
type Known struct {
	// Scenarios and Except are names or patterns (see filepath.Match).
	Scenarios []string `json:"scenarios"`
	Except    []string `json:"except,omitempty"`
	// As is the name under which podd must run for it, kubelet or podd; empty for either.
	As string `json:"as,omitempty"`
	// Pod is the pod's name as in Difference; empty for the scenario's own, or
	// where the field is of no pod. "*" are all pods of the scenario.
	Pod string `json:"pod,omitempty"`
	// Field is as in Difference.
	Field string `json:"field"`
	// Kubelet and Podd are what the sides have; <*> stands for what varies.
	Kubelet string `json:"kubelet"`
	Podd    string `json:"podd"`
	Why     string `json:"why"`

	kubelet, podd *regexp.Regexp
	seen          map[string]bool // by scenario and podd's name
}

// varies stands for a part of a value that hangs on the machine.
const varies = "<*>"

// fields is what an entry may name.
var fields = regexp.MustCompile(`^(listed|(sequence|entries of) \S.*|time of (\S+ ready|Ready|ContainersReady)|status\.\S+|(count of )?event .*(Normal|Warning) \w+|order of events( pod and)?( \S+)?|trace)$`)

// loadKnown reads differences.yaml; its head says how it is written.
func loadKnown(path string) ([]*Known, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the known differences: %w", err)
	}
	var all []*Known
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	for i, k := range all {
		if err := k.check(); err != nil {
			return nil, fmt.Errorf("%s: entry %d (%s): %w", path, i+1, k.Field, err)
		}
	}
	return all, nil
}

func (k *Known) check() error {
	switch {
	case len(k.Scenarios) == 0:
		return fmt.Errorf("names no scenario")
	case k.As != "" && k.As != asKubelet && k.As != asPodd:
		return fmt.Errorf("podd runs as %s or as %s, not as %q", asKubelet, asPodd, k.As)
	case !fields.MatchString(k.Field):
		return fmt.Errorf("names no field that may differ (README.md lists them)")
	case k.Why == "":
		return fmt.Errorf("has no reason")
	case k.Kubelet == k.Podd:
		return fmt.Errorf("is no difference: both sides have the same")
	}
	for _, pattern := range append(k.Scenarios, k.Except...) {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	var err error
	if k.kubelet, err = valueOf(k.Kubelet); err != nil {
		return fmt.Errorf("kubelet: %w", err)
	}
	if k.podd, err = valueOf(k.Podd); err != nil {
		return fmt.Errorf("podd: %w", err)
	}
	k.seen = map[string]bool{}
	return nil
}

// valueOf makes an expression of a value. One that leaves everything open
// describes nothing.
func valueOf(value string) (*regexp.Regexp, error) {
	if strings.TrimSpace(strings.ReplaceAll(value, varies, "")) == "" {
		return nil, fmt.Errorf("%q does not say what is there", value)
	}
	parts := strings.Split(value, varies)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.Compile(`(?s)^` + strings.Join(parts, `.+`) + `$`)
}

// of says whether the entry speaks of a scenario that podd plays under the name as.
func (k *Known) of(scenario, as string) bool {
	matches := func(pattern string) bool {
		ok, _ := filepath.Match(pattern, scenario)
		return ok
	}
	return (k.As == "" || k.As == as) && slices.ContainsFunc(k.Scenarios, matches) && !slices.ContainsFunc(k.Except, matches)
}

// covers says whether a difference is this one, and notes it.
func (k *Known) covers(d Difference) bool {
	pod := k.Pod == d.Pod || k.Pod == "*" || k.Pod == "" && d.Pod == d.Scenario
	ok := k.of(d.Scenario, d.As) && pod && k.Field == d.Field && k.kubelet.MatchString(d.Kubelet) && k.podd.MatchString(d.Podd)
	if ok {
		k.seen[called(d.Scenario, d.As)] = true
	}
	return ok
}

// sortOut splits differences into those nobody listed and those that are known.
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

// expired are the entries, in words, that speak of a scenario under that name of podd's and
// did not occur in it as they say.
func expired(known []*Known, scenario, as string) []string {
	var all []string
	for _, k := range known {
		if k.of(scenario, as) && !k.seen[called(scenario, as)] {
			all = append(all, fmt.Sprintf("%s: no longer differs as differences.yaml says: %s: kubelet %s | podd %s", called(scenario, as), k.Field, k.Kubelet, k.Podd))
		}
	}
	return all
}

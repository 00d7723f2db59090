package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestKnownDifferencesNameScenariosThatAreThere reads the real list.
func TestKnownDifferencesNameScenariosThatAreThere(t *testing.T) {
	known, err := loadKnown("differences.yaml")
	if err != nil {
		t.Fatal(err)
	}
	scenarios, err := loadScenarios("scenarios", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range known {
		if !slices.ContainsFunc(scenarios, func(s *Scenario) bool { return k.of(s.Name, asKubelet) || s.underOwnName() && k.of(s.Name, asPodd) }) {
			t.Errorf("%s of %v: there is no such scenario, so it never expires", k.Field, k.Scenarios)
		}
	}
}

func listOf(t *testing.T, text string) ([]*Known, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "differences.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return loadKnown(path)
}

func TestAnEntryCoversOneDifferenceOfOneField(t *testing.T) {
	known, err := listOf(t, `
- {scenarios: [a*], except: [ax], field: status.hostIP, kubelet: (none), podd: set, why: w}
- {scenarios: [ab], pod: ab-b#2, field: event app Warning Failed, kubelet: "no <*>", podd: "no <*>: why", why: w}
`)
	if err != nil {
		t.Fatal(err)
	}
	open, listed := sortOut([]Difference{
		{"ab", colStatuses, asKubelet, "ab", "status.hostIP", none, "set"},
		{"ab", colEvents, asKubelet, "ab-b#2", "event app Warning Failed", "no x", "no x: why"},

		{"b", colStatuses, asKubelet, "b", "status.hostIP", none, "set"},                      // another scenario
		{"ax", colStatuses, asKubelet, "ax", "status.hostIP", none, "set"},                    // one left out
		{"ab", colStatuses, asKubelet, "ab", "status.hostIP", "set", none},                    // the other way round
		{"ab", colStatuses, asKubelet, "ab", "status.podIP", none, "set"},                     // another field
		{"ab", colStatuses, asKubelet, "ab-b", "status.hostIP", none, "set"},                  // another pod
		{"ab", colEvents, asKubelet, "ab-b#2", "event app Warning Failed", "no x", none},      // no event at all
		{"ab", colEvents, asKubelet, "ab-b#2", "event app Warning Failed", "no x", "no x"},    // without what was promised
		{"ab", colEvents, asKubelet, "ab-b#2", "event app Warning Failed", "no ", "no : why"}, // <*> is not nothing
	}, known)
	if len(listed) != 2 || len(open) != 8 {
		t.Errorf("got listed %v, open %v", listed, open)
	}
}

func TestAnEntryExpiresInEveryScenarioOfItsOwn(t *testing.T) {
	known, err := listOf(t, `[{scenarios: [a, b], field: trace, kubelet: x, podd: z, why: w}]`)
	if err != nil {
		t.Fatal(err)
	}
	sortOut([]Difference{{"a", colTrace, asKubelet, "", "trace", "x", "z"}}, known)
	if got := expired(known, "a", asKubelet); len(got) != 0 {
		t.Errorf("seen in a: got %q", got)
	}
	if got := expired(known, "b", asKubelet); len(got) != 1 {
		t.Errorf("not seen in b: got %q, want one complaint", got)
	}
	if got := expired(known, "c", asKubelet); len(got) != 0 {
		t.Errorf("c is none of its scenarios: got %q", got)
	}
}

// TestAnEntryMayBeOfOneOfPoddsNames: under its own podd is stricter.
func TestAnEntryMayBeOfOneOfPoddsNames(t *testing.T) {
	known, err := listOf(t, `[{scenarios: [a], as: podd, field: listed, kubelet: shown, podd: never shown, why: w}]`)
	if err != nil {
		t.Fatal(err)
	}
	of := func(as string) Difference {
		return Difference{"a", colStatuses, as, "a", "listed", "shown", "never shown"}
	}
	if open, _ := sortOut([]Difference{of(asKubelet)}, known); len(open) != 1 {
		t.Error("under the kubelet's name: the difference is excused")
	}
	if got := expired(known, "a", asKubelet); len(got) != 0 {
		t.Errorf("under the kubelet's name: got %q", got)
	}
	if got := expired(known, "a", asPodd); len(got) != 1 {
		t.Errorf("not seen under podd's own: got %q, want one complaint", got)
	}
	if open, _ := sortOut([]Difference{of(asPodd)}, known); len(open) != 0 || len(expired(known, "a", asPodd)) != 0 {
		t.Errorf("under podd's own name: open %v", open)
	}
}

func TestEntriesThatDescribeTooMuch(t *testing.T) {
	for text, want := range map[string]string{
		`[{field: trace, kubelet: x, podd: z, why: w}]`:                                  "no scenario",
		`[{scenarios: [a], kubelet: x, podd: z, why: w}]`:                                "no field",
		`[{scenarios: [a], field: "", kubelet: x, podd: z, why: w}]`:                     "no field",
		`[{scenarios: [a], field: script, kubelet: x, podd: z, why: w}]`:                 "no field",
		`[{scenarios: [a], field: status., kubelet: x, podd: z, why: w}]`:                "no field",
		`[{scenarios: [a], field: "time of app", kubelet: x, podd: z, why: w}]`:          "no field",
		`[{scenarios: [a], field: trace, podd: z, why: w}]`:                              "does not say",
		`[{scenarios: [a], field: trace, kubelet: x, podd: "<*>", why: w}]`:              "does not say",
		`[{scenarios: [a], field: trace, kubelet: x, podd: "<*> <*>", why: w}]`:          "does not say",
		`[{scenarios: [a], field: trace, kubelet: x, podd: x, why: w}]`:                  "no difference",
		`[{scenarios: [a], field: trace, kubelet: x, podd: z}]`:                          "no reason",
		`[{scenarios: [a], as: crio, field: trace, kubelet: x, podd: z, why: w}]`:        "podd runs as",
		`[{scenarios: ["["], field: trace, kubelet: x, podd: z, why: w}]`:                "pattern",
		`[{scenarios: [a], field: trace, kubelet: x, podd: z, why: w, sometimes: true}]`: "unknown field",
	} {
		if _, err := listOf(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", text, err, want)
		}
	}
}

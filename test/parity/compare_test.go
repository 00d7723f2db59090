package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// spans reads "state seconds | state seconds*", the star being the end of the
// script. A state "down/x" counts as x.
func spans(t *testing.T, text string) []Span {
	t.Helper()
	var all []Span
	for part := range strings.SplitSeq(text, "|") {
		state, length, ok := strings.Cut(strings.TrimSpace(part), " ")
		if !ok {
			t.Fatalf("%q is not of the form: state seconds", part)
		}
		last := strings.HasSuffix(length, "*")
		d, err := time.ParseDuration(strings.TrimSuffix(length, "*") + "s")
		if err != nil {
			t.Fatal(err)
		}
		_, same, _ := strings.Cut(state, "/")
		all = append(all, Span{State: state, Same: same, For: d, Last: last})
	}
	return all
}

func TestSequences(t *testing.T) {
	for name, c := range map[string]struct {
		kubelet, podd string
		want          []string
	}{
		"alike":                            {"a 5 | b 5*", "a 1 | b 9*", nil},
		"a blink on one side":              {"a 5 | b 5*", "a 5 | x 0.2 | b 5*", nil},
		"a blink on the other":             {"a 5 | x 1 | b 5*", "a 5 | b 5*", nil},
		"what lasts must be on both":       {"a 5 | x 4 | b 5*", "a 5 | b 5*", []string{"only kubelet: x (after a)"}},
		"a blink there matches what lasts": {"a 5 | x 4 | b 5*", "a 5 | x 0.1 | b 5*", nil},
		"another end":                      {"a 5 | b 0.1*", "a 5 | c 0.1*", []string{"only kubelet: b (after a), at the end", "only podd: c (after a), at the end"}},
		"another order":                    {"a 5 | b 5 | c 5*", "b 5 | a 5 | c 5*", []string{"only kubelet: a", "only podd: a (after b)"}},
		"a blink that splits a state":      {"a 9 | b 5*", "a 4 | x 0.3 | a 4 | b 5*", nil},
		"two words for one state":          {"run 5 | end/down 9 | run 5*", "run 5 | end/down 0.1 | back-off/down 9 | run 5*", nil},
		"nothing seen":                     {"a 5*", "a 5 | b 5*", []string{"only podd: b (after a), at the end"}},
	} {
		if got := compareSpans(spans(t, c.kubelet), spans(t, c.podd)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestEventsAreComparedByPathInOrder(t *testing.T) {
	app := func(reason string) Event { return Event{"spec.containers{app}", "Normal", reason, ""} }
	side := func(reason string) Event { return Event{"spec.containers{side}", "Normal", reason, ""} }
	for name, c := range map[string]struct {
		kubelet, podd []Event
		want          int
	}{
		"across paths any order": {[]Event{app("Pulled"), side("Pulled")}, []Event{side("Pulled"), app("Pulled")}, 0},
		"within a path in order": {[]Event{app("Pulled"), app("Created")}, []Event{app("Created"), app("Pulled")}, 1},
		"repeats count once":     {[]Event{app("Pulled"), app("Pulled")}, []Event{app("Pulled")}, 0},
		"one too few":            {[]Event{app("Pulled"), app("Created")}, []Event{app("Pulled")}, 1},
		"another path":           {[]Event{app("Pulled")}, []Event{side("Pulled")}, 2},
	} {
		if got := compareEvents(c.kubelet, c.podd); len(got) != c.want {
			t.Errorf("%s: got %q, want %d", name, got, c.want)
		}
	}
}

// TestScenariosAreWhole reads all of them as a run would, manifests included.
func TestScenariosAreWhole(t *testing.T) {
	all, err := loadScenarios("scenarios", "")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 80 {
		t.Errorf("got %d scenarios, want at least 80", len(all))
	}
	values := map[string]string{"OUT": "/o", "TOOLS": "/t", "REGISTRY": "r:1", "PORT": "1"}
	for _, s := range all {
		for file := range s.Files {
			text, err := s.manifest(file, file, values)
			if err != nil {
				t.Errorf("%s: %v", s.Name, err)
			} else if i := strings.Index(text, "@"); i >= 0 {
				t.Errorf("%s: %s: a placeholder that nobody fills: %.20s", s.Name, file, text[i:])
			}
		}
	}
}

func TestScenariosThatAreNone(t *testing.T) {
	const manifest = "-- pod.yaml --\nspec: {}\n"
	for text, want := range map[string]string{
		"wait x=y\n" + manifest:                   "says what it is about",
		"# about\n" + manifest:                    "says what it is about",
		"# about\nwait x=y\n":                     "says what it is about",
		"# about\ndance\n" + manifest:             "no such step",
		"# about\nwait\n" + manifest:              "no such step",
		"# about\nremove b.yaml\n" + manifest:     "no manifest b.yaml",
		"# about\nsleep long\n" + manifest:        "duration",
		"# about\nwait a=\"b\n" + manifest:        "quotes",
		"# about\nwait a=b within x\n" + manifest: "duration",
	} {
		if _, err := parseScenario("s", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

func TestKnownDifferences(t *testing.T) {
	if _, err := loadKnown("differences.txt"); err != nil {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "d")
	write := func(text string) []*Known {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		known, err := loadKnown(path)
		if err != nil {
			t.Fatal(err)
		}
		return known
	}
	known := write("# head\n\na* events: only podd\nb sometimes trace: x\n    for this\n    reason\n\nc trace: y\n  other\n")
	if len(known) != 3 || known[1].Reason != "for this reason" || !known[1].Sometimes || known[2].Reason != "other" {
		t.Errorf("got %+v", known)
	}
	found := []Difference{{"abc", colEvents, "only podd: E"}, {"abc", colTrace, "only podd: E"}, {"b", colTrace, "x"}}
	open, listed := sortOut(found, known)
	if len(open) != 1 || open[0].Column != colTrace || len(listed) != 2 || !known[0].used || known[2].used {
		t.Errorf("got open %v, listed %v", open, listed)
	}
	for _, text := range []string{"no column: x\n", "a events: (\n", "a events: x\n\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadKnown(path); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}

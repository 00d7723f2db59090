package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// loadPart reads ci.txt: names of scenarios, one a line, and what each is there
// for.
func loadPart(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the part for CI: %w", err)
	}
	var names []string
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, why, _ := strings.Cut(line, " ")
		if strings.TrimSpace(why) == "" {
			return nil, fmt.Errorf("%s:%d: %s is there for no reason", path, i+1, name)
		}
		names = append(names, name)
	}
	return names, nil
}

func partOf(t *testing.T) []*Scenario {
	t.Helper()
	names, err := loadPart("ci.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := loadScenarios("scenarios", "")
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]*Scenario{}
	for _, s := range all {
		by[s.Name] = s
	}
	var part []*Scenario
	for _, name := range names {
		s := by[name]
		if s == nil {
			t.Fatalf("ci.txt: there is no scenario %s, or it is there twice", name)
		}
		delete(by, name)
		part = append(part, s)
	}
	return part
}

// TestThePartForCIHasEveryKind keeps the part honest when scenarios come and go.
func TestThePartForCIHasEveryKind(t *testing.T) {
	verbs := map[string]bool{}
	for _, s := range partOf(t) {
		for _, step := range s.Steps {
			verbs[step.Verb] = true
		}
	}
	for _, verb := range []string{"restart-agent", "stop-agent", "restart-runtime", "kill-sandbox", "kill", "serve", "replace", "remove", "apply", "rm-container", "needs"} {
		if !verbs[verb] {
			t.Errorf("no scenario of ci.txt has the step %s", verb)
		}
	}
}

// TestPoddIsAsUpstreamsKubelet plays the part for CI on both agents; every
// scenario is a test of its own.
func TestPoddIsAsUpstreamsKubelet(t *testing.T) {
	kubelet := os.Getenv("PODD_PARITY_KUBELET")
	if kubelet == "" {
		t.Skip("needs upstream's kubelet: make parity-ci builds it")
	}
	apiserver := os.Getenv("PODD_TEST_APISERVER")
	if apiserver == "" {
		t.Skip("needs upstream's apiserver: make parity-ci builds it")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: runs containers")
	}
	root := filepath.Join("..", "..")
	o := options{
		kubelet: kubelet, apiserver: apiserver, podd: filepath.Join(root, "build/podd"), fixture: filepath.Join(root, "build/parity-fixture"),
		bundle: filepath.Join(root, "build/runtime/bin"), images: filepath.Join(root, "build/images"), slots: slots, keep: t.TempDir(),
	}
	part := partOf(t)
	known, err := loadKnown("differences.yaml")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := o.play(context.Background(), allSides, part); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d scenarios on both sides in %v", len(part), time.Since(began).Round(time.Second))
	all, err := o.outcomes(part, known)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		t.Run(r.Name, func(t *testing.T) {
			for _, line := range r.complaints() {
				t.Error(line)
			}
		})
	}
}

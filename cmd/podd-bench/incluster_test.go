package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"podd/test/cluster"
	"podd/test/e2e/testnode"
)

// TestWithoutAnAPIServerTheRestIsMeasured: it is said why the kubelet has no figures, once,
// and its cell has a dash.
func TestWithoutAnAPIServerTheRestIsMeasured(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ binary, want string }{
		"no path":    {"", "no path of a kube-apiserver is given"},
		"no program": {filepath.Join(dir, "none"), "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			alone := &kubelet{&testnode.Kubelet{}}
			var said strings.Builder
			b := &bench{
				plan: plan{turns: 3, volumes: 1}, say: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) },
				agents:  map[string]agent{colKubelet: alone},
				samples: map[string]map[string][]float64{rowVolumesMore: {colFloor: {0.005}, colPodd: {0.006}}},
				inCluster: &inCluster{kubelet: &kubelet{&testnode.Kubelet{}}, server: &cluster.APIServer{
					Binary: c.binary, Dir: filepath.Join(dir, "apiserver"), Port: 1,
				}},
			}
			for turn := range 3 {
				if err := b.turnInCluster(t.Context(), turn, []part{{"ten volumes", 1, b.tenVolumes}}); err != nil {
					t.Fatalf("turn %d: %v", turn, err)
				}
			}
			if text := said.String(); strings.Count(text, "not measured: no kubelet with an apiserver") != 1 || !strings.Contains(text, c.want) {
				t.Errorf("it says:\n%s", text)
			}
			if b.agents[colKubelet] != alone {
				t.Error("the kubelet's column has another agent now")
			}
			if got := cell(b.results()[0].Columns, colKubelet); got != "–" {
				t.Errorf("the kubelet's cell has %q, want a dash", got)
			}
		})
	}
}

// TestAPodIsReadAsAnObject: what an apiserver would refuse is an error that names it.
func TestAPodIsReadAsAnObject(t *testing.T) {
	b := &bench{out: "/out"}
	pod, err := asObject(b.manifest("web", shape{script: scriptOfTen, volumes: volumesOfTen}, 0))
	if err != nil {
		t.Fatal(err)
	}
	spec, _ := pod["spec"].(map[string]any)
	if volumes, _ := spec["volumes"].([]any); len(volumes) != 11 {
		t.Errorf("got %d volumes, want ten and the marks'", len(volumes))
	}
	for _, text := range []string{"kind: Pod", "{kind: Pod, spec: x}", "{"} {
		if o, err := asObject(text); err == nil {
			t.Errorf("%s: got %v", text, o)
		}
	}
}

package upstreamnames

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// write writes a module of one or more packages.
func write(t *testing.T, files map[string]string) *Tree {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return NewTree(dir, "m")
}

// TestDeclarationsOfMetricsAreRead: the ways in which upstream and podd write them.
func TestDeclarationsOfMetricsAreRead(t *testing.T) {
	tree := write(t, map[string]string{
		"names/names.go": `package names
const Sub = "kubelet"
const Label = "node"`,
		"a/a.go": `package a
import (
	metrics "k8s.io/component-base/metrics"
	n "m/names"
)
const key = prefix + "_total"
const prefix = "pods"
var v = metrics.NewCounterVec(&metrics.CounterOpts{Subsystem: n.Sub, Name: key, Help: "h"}, []string{n.Label, "b"})
var d = metrics.NewDesc(metrics.BuildFQName("", n.Sub, "desc"), "h", []string{"x"}, nil, metrics.ALPHA, "")
var plain = metrics.NewHistogram(&metrics.HistogramOpts{Name: "plain"})
func NewPlugin(name string) {} // no metric`,
		"b/b.go": `package b
func one(f F) M {
	labels := []string{"z", "a"}
	gauge := func(name, help string, l Labels) { f.NewGauge(prometheus.GaugeOpts{Name: "k_" + name, ConstLabels: l}) }
	gauge("first", "h", Labels{"c": "1"})
	gauge("second", "h", nil)
	return f.NewGaugeVec(prometheus.GaugeOpts{Name: "vec"}, labels)
}
func ttl(name string) { f.NewGaugeFunc(prometheus.GaugeOpts{Name: name}, nil) }
func two() { ttl("ttl_a"); ttl("ttl_b") }`,
		"b/b_test.go":       `package b; var x = f.NewGauge(prometheus.GaugeOpts{Name: "of_a_test"})`,
		"b/testdata/x/x.go": `package x; var x = f.NewGauge(prometheus.GaugeOpts{Name: "of_testdata"})`,
		"b/own/go.mod":      `module own`,
		"b/own/own.go":      `package own; var x = f.NewGauge(prometheus.GaugeOpts{Name: "of_another_module"})`,
	})
	got, errs := tree.Metrics("a", "b")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := map[string]Metric{
		"kubelet_pods_total": {"counter", []string{"b", "node"}, "a"},
		"kubelet_desc":       {"", []string{"x"}, "a"},
		"plain":              {"histogram", nil, "a"},
		"k_first":            {"gauge", []string{"c"}, "b"},
		"k_second":           {"gauge", nil, "b"},
		"vec":                {"gauge", []string{"a", "z"}, "b"},
		"ttl_a":              {"gauge", nil, "b"},
		"ttl_b":              {"gauge", nil, "b"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestNothingIsLeftOutInSilence: what cannot be evaluated is an error with its place.
func TestNothingIsLeftOutInSilence(t *testing.T) {
	for name, text := range map[string]string{
		"a name that is computed":    `package a; var x = f.NewGauge(prometheus.GaugeOpts{Name: compute()})`,
		"labels that are computed":   `package a; var x = f.NewGaugeVec(prometheus.GaugeOpts{Name: "x"}, compute())`,
		"two that differ":            `package a; var x, y = f.NewGauge(prometheus.GaugeOpts{Name: "x"}), f.NewCounter(prometheus.CounterOpts{Name: "x"})`,
		"a file that does not parse": `package a; func`,
	} {
		if _, errs := write(t, map[string]string{"a/a.go": text}).Metrics("a"); len(errs) != 1 || !strings.Contains(errs[0].Error(), "a") {
			t.Errorf("%s: got %v", name, errs)
		}
	}
	if _, errs := write(t, nil).Metrics("nowhere"); len(errs) != 1 {
		t.Errorf("a directory that is not there: got %v", errs)
	}
}

func TestReasonsOfEventsAreRead(t *testing.T) {
	tree := write(t, map[string]string{
		"events/event.go": `package events
const (
	Started = "Started"
	hidden  = "Hidden"
)`,
		"a/a.go": `package a
import "m/events"
func f(r Recorder) {
	r.Eventf(pod, "Normal", events.Started, "words")
	r.Event(pod, "Warning", "Written", "words")
	record := func(reason string) { r.Event(pod, "Normal", reason, "") }
	record("Passed")
	r.Event(pod, "Normal", v.Reason, "")
}
const reasonOfOurs = "Constant"
var w = Warning{Reason: "Field", Message: "No reason"}`,
	})
	for what, test := range map[string]struct {
		read func() (map[string]bool, error)
		want string
	}{
		"constants":  {func() (map[string]bool, error) { return tree.Constants("events") }, "Started"},
		"upstream's": {func() (map[string]bool, error) { return tree.UpstreamReasons("a") }, "Passed Started Written"},
		"podd's":     {func() (map[string]bool, error) { return tree.PoddReasons("a") }, "Constant Field Passed Started Written"},
	} {
		got, err := test.read()
		if names := strings.Join(slices.Sorted(maps.Keys(got)), " "); err != nil || names != test.want {
			t.Errorf("%s: got %q, %v; want %q", what, names, err, test.want)
		}
	}
}

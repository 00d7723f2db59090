package upstreamnames

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// poddDirs are the packages of podd's binary.
func poddDirs(t *testing.T) (dirs []string) {
	t.Helper()
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case !e.IsDir(), strings.HasPrefix(name, "."), name == "build", name == "test", name == "hack", name == "tools", name == "runtime", name == "docs":
		default:
			dirs = append(dirs, name)
		}
	}
	return dirs
}

func podd() *Tree { return NewTree("../..", "podd") }

// upstream is the kubelet's source, in the version that podd implements.
func upstream(t *testing.T) *Tree {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Fatalf("find the source of k8s.io/kubernetes: %v (go mod download k8s.io/kubernetes fetches it)", err)
	}
	return NewTree(dir, "k8s.io/kubernetes")
}

// kubeletDirs are upstream's packages that register metrics, or record events, in a kubelet.
var kubeletDirs = []string{"pkg/kubelet", "pkg/volume", "pkg/credentialprovider", "pkg/probe", "cmd/kubelet"}

var row = regexp.MustCompile(`^(\S+)\s+(\S.*)$`)

// readTable reads a table of names that podd does not have, each with the reason.
func readTable(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	table := make(map[string]string)
	last := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := row.FindStringSubmatch(line)
		switch {
		case m == nil:
			t.Errorf("%s: %q has no reason: write the name, then why podd does not have it", file, line)
			continue
		case table[m[1]] != "":
			t.Errorf("%s: %s is there twice", file, m[1])
		case m[1] < last:
			t.Errorf("%s: %s is not at its place: the rows are sorted", file, m[1])
		}
		table[m[1]], last = m[2], m[1]
	}
	return table
}

// difference says how podd's metric differs from upstream's; "" for not at all. A
// descriptor's type is known only to its collector.
func difference(ours, theirs Metric) string {
	switch {
	case ours.Type != theirs.Type && ours.Type != "" && theirs.Type != "":
		return "is a " + ours.Type + ", upstream's a " + theirs.Type
	case !slices.Equal(ours.Labels, theirs.Labels):
		return "has the labels [" + strings.Join(ours.Labels, " ") + "], upstream's [" + strings.Join(theirs.Labels, " ") + "]"
	}
	return ""
}

// TestEveryMetricOfTheKubeletIsHereOrHasAReason: podd has each metric that upstream's kubelet
// declares, with the same type and labels, or absent_metrics.txt says in a line why not.
func TestEveryMetricOfTheKubeletIsHereOrHasAReason(t *testing.T) {
	theirs, errs := upstream(t).Metrics(kubeletDirs...)
	for _, err := range errs {
		if !strings.Contains(err.Error(), "collectors/cri_metrics.go") { // the runtime names these
			t.Error(err)
		}
	}
	ours, errs := podd().Metrics(poddDirs(t)...)
	for _, err := range errs {
		t.Error(err)
	}
	if len(theirs) < 130 || len(ours) < 100 {
		t.Fatalf("read %d metrics of upstream's and %d of podd's: too few", len(theirs), len(ours))
	}
	// /metrics/resource is written as text. What it has is held by stats'
	// TestResourceMetricsHaveTheKubeletsNames.
	asText, err := podd().Literals("stats")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range theirs {
		if _, here := ours[name]; !here && m.At == "pkg/kubelet/metrics/collectors" && asText[name] {
			ours[name] = m
		}
	}
	absent := readTable(t, "absent_metrics.txt")
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		m, here := ours[name]
		why := absent[name]
		switch {
		case here && why != "":
			t.Errorf("podd has %s: remove its row from absent_metrics.txt", name)
		case here:
			if d := difference(m, theirs[name]); d != "" {
				t.Errorf("%s (%s) %s", name, m.At, d)
			}
		case why == "":
			t.Errorf("podd lacks %s, a %s with the labels %v of upstream's %s: add it, or a row to absent_metrics.txt that says why not",
				name, theirs[name].Type, theirs[name].Labels, theirs[name].At)
		}
	}
	for name := range absent {
		if _, there := theirs[name]; !there {
			t.Errorf("absent_metrics.txt: upstream does not have %s any more: remove the row", name)
		}
	}
}

// foreignNames are metrics of podd's that have none of its own prefix and that upstream's kubelet
// has from elsewhere, and where.
var foreignNames = map[string]string{
	"kubernetes_build_info":                "k8s.io/component-base/metrics/prometheus/version",
	"kubernetes_feature_enabled":           "k8s.io/component-base/metrics/prometheus/feature",
	"kubernetes_healthcheck":               "k8s.io/component-base/metrics/prometheus/slis",
	"kubernetes_healthchecks_total":        "k8s.io/component-base/metrics/prometheus/slis",
	"process_start_time_seconds":           "k8s.io/component-base/metrics, on /metrics/slis",
	"rest_client_request_duration_seconds": "k8s.io/component-base/metrics/prometheus/restclient",
	"rest_client_requests_total":           "k8s.io/component-base/metrics/prometheus/restclient",
}

// TestNoMetricHasANameOfTheKubeletsThatItDoesNotHave: a metric that upstream has dropped goes
// here, too, and a new one of podd's own is named for podd.
func TestNoMetricHasANameOfTheKubeletsThatItDoesNotHave(t *testing.T) {
	theirs, _ := upstream(t).Metrics(kubeletDirs...)
	ours, _ := podd().Metrics(poddDirs(t)...)
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		_, there := theirs[name]
		if !there && !strings.HasPrefix(name, "podd_") && foreignNames[name] == "" {
			t.Errorf("%s (%s) is no metric of upstream's kubelet: name one of podd's own podd_…, and remove one that upstream has dropped", name, ours[name].At)
		}
	}
}

// TestEveryEventReasonOfTheKubeletIsHereOrHasAReason: as for metrics. Upstream's reasons are
// the constants of pkg/kubelet/events, and those that its packages write out.
func TestEveryEventReasonOfTheKubeletIsHereOrHasAReason(t *testing.T) {
	tree := upstream(t)
	theirs, err := tree.Constants("pkg/kubelet/events")
	if err != nil {
		t.Fatal(err)
	}
	written, err := tree.UpstreamReasons(kubeletDirs...)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(theirs, written)
	ours, err := podd().PoddReasons(poddDirs(t)...)
	if err != nil {
		t.Fatal(err)
	}
	if len(theirs) < 60 || len(ours) < 60 {
		t.Fatalf("read %d reasons of upstream's and %d of podd's: too few", len(theirs), len(ours))
	}
	has := func(name string) bool {
		return ours[name] || strings.HasPrefix(name, "Resize") && ours["Resize*"]
	}
	absent := readTable(t, "absent_events.txt")
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		switch why := absent[name]; {
		case has(name) && why != "":
			t.Errorf("podd has events with the reason %s: remove its row from absent_events.txt", name)
		case !has(name) && why == "":
			t.Errorf("podd has no event with the reason %s, and upstream's kubelet has: add it, or a row to absent_events.txt that says why not", name)
		}
	}
	for name := range absent {
		if !theirs[name] {
			t.Errorf("absent_events.txt: upstream does not have %s any more: remove the row", name)
		}
	}
}

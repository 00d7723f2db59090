package oracle

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"podd/internal/upstreamnames"
)

// description is how Prometheus writes a metric's name and labels.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)".*variableLabels: \{(.*)\}\}$`)

// TestNamesReadFromSourceAreThoseThatUpstreamRegisters: internal/upstreamnames compares podd with
// what it reads of the kubelet's source. Here that is held against the registry of the linked
// kubelet.
func TestNamesReadFromSourceAreThoseThatUpstreamRegisters(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	tree := upstreamnames.NewTree(strings.TrimSpace(string(out)), "k8s.io/kubernetes")
	read, _ := tree.Metrics("pkg/kubelet")
	metrics.Register()
	registry, ok := legacyregistry.Registerer().(prometheus.Collector)
	if !ok {
		t.Fatal("upstream's registry does not describe its metrics any more")
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descriptions)
		close(descriptions)
	}()
	registered := 0
	for d := range descriptions {
		m := description.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		name, labels := m[1], strings.Split(m[2], ",")
		if !strings.HasPrefix(name, "kubelet_") && !strings.HasPrefix(name, "dra_") {
			continue // of other components that are linked with it
		}
		if m[2] == "" {
			labels = nil
		}
		slices.Sort(labels)
		registered++
		if got, ok := read[name]; !ok {
			t.Errorf("%s is registered, and was not read", name)
		} else if !slices.Equal(got.Labels, labels) {
			t.Errorf("%s: read the labels %v, registered are %v", name, got.Labels, labels)
		}
	}
	if registered < 100 {
		t.Errorf("upstream has registered %d metrics: too few", registered)
	}
	reasons, err := tree.Constants("pkg/kubelet/events")
	if err != nil || !reasons[events.StartingKubelet] || !reasons[events.FailedMapVolume] || !reasons[events.FailedPreStopHook] {
		t.Errorf("the reasons of events that were read are %v (%v)", reasons, err)
	}
}

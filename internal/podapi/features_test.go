package podapi

import (
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"

	"podd/internal/features"
)

var update = flag.Bool("update", false, "write internal/features/gates.txt anew")

// upstreamGates is upstream's registry as its kubelet has it: with the gates of the log
// (cmd/kubelet/app, init).
func upstreamGates(t *testing.T) featuregate.MutableVersionedFeatureGate {
	t.Helper()
	gates := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if err := logsapi.AddFeatureGates(gates); err != nil {
		t.Fatal(err)
	}
	return gates
}

// TestTheGatesAreUpstreams: names, stages, defaults and dependencies. Another release of
// Kubernetes changes them; -update takes them over.
func TestTheGatesAreUpstreams(t *testing.T) {
	gates := upstreamGates(t)
	needs := gates.Dependencies()
	var want []string
	for name, s := range gates.GetAll() {
		spec := features.Spec{Name: features.Gate(name), Stage: features.Stage(s.PreRelease), Default: s.Default, Locked: s.LockToDefault}
		if s.PreRelease == featuregate.GA {
			spec.Stage = features.GA
		}
		for _, n := range needs[name] {
			spec.Needs = append(spec.Needs, features.Gate(n))
		}
		slices.Sort(spec.Needs)
		want = append(want, spec.String())
	}
	slices.Sort(want)
	if len(want) < 200 {
		t.Fatalf("upstream has %d gates, which cannot be all", len(want))
	}
	if *update {
		if err := os.WriteFile("../features/gates.txt", []byte(strings.Join(want, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	var got []string
	for _, s := range features.All() {
		got = append(got, s.String())
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("upstream has %q, podd does not: go test ./internal/podapi -update", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("podd has %q, upstream does not: go test ./internal/podapi -update", line)
		}
	}
}

// TestGatesAreJudgedAsUpstreamJudgesThem: what a kubelet accepts, podd accepts, and each gate
// is on in both or in none.
func TestGatesAreJudgedAsUpstreamJudgesThem(t *testing.T) {
	all := features.All()
	cases := []map[string]bool{{"AllAlpha": true}, {"AllBeta": true}, {"AllBeta": false}, {"AllAlpha": true, "AllBeta": true}, {"NoSuchGate": true}, {"": true}}
	for _, s := range all {
		cases = append(cases, map[string]bool{string(s.Name): true}, map[string]bool{string(s.Name): false})
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		given := map[string]bool{}
		for range 1 + random.IntN(12) {
			given[string(all[random.IntN(len(all))].Name)] = random.IntN(4) > 0
		}
		cases = append(cases, given)
	}
	accepted := 0
	for _, given := range cases {
		theirs := upstreamGates(t)
		err := theirs.SetFromMap(maps.Clone(given))
		ours, wrong := features.New(given)
		if (err == nil) != (len(wrong) == 0) {
			t.Errorf("%v: podd says %v, upstream %v", given, wrong, err)
			continue
		}
		if err != nil {
			continue
		}
		accepted++
		for _, s := range all {
			if got, want := ours.Enabled(s.Name), theirs.Enabled(featuregate.Feature(s.Name)); got != want {
				t.Errorf("%v: %s is %t, upstream's %t", given, s.Name, got, want)
			}
		}
	}
	if refused := len(cases) - accepted; accepted < 100 || refused < 100 {
		t.Errorf("%d accepted, %d refused: too few of one to compare", accepted, refused)
	}
}

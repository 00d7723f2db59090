package cgroup

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// memoryPods are a Guaranteed and a Burstable pod that request 64 MiB and 32 MiB.
func memoryPods() (guaranteed, burstable *v1.Pod) {
	full := list("cpu", "500m", "memory", "64Mi")
	guaranteed, burstable = aPod(with(full, full)), aPod(with(list("memory", "32Mi"), list("memory", "64Mi")))
	guaranteed.UID, burstable.UID = "g1", "b1"
	return guaranteed, burstable
}

// TestMemoryIsProtectedUpToTheRoot: what a pod protects counts only where each cgroup above
// it protects as much.
func TestMemoryIsProtectedUpToTheRoot(t *testing.T) {
	const root = DefaultRoot
	facts, read := aV2Mount(t, "/podd", root, root+"/burstable", root+"/besteffort", root+"/podg1", root+"/burstable/podb1")
	check := func(what string, want map[string][3]string) {
		t.Helper()
		for rel, w := range want {
			if got := [3]string{read(rel, memoryMin), read(rel, memoryLow), read(rel, memoryHigh)}; got != w {
				t.Errorf("%s: %s: got min, low, high %q, want %q", what, rel, got, w)
			}
		}
	}
	guaranteed, burstable := memoryPods()
	ensure := func(s Settings, pods ...*v1.Pod) *Tree {
		t.Helper()
		tree := NewTree(facts, Cgroupfs, root, s)
		for _, p := range pods {
			if err := tree.Ensure(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		return tree
	}
	tree := ensure(Settings{MemoryQoS: pod.MemoryQoSRules{Tiered: true}}, guaranteed, burstable)
	check("tiered", map[string][3]string{
		root + "/podg1":           {"67108864", "0", "max"},
		root + "/burstable/podb1": {"0", "33554432", "max"},
		root + "/burstable":       {"0", "33554432", ""},
		root + "/besteffort":      {"", "", ""},
		root:                      {"100663296", "33554432", ""},
		"/podd":                   {"100663296", "33554432", ""},
	})
	if g, b := tree.MemoryReservations(); g != 64<<20 || b != 32<<20 {
		t.Errorf("reservations: got %d and %d, want 64 and 32 MiB", g, b)
	}

	bigger := burstable.DeepCopy()
	bigger.Spec.Containers[0].Resources = with(list("memory", "48Mi"), list("memory", "64Mi"))
	if err := tree.Raise(t.Context(), bigger, nil); err != nil {
		t.Fatal(err)
	}
	check("raised", map[string][3]string{root + "/burstable/podb1": {"0", "50331648", "max"}, root: {"117440512", "50331648", ""}})
	none := burstable.DeepCopy()
	none.Spec.Containers[0].Resources = with(list("cpu", "1"), list("memory", "64Mi"))
	if err := tree.Update(t.Context(), none, nil); err != nil {
		t.Fatal(err)
	}
	check("resized to no request", map[string][3]string{root + "/burstable/podb1": {"0", "0", "max"}, root + "/burstable": {"0", "0", ""}, root: {"67108864", "0", ""}})
	tree.pods[guaranteed.UID] = podState{} // files in a directory of a test cannot be removed as a cgroup is
	tree.updateTotals(t.Context())
	check("a pod is gone", map[string][3]string{root: {"0", "0", ""}, "/podd": {"0", "0", ""}})

	ensure(Settings{MemoryQoS: pod.MemoryQoSRules{Tiered: true}}, guaranteed, burstable)
	ensure(Settings{}, guaranteed, burstable)
	check("switched off", map[string][3]string{
		root + "/podg1": {"0", "0", "max"}, root + "/burstable/podb1": {"0", "0", "max"}, root + "/burstable": {"0", "0", ""}, root: {"0", "0", ""}, "/podd": {"0", "0", ""},
	})
}

// TestSystemdProtectsMemory: systemd reverts what it does not know of. A new slice gets no
// more properties than before where there is nothing to protect.
func TestSystemdProtectsMemory(t *testing.T) {
	const root = "/podd.slice/podd-kubepods.slice"
	facts, read := aV2Mount(t, "/podd.slice", root, root+"/podd-kubepods-burstable.slice", root+"/podd-kubepods-besteffort.slice",
		root+"/podd-kubepods-podg1.slice", root+"/podd-kubepods-burstable.slice/podd-kubepods-burstable-podb1.slice")
	fake := &fakeUnits{}
	guaranteed, burstable := memoryPods()
	ensure := func(s Settings, p *v1.Pod) []string {
		t.Helper()
		tree := NewTree(facts, Systemd, DefaultRoot, s)
		tree.units = fake
		tree.unitDirs = []string{t.TempDir()}
		fake.calls = nil
		if err := tree.Ensure(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(fake.calls, func(s string) bool { return !strings.Contains(s, "MemoryMin") })
	}
	if got := ensure(Settings{}, guaranteed); len(got) != 0 {
		t.Errorf("a new slice without protection: got calls %q", got)
	}
	tiered := Settings{MemoryQoS: pod.MemoryQoSRules{Tiered: true}}
	want := []string{
		"start podd-kubepods-burstable-podb1.slice CPUWeight=1 MemoryMax=67108864 MemoryMin=0 MemoryLow=33554432 MemoryHigh=18446744073709551615",
		"set podd.slice MemoryMin=33554432 MemoryLow=33554432",
		"set podd-kubepods.slice MemoryMin=33554432 MemoryLow=33554432",
		"set podd-kubepods-burstable.slice CPUWeight=1 MemoryMin=0 MemoryLow=33554432",
	}
	if got := ensure(tiered, burstable); !slices.Equal(got, want) {
		t.Errorf("a new slice:\n got %q\nwant %q", got, want)
	}
	want = []string{
		"set podd.slice MemoryMin=0 MemoryLow=0",
		"set podd-kubepods.slice MemoryMin=0 MemoryLow=0",
		"set podd-kubepods-burstable.slice MemoryMin=0 MemoryLow=0",
		"set podd-kubepods-burstable-podb1.slice CPUWeight=1 MemoryMax=67108864 MemoryMin=0 MemoryLow=0 MemoryHigh=18446744073709551615",
	}
	if got := ensure(Settings{}, burstable); !slices.Equal(got, want) {
		t.Errorf("switched off:\n got %q\nwant %q", got, want)
	}
	if got := read(root, memoryMin); got != "0" {
		t.Errorf("memory.min of the root: got %q, want 0", got)
	}
}

// TestACgroupAboveTheConfiguredRootIsTheAdministrators, who is told what it lacks.
func TestACgroupAboveTheConfiguredRootIsTheAdministrators(t *testing.T) {
	facts, read := aV2Mount(t, "/mine", "/mine/kubepods", "/mine/kubepods/burstable", "/mine/kubepods/besteffort", "/mine/kubepods/podg1")
	guaranteed, _ := memoryPods()
	var log strings.Builder
	tree := NewTree(facts, Cgroupfs, "/mine/kubepods", Settings{MemoryQoS: pod.MemoryQoSRules{Tiered: true}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := tree.Ensure(t.Context(), guaranteed); err != nil {
		t.Fatal(err)
	}
	if got := read("/mine/kubepods", memoryMin); got != "67108864" {
		t.Errorf("memory.min of the root: got %q", got)
	}
	if got := read("/mine", memoryMin); got != "" {
		t.Errorf("memory.min above it: got %q, want it left alone", got)
	}
	if got := strings.Count(log.String(), "cgroup=/mine"); got != 1 {
		t.Errorf("got %d warnings, want one:\n%s", got, &log)
	}
}

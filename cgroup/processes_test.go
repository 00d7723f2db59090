package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestBusyFindsAProcessBelowAPodsGroup covers hierarchies, QoS classes, depths,
// and both cgroup versions.
func TestBusyFindsAProcessBelowAPodsGroup(t *testing.T) {
	for name, tt := range map[string]struct {
		driver Driver
		files  map[string]string
		want   bool
	}{
		"no group":                 {Cgroupfs, nil, false},
		"empty groups":             {Cgroupfs, map[string]string{"cpu/podd/kubepods/burstable/poduid-1/cgroup.procs": "", "cpu/podd/kubepods/burstable/poduid-1/c/cgroup.procs": ""}, false},
		"a process in a container": {Cgroupfs, map[string]string{"memory/podd/kubepods/besteffort/poduid-1/cgroup.procs": "", "memory/podd/kubepods/besteffort/poduid-1/c/cgroup.procs": "12\n"}, true},
		"another pod's":            {Cgroupfs, map[string]string{"memory/podd/kubepods/poduid-2/cgroup.procs": "12\n"}, false},
		"unified, populated":       {Cgroupfs, map[string]string{"memory/podd/kubepods/poduid-1/cgroup.events": "populated 1\nfrozen 0\n"}, true},
		"unified, empty":           {Cgroupfs, map[string]string{"memory/podd/kubepods/poduid-1/cgroup.events": "populated 0\nfrozen 0\n"}, false},
		"systemd":                  {Systemd, map[string]string{"cpu/podd.slice/podd-kubepods.slice/podd-kubepods-poduid_1.slice/s/cgroup.procs": "1\n", "cpu/podd.slice/podd-kubepods.slice/podd-kubepods-poduid_1.slice/cgroup.procs": ""}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for f, text := range tt.files {
				f = filepath.Join(dir, f)
				if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			tree := NewTree(Facts{Mounts: []string{filepath.Join(dir, "cpu"), filepath.Join(dir, "memory")}}, tt.driver, DefaultRoot, Settings{})
			if got, err := tree.HasProcesses("uid-1"); err != nil || got != tt.want {
				t.Errorf("got %v (%v), want %v", got, err, tt.want)
			}
		})
	}
}

// TestStraysAreProcessesOfContainersThatTheRuntimeLost checks that they are of
// this pod alone, and none that the runtime lists.
func TestStraysAreProcessesOfContainersThatTheRuntimeLost(t *testing.T) {
	for _, tt := range []struct {
		driver Driver
		pod    string
		prefix string
	}{
		{Cgroupfs, "podd/kubepods/burstable/poduid-1", ""},
		{Systemd, "podd.slice/podd-kubepods.slice/podd-kubepods-burstable.slice/podd-kubepods-burstable-poduid_1.slice", "cri-containerd-"},
	} {
		dir := t.TempDir()
		write := func(path, text string) {
			path = filepath.Join(dir, "cpu", path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tree := NewTree(Facts{Mounts: []string{filepath.Join(dir, "cpu")}}, tt.driver, DefaultRoot, Settings{})
		expect := func(what string, known []string, want ...string) {
			t.Helper()
			for i := range want {
				want[i] = filepath.Join(dir, "cpu", tt.pod, tt.prefix+want[i])
			}
			if got, err := tree.LostContainers("uid-1", known); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v, %s: got %q (%v), want %q", tt.driver, what, got, err, want)
			}
		}
		expect("no group", nil)
		write(tt.pod+"/cgroup.procs", "")
		expect("an empty group", nil)
		write(tt.pod+"/"+tt.prefix+"aaa/cgroup.procs", "12\n")
		write(tt.pod+"/"+tt.prefix+"bbb/cgroup.procs", "13\n")
		write(tt.pod+"/"+tt.prefix+"ccc/cgroup.procs", "")
		expect("all known", []string{"aaa", "bbb"})
		expect("one lost", []string{"aaa", "ccc"}, "bbb")
		expect("none known", nil, "aaa", "bbb")
		if got, err := tree.LostContainers("uid-2", nil); err != nil || got != nil {
			t.Errorf("another pod's: got %q (%v)", got, err)
		}
	}
}

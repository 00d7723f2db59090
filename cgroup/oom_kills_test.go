package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestKillsOfAPodAreReadFromItsOwnGroup(t *testing.T) {
	const slice = "/podd.slice/podd-kubepods.slice/podd-kubepods-burstable.slice/podd-kubepods-burstable-podu1.slice"
	facts, _ := aV2Mount(t, slice)
	tree := NewTree(facts, Systemd, DefaultRoot, Settings{})
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(facts.Mounts[0], slice, "memory.events"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\noom_group_kill 1\n")
	if n, err := tree.OOMKills("u1"); n != 3 || err != nil {
		t.Errorf("got %d, %v; want 3", n, err)
	}
	if n, err := tree.OOMKills("u2"); n != 0 || err != nil {
		t.Errorf("of a pod without a group: got %d, %v; want 0", n, err)
	}
	write("low 0\n")
	if n, err := tree.OOMKills("u1"); err == nil {
		t.Errorf("of a file without the count: got %d, want an error", n)
	}
	tree.facts.Version = V1
	if n, err := tree.OOMKills("u1"); n != 0 || err != nil {
		t.Errorf("on v1: got %d, %v; want 0", n, err)
	}
}

package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// files lists what is below a directory.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// systemd must not end pods beside podd when the machine shuts down.
func TestSystemdLeavesPoddsSlicesAloneWhenTheMachineShutsDown(t *testing.T) {
	for name, c := range map[string]struct {
		root      string
		installed []string
		want      []string
	}{
		"default root, not installed": {DefaultRoot, nil, []string{"podd-kubepods-.slice.d", "podd-kubepods.slice.d", "podd.slice.d"}},
		"default root, installed":     {DefaultRoot, []string{"podd.slice.d", "podd-.slice.d"}, nil},
		"half of it":                  {DefaultRoot, []string{"podd-.slice.d"}, []string{"podd.slice.d"}},
		"the kubelet's":               {"/kubepods", []string{"podd.slice.d", "podd-.slice.d"}, []string{"kubepods-.slice.d", "kubepods.slice.d"}},
	} {
		run, lib := t.TempDir(), t.TempDir()
		for _, dir := range c.installed {
			if err := os.MkdirAll(filepath.Join(lib, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(lib, dir, dropIn), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tree, fake := NewTree(Facts{}, Systemd, c.root, Settings{}), &fakeUnits{}
		tree.units, tree.unitDirs = fake, []string{run, lib}
		for range 2 { // the second time, all of it is there
			if err := tree.keepSlicesAtShutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		var want []string
		for _, dir := range c.want {
			want = append(want, filepath.Join(dir, dropIn))
		}
		reloads := min(len(want), 1)
		if got := files(t, run); !slices.Equal(got, want) || fake.reloads != reloads {
			t.Errorf("%s: wrote %q, want %q; %d reloads", name, got, want, fake.reloads)
		}
	}
}

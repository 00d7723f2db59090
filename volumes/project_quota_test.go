package volumes

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// assigned records the directories that got a project.
type assigned struct {
	t    *testing.T
	dirs []string
}

func (a *assigned) Assign(dir string) {
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		a.t.Errorf("%s: got %v (%v), want an empty directory", dir, entries, err)
	}
	a.dirs = append(a.dirs, dir)
}

// Not those of other pods, which could change their project, nor volumes in memory or of
// another kind.
func TestEmptyDirsOfAPodInAUserNamespaceGetAProject(t *testing.T) {
	yes, no := true, false
	for name, tc := range map[string]struct {
		hostUsers *bool
		want      []string
	}{
		"the host's users": {&yes, nil},
		"by default":       {nil, nil},
		"its own":          {&no, []string{".new-a", ".new-b"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &assigned{t: t}
			m := newMounter(t, func(o *Options) { o.Projects = a })
			p := aPod("1", empty("a"), empty("b"), empty("m", memory), host("h", "/", ""))
			p.Spec.HostUsers = tc.hostUsers
			mustSetUp(t, m, p)
			write(t, filepath.Join(m.dirs.Volume("1", emptyDirPlugin, "a"), "file"), "x")
			mustSetUp(t, m, p)
			var got []string
			for _, dir := range a.dirs {
				got = append(got, filepath.Base(dir))
			}
			if slices.Sort(got); !slices.Equal(got, tc.want) { // in any order
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if !exists(m.dirs.Volume("1", emptyDirPlugin, "a")) {
				t.Error("the volume does not exist")
			}
		})
	}
}

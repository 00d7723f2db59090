package instance

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func mkdirs(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func link(t *testing.T, to, from string) {
	t.Helper()
	if err := os.Symlink(to, from); err != nil {
		t.Fatal(err)
	}
}

// place is a directory without links in its own path.
func place(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDirectoriesAreResolvedAndNeverOneInTheOther(t *testing.T) {
	dir := place(t)
	mkdirs(t, dir+"/run/podd", dir+"/lib")
	link(t, dir+"/run", dir+"/var-run")
	link(t, dir+"/nowhere", dir+"/dangling")
	for name, c := range map[string]struct {
		root, state string
		want        Dirs
		refused     string
	}{
		"plain":                  {root: dir + "/lib", state: dir + "/run/podd", want: Dirs{dir + "/lib", dir + "/run/podd"}},
		"not there yet":          {root: dir + "/a/b", state: dir + "/c", want: Dirs{dir + "/a/b", dir + "/c"}},
		"behind a link":          {root: dir + "/lib/", state: dir + "/var-run/podd", want: Dirs{dir + "/lib", dir + "/run/podd"}},
		"to be, behind a link":   {root: dir + "/lib", state: dir + "/var-run/x/y", want: Dirs{dir + "/lib", dir + "/run/x/y"}},
		"the same":               {root: dir + "/run/podd", state: dir + "/var-run/podd", refused: "the same directory"},
		"root in state":          {root: dir + "/run/podd/lib", state: dir + "/run/podd", refused: "is within --state-dir"},
		"root in state, by link": {root: dir + "/run/podd/lib", state: dir + "/var-run/podd", refused: "is within --state-dir"},
		"state in root":          {root: dir + "/lib", state: dir + "/lib/run", refused: "is within --root-dir"},
		"state in all":           {root: "/", state: dir + "/run", refused: "is within --root-dir"},
		"a name that begins so":  {root: dir + "/run/podd2", state: dir + "/run/podd", want: Dirs{dir + "/run/podd2", dir + "/run/podd"}},
		"relative":               {root: "lib", state: dir + "/run", refused: "absolute"},
		"empty":                  {root: dir + "/lib", state: "", refused: "absolute"},
		"a link to nothing":      {root: dir + "/dangling/x", state: dir + "/run", refused: "symbolic link"},
	} {
		got, err := Resolve(c.root, c.state)
		if got != c.want || (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: got %v, %v, want %v, %q", name, got, err, c.want, c.refused)
		}
	}
}

// record writes what a runtime of a boot would have recorded.
func record(t *testing.T, d Dirs, boot string) {
	t.Helper()
	mkdirs(t, d.Root, d.State)
	for _, dir := range []string{d.Root, d.State} {
		if err := write(dir, runtimeRecordFile, RuntimeRecord{Dirs: d, Bridge: "b0", Boot: boot}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStopFindsThePoddThatIsMeant(t *testing.T) {
	now, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	const before = "an-earlier-boot"
	type dirs = [2]string // root, state: names below the test's directory
	for name, c := range map[string]struct {
		recorded map[dirs]string // boots, in no order: none writes the same files
		older    dirs            // of an older podd's configuration
		wanted   dirs            // "-name" is a default, not given
		want     dirs
		runtime  bool
		refused  string
	}{
		"none":                               {wanted: dirs{"-lib", "-run"}, want: dirs{"lib", "run"}},
		"the default one":                    {recorded: map[dirs]string{{"lib", "run"}: now}, wanted: dirs{"-lib", "-run"}, want: dirs{"lib", "run"}, runtime: true},
		"the default root, its state":        {recorded: map[dirs]string{{"lib", "x"}: now}, wanted: dirs{"-lib", "-run"}, want: dirs{"lib", "x"}, runtime: true},
		"the default state, its root":        {recorded: map[dirs]string{{"y", "run"}: now}, wanted: dirs{"-lib", "-run"}, want: dirs{"y", "run"}, runtime: true},
		"two by the defaults":                {recorded: map[dirs]string{{"lib", "x"}: now, {"y", "run"}: now}, wanted: dirs{"-lib", "-run"}, refused: "two podds"},
		"by its root alone":                  {recorded: map[dirs]string{{"lib", "run"}: now, {"y", "x"}: now}, wanted: dirs{"y", "-run"}, want: dirs{"y", "x"}, runtime: true},
		"by its state alone":                 {recorded: map[dirs]string{{"lib", "run"}: now, {"y", "x"}: now}, wanted: dirs{"-lib", "x"}, want: dirs{"y", "x"}, runtime: true},
		"a root with another's state":        {recorded: map[dirs]string{{"lib", "run"}: now, {"y", "x"}: now}, wanted: dirs{"y", "run"}, refused: "not of one podd"},
		"a root with nobody's state":         {recorded: map[dirs]string{{"lib", "run"}: now}, wanted: dirs{"lib", "home"}, refused: "not of one podd"},
		"nobody's root, another's state":     {recorded: map[dirs]string{{"lib", "run"}: now}, wanted: dirs{"home", "run"}, refused: "not of one podd"},
		"nobody's root alone":                {recorded: map[dirs]string{{"lib", "run"}: now}, wanted: dirs{"home", "-run"}, refused: "not of one podd"},
		"nested":                             {wanted: dirs{"run/lib", "run"}, refused: "is within --state-dir"},
		"after a boot":                       {recorded: map[dirs]string{{"lib", "run"}: before}, wanted: dirs{"-lib", "-run"}, want: dirs{"lib", "run"}},
		"after a boot another has the state": {recorded: map[dirs]string{{"lib", "run"}: before, {"y", "run"}: now}, wanted: dirs{"lib", "other"}, want: dirs{"lib", "other"}},
		"an older podd's":                    {older: dirs{"lib", "run"}, wanted: dirs{"-lib", "-run"}, want: dirs{"lib", "run"}, runtime: true},
		"an older podd's other root":         {older: dirs{"y", "run"}, wanted: dirs{"lib", "run"}, refused: "not of one podd"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			in := func(d dirs) Dirs {
				return Dirs{filepath.Join(dir, strings.TrimPrefix(d[0], "-")), filepath.Join(dir, strings.TrimPrefix(d[1], "-"))}
			}
			for _, boot := range []string{before, now} { // the later one overwrites
				for d, b := range c.recorded {
					if b == boot {
						record(t, in(d), b)
					}
				}
			}
			if d := in(c.older); c.older != (dirs{}) {
				mkdirs(t, d.Root, d.State)
				text := "# Written by podd\nversion = 4\nroot = \"" + d.Root + "/containerd\"\nstate = \"x\"\n"
				if err := os.WriteFile(d.State+"/containerd.toml", []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			d := in(c.wanted)
			got, err := Find(Selector{d.Root, d.State, c.wanted[0][0] != '-', c.wanted[1][0] != '-'})
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("got %+v, %v, want %q", got, err, c.refused)
				}
				return
			}
			if err != nil || got.Dirs != in(c.want) || (got.Runtime != nil) != c.runtime {
				t.Errorf("got %v, runtime %v, %v, want %v, %t", got.Dirs, got.Runtime, err, in(c.want), c.runtime)
			}
		})
	}
}

func TestARuntimeDoesNotTakeOverWhatHoldsAnothersPods(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	now, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		boot    string
		old     [2]string
		mounts  bool
		refused bool
	}{
		"the same":                        {now, [2]string{"lib", "run"}, true, false},
		"another state, with pods":        {now, [2]string{"lib", "old"}, true, true},
		"another state, empty":            {now, [2]string{"lib", "old"}, false, false},
		"another root, with pods":         {now, [2]string{"old", "run"}, true, true},
		"another root, empty":             {now, [2]string{"old", "run"}, false, false},
		"another state, before this boot": {"earlier", [2]string{"lib", "old"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			d, old := Dirs{dir + "/lib", dir + "/run"}, Dirs{dir + "/" + c.old[0], dir + "/" + c.old[1]}
			mkdirs(t, d.Root, d.State)
			record(t, old, c.boot)
			if c.mounts {
				at := old.State + "/pod"
				mkdirs(t, at)
				if err := unix.Mount("none", at, "tmpfs", 0, ""); err != nil {
					t.Skipf("cannot mount here: %v", err)
				}
				defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
			}
			err := AcquireRuntime(RuntimeRecord{Dirs: d, Bridge: "b1"})
			if c.refused != (err != nil) || err != nil && !strings.Contains(err.Error(), "podd runtime stop --root-dir "+old.Root+" --state-dir "+old.State) {
				t.Fatalf("got %v, want a refusal %t", err, c.refused)
			}
			for _, at := range []string{d.Root, d.State} {
				if got, err := readRuntime(at); err == nil && got != nil && (got.Dirs == d && got.Bridge == "b1") == c.refused {
					t.Errorf("%s says %+v", at, got)
				}
			}
		})
	}
}

func TestADamagedNoteStopsNoStart(t *testing.T) {
	dir := place(t)
	d := Dirs{dir + "/lib", dir + "/run"}
	record(t, d, "x")
	// A power cut leaves it empty: nothing forces it to the disk.
	if err := os.WriteFile(d.Root+"/"+runtimeRecordFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(Selector{d.Root, d.State, true, true}); err == nil || !strings.Contains(err.Error(), d.Root+"/"+runtimeRecordFile) {
		t.Errorf("stop: got %v, want the file's name", err)
	}
	if err := AcquireRuntime(RuntimeRecord{Dirs: d, Bridge: "b1"}); err != nil {
		t.Error(err)
	}
	if err := AcquireAgent(AgentRecord{Dirs: d, CgroupRoot: "/c"}, d.Root); err != nil {
		t.Error(err)
	}
	got, err := Find(Selector{d.Root, d.State, true, true})
	if err != nil || got.Runtime == nil || got.Runtime.Bridge != "b1" || got.Agent == nil || got.Agent.CgroupRoot != "/c" {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := got.RemoveRecords(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{runtimeRecordFile, agentRecordFile} {
		if _, err := os.Stat(d.Root + "/" + name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v after Forget", name, err)
		}
	}
}

// As under the name kubelet: the runtime's root directory leads to the podd that has another.
func TestAPoddMayHaveItsPodsElsewhereThanItsRuntime(t *testing.T) {
	dir := place(t)
	runtime, pods := Dirs{dir + "/lib", dir + "/run"}, Dirs{dir + "/kubelet", dir + "/run"}
	record(t, runtime, "x")
	if err := AcquireRuntime(RuntimeRecord{Dirs: runtime}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(AcquireAgent(AgentRecord{Dirs: pods}, runtime.Root), os.MkdirAll(pods.Root+"/pods/u1", 0o755)); err != nil {
		t.Fatal(err)
	}
	found, err := Find(Selector{runtime.Root, runtime.State, false, false})
	if err != nil || found.Root != runtime.Root || found.PodsRoot() != pods.Root {
		t.Fatalf("got %+v, %v", found, err)
	}
	for _, root := range []string{runtime.Root, pods.Root} {
		if _, err := os.Stat(root + "/" + agentLock.name); err != nil {
			t.Errorf("not locked: %v", err)
		}
	}
	// Another podd on that runtime, which would not know the pods.
	want := runtime.Root + " was last used by a podd with --root-dir " + pods.Root
	if err := AcquireAgent(AgentRecord{Dirs: runtime}, runtime.Root); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if err := os.Remove(pods.Root + "/pods/u1"); err != nil {
		t.Fatal(err)
	}
	if err := AcquireAgent(AgentRecord{Dirs: runtime}, runtime.Root); err != nil {
		t.Errorf("none of its pods is left: %v", err)
	}
	if err := AcquireAgent(AgentRecord{Dirs: pods}, runtime.Root); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(found.Lock(), found.RemoveRecords()); err != nil {
		t.Error(err)
	}
	for _, left := range []string{runtime.Root + "/" + agentRecordFile, runtime.Root + "/" + runtimeRecordFile, pods.Root + "/" + agentRecordFile} {
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v after Forget", left, err)
		}
	}
}

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"podd/internal/versions"
)

const root = "../.."

// stagingInUse are the staging repositories that podd's own go.mod replaces. Whether these
// are all that Kubernetes has, go mod tidy tells.
func stagingInUse(t *testing.T) (paths []string) {
	mod, err := readGoMod(t.Context(), filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Replace {
		paths = append(paths, r.Old.Path)
	}
	if len(paths) < 20 {
		t.Fatalf("go.mod replaces only %v", paths)
	}
	return paths
}

func TestEveryGoModHasTheReleasesOfVersionsEnv(t *testing.T) {
	files, err := goMods(root)
	if err != nil || len(files) < 10 {
		t.Fatalf("found %v, %v", files, err)
	}
	staging, found := stagingInUse(t), map[string]bool{}
	for _, file := range files {
		mod, err := readGoMod(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		for _, edit := range mod.edits(versions.All(), staging) {
			t.Errorf("%s wants go mod edit %s: run make bump", strings.TrimPrefix(file, root+"/"), edit)
		}
		for _, r := range mod.Require {
			found[pinned[r.Path]] = true
		}
	}
	for name := range versions.All() {
		if !found[name] {
			t.Errorf("no go.mod requires the module of %s", name)
		}
	}
}

func TestEveryPageHasTheReleasesOfVersionsEnv(t *testing.T) {
	for _, p := range pages {
		was, now, err := p.rewritten(root, versions.All())
		if err != nil {
			t.Error(err)
		} else if was != now {
			t.Errorf("%s does not name %s as versions.env has it: run make bump", p.file, p.name)
		}
	}
}

// measured are files that say what was found with a release; they change when it is found
// anew.
var measured = []string{
	"README.md", "docs/performance.md", "docs/bench.svg", "docs/conformance.md", "cri/testdata/kubelet/README.md", "status/life_test.go",
}

func TestTheReleaseOfKubernetesIsWrittenOutNowhereElse(t *testing.T) {
	release := versions.Kubernetes[1:]
	_, rest, _ := strings.Cut(release, ".")
	elsewhere := slices.Clone(measured)
	for _, p := range pages {
		elsewhere = append(elsewhere, p.file)
	}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || d.Name() == ".git"):
			return filepath.SkipDir
		case !d.Type().IsRegular() || d.Name() == "go.mod" || d.Name() == "go.sum" || d.Name() == "versions.env" || slices.Contains(elsewhere, name):
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(b), "\n") {
			if strings.Contains(line, release) || strings.Contains(line, "v0."+rest) {
				t.Errorf("%s:%d names Kubernetes %s: use internal/versions, or give hack/bump a page for it", name, i+1, release)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEdits(t *testing.T) {
	all := map[string]string{"KUBERNETES": "1.47.2", "RUNC": "1.5.3"}
	staging := []string{"k8s.io/api", "k8s.io/fresh"}
	type required = struct {
		Path, Version string
		Indirect      bool
	}
	replace := func(old, release string) (r struct {
		Old, New struct{ Path, Version string }
	}) {
		r.Old.Path, r.New.Path, r.New.Version = old, old, release
		return r
	}
	type replaces = []struct {
		Old, New struct{ Path, Version string }
	}
	for name, c := range map[string]struct {
		mod  goMod
		want []string
	}{
		"agrees":                    {goMod{Require: []required{{"github.com/opencontainers/runc", "v1.5.3", true}, {"k8s.io/api", "v0.47.2", false}}}, nil},
		"an old program":            {goMod{Require: []required{{"github.com/opencontainers/runc", "v1.5.2", true}}}, []string{"-require=github.com/opencontainers/runc@v1.5.3"}},
		"an old library":            {goMod{Require: []required{{"k8s.io/api", "v0.46.3", false}}}, []string{"-require=k8s.io/api@v0.47.2"}},
		"a library of another's":    {goMod{Require: []required{{"k8s.io/api", "v0.35.0", true}}}, nil},
		"what versions.env has not": {goMod{Require: []required{{"k8s.io/klog/v2", "v2.1.0", false}}}, nil},
		"a release of Kubernetes": {
			goMod{Require: []required{{kubernetes, "v1.46.3", false}, {"k8s.io/api", "v0.0.0", false}}, Replace: replaces{replace("k8s.io/api", "v0.46.3"), replace("k8s.io/gone", "v0.46.3")}},
			[]string{"-dropreplace=k8s.io/gone", "-replace=k8s.io/api=k8s.io/api@v0.47.2", "-replace=k8s.io/fresh=k8s.io/fresh@v0.47.2", "-require=k8s.io/kubernetes@v1.47.2"},
		},
	} {
		if got := c.mod.edits(all, staging); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAPageIsRewritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte("with v1.46.3, and with v1.46.2; runc v1.46.3"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"KUBERNETES": "1.47.10"}
	was, now, err := page{"a.md", "with v([0-9.]+[0-9])", "KUBERNETES"}.rewritten(dir, all)
	if err != nil || was == now || now != "with v1.47.10, and with v1.47.10; runc v1.46.3" {
		t.Errorf("got %q, %v", now, err)
	}
	if _, _, err := (page{"a.md", "at v([0-9.]+)", "KUBERNETES"}).rewritten(dir, all); err == nil || !strings.Contains(err.Error(), "a.md: nothing matches") {
		t.Errorf("a page that names no release: %v", err)
	}
}

func TestWhatIsNewer(t *testing.T) {
	for _, c := range []struct{ has, want string }{
		{"v1.47.2", "v1.47.2, the newest"},
		{"v1.47.1", "v1.47.1, newest v1.47.2"},
		{"v1.46.1", "v1.46.1, newest v1.46.3 of v1.46, v1.47.2 of all"},
		{"v1.46.3", "v1.46.3, newest v1.47.2"},
	} {
		if got := describe(c.has, []string{"v1.46.1", "v1.46.3", "v1.47.0-rc.1", "v1.47.1", "v1.47.2", "v1.48.0-alpha.1"}); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if got := describe("v1.0.0", []string{"v1.1.0-rc.1"}); got != "v1.0.0, and no release is known" {
		t.Errorf("got %q", got)
	}
}

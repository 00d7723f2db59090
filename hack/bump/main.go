// Command bump writes the releases of internal/versions/versions.env into every go.mod
// and page (make bump), or says which of them have a newer one (-newer, make bump-check).
// Run it in the repository's root.
//
// A module that replaces Kubernetes' staging repositories replaces all that this release
// of k8s.io/kubernetes has: a new one is added, and one that is gone is dropped.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"podd/internal/versions"
)

const kubernetes = "k8s.io/kubernetes"

// pinned are the modules whose releases versions.env has, by their names there.
var pinned = map[string]string{
	kubernetes:                                       "KUBERNETES",
	"github.com/containerd/containerd/v2":            "CONTAINERD",
	"github.com/opencontainers/runc":                 "RUNC",
	"github.com/containernetworking/plugins":         "CNI_PLUGINS",
	"sigs.k8s.io/cri-tools":                          "CRI_TOOLS",
	"go.etcd.io/etcd/server/v3":                      "ETCD",
	"github.com/coredns/coredns":                     "COREDNS",
	"sigs.k8s.io/metrics-server":                     "METRICS_SERVER",
	"github.com/kubernetes-csi/external-attacher/v4": "EXTERNAL_ATTACHER",
}

// page is a place in a text that names a release: the first group of the pattern.
type page struct{ file, pattern, name string }

var pages = []page{
	{"README.md", "containerd ([0-9.]+[0-9]), runc", "CONTAINERD"},
	{"README.md", "runc ([0-9.]+[0-9]) and", "RUNC"},
	{"README.md", "CNI plugins ([0-9.]+[0-9])", "CNI_PLUGINS"},
	{"docs/cluster.md", "tests all of this with v([0-9.]+[0-9])", "KUBERNETES"},
	{"docs/cluster.md", `v([0-9.]+)\+podd`, "KUBERNETES"},
	{"docs/cluster.md", "containerd://([0-9.]+[0-9])", "CONTAINERD"},
}

func main() {
	newer := flag.Bool("newer", false, "only say which releases have a newer one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run := bump
	if *newer {
		run = printNewer
	}
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bump:", err)
		os.Exit(1)
	}
}

// bump rewrites what disagrees with versions.env, and prints each file that it changed.
func bump(ctx context.Context, out io.Writer) error {
	all := versions.All()
	staging, err := stagingOf(ctx, "v"+all["KUBERNETES"])
	if err != nil {
		return err
	}
	files, err := goMods(".")
	if err != nil {
		return err
	}
	changed := 0
	for _, file := range files {
		mod, err := readGoMod(ctx, file)
		if err != nil {
			return err
		}
		edits := mod.edits(all, staging)
		if len(edits) == 0 {
			continue
		}
		changed++
		fmt.Fprintf(out, "%s: %d changes, and go mod tidy\n", file, len(edits))
		dir := filepath.Dir(file)
		if _, err := goCommand(ctx, dir, append([]string{"mod", "edit"}, edits...)...); err != nil {
			return err
		}
		if _, err := goCommand(ctx, dir, "mod", "tidy"); err != nil {
			return err
		}
	}
	for _, p := range pages {
		was, now, err := p.rewritten(".", all)
		if err != nil {
			return err
		}
		if was == now {
			continue
		}
		changed++
		fmt.Fprintf(out, "%s: %s\n", p.file, p.name)
		if err := os.WriteFile(p.file, []byte(now), 0o644); err != nil {
			return err
		}
	}
	if changed == 0 {
		fmt.Fprintf(out, "every go.mod and page has the releases of versions.env (Kubernetes %s)\n", versions.Kubernetes)
	}
	return nil
}

// rewritten returns the text of a page below root, and what it is to be.
func (p page) rewritten(root string, all map[string]string) (was, now string, err error) {
	b, err := os.ReadFile(filepath.Join(root, p.file))
	if err != nil {
		return "", "", err
	}
	was = string(b)
	places := regexp.MustCompile(p.pattern).FindAllStringSubmatchIndex(was, -1)
	if len(places) == 0 {
		return "", "", fmt.Errorf("%s: nothing matches %q", p.file, p.pattern)
	}
	now = was
	for _, at := range slices.Backward(places) {
		now = now[:at[2]] + all[p.name] + now[at[3]:]
	}
	return was, now, nil
}

// goMod is what "go mod edit -json" says.
type goMod struct {
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

func readGoMod(ctx context.Context, file string) (mod goMod, err error) {
	text, err := goCommand(ctx, filepath.Dir(file), "mod", "edit", "-json", filepath.Base(file))
	if err != nil {
		return mod, err
	}
	return mod, json.Unmarshal(text, &mod)
}

// edits returns what "go mod edit" is to be told, so that the module agrees with the
// releases. staging are the paths of the staging repositories of that Kubernetes.
func (m goMod) edits(all map[string]string, staging []string) (edits []string) {
	_, rest, _ := strings.Cut(all["KUBERNETES"], ".")
	library := "v0." + rest // the release of the staging repositories
	replaced := map[string]string{}
	for _, r := range m.Replace {
		if strings.HasPrefix(r.Old.Path, "k8s.io/") && r.Old.Path == r.New.Path {
			replaced[r.Old.Path] = r.New.Version
		}
	}
	for _, r := range m.Require {
		want := r.Version
		if name := pinned[r.Path]; name != "" {
			want = "v" + all[name]
		} else if len(replaced) == 0 && !r.Indirect && slices.Contains(staging, r.Path) {
			want = library
		}
		if r.Version != want {
			edits = append(edits, "-require="+r.Path+"@"+want)
		}
	}
	if len(replaced) > 0 {
		for path, release := range replaced {
			switch {
			case !slices.Contains(staging, path):
				edits = append(edits, "-dropreplace="+path)
			case release != library:
				edits = append(edits, "-replace="+path+"="+path+"@"+library)
			}
		}
		for _, path := range staging {
			if replaced[path] == "" {
				edits = append(edits, "-replace="+path+"="+path+"@"+library)
			}
		}
	}
	slices.Sort(edits)
	return edits
}

// stagingOf returns the paths of the staging repositories of a release of Kubernetes,
// which its own go.mod replaces by directories.
func stagingOf(ctx context.Context, release string) (paths []string, err error) {
	text, err := goCommand(ctx, os.TempDir(), "mod", "download", "-json", kubernetes+"@"+release)
	if err != nil {
		return nil, err
	}
	var downloaded struct{ GoMod string }
	if err := json.Unmarshal(text, &downloaded); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(downloaded.GoMod)
	if err != nil {
		return nil, err
	}
	for _, m := range regexp.MustCompile(`(?m)^\s*(?:replace )?(k8s\.io/\S+) => \./staging/`).FindAllStringSubmatch(string(b), -1) {
		paths = append(paths, m[1])
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s has no staging repositories", downloaded.GoMod)
	}
	return paths, nil
}

// goMods returns the go.mod files below root, but for those that a build left there.
func goMods(root string) (files []string, err error) {
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.Name() == "go.mod":
			files = append(files, path)
		}
		return nil
	})
	return files, err
}

// goCommand runs go in a directory, and returns what it prints.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, cmp.Or(os.Getenv("GO"), "go"), args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s in %s: %w: %s", strings.Join(args, " "), dir, err, strings.TrimSpace(stderr.String()+string(out)))
	}
	return out, nil
}

// printNewer prints the releases that are newer than those of versions.env. One that
// cannot be looked up does not hide the others.
func printNewer(ctx context.Context, out io.Writer) error {
	all := versions.All()
	var failed []error
	paths := make([]string, 0, len(pinned))
	for path := range pinned {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Compare(pinned[a], pinned[b]) })
	for _, path := range paths {
		name := pinned[path]
		text, err := goCommand(ctx, os.TempDir(), "list", "-m", "-versions", "-json", path)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
			continue
		}
		var list struct{ Versions []string }
		if err := json.Unmarshal(text, &list); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
			continue
		}
		fmt.Fprintf(out, "%-18s %s\n", name, describe("v"+all[name], list.Versions))
	}
	return errors.Join(failed...)
}

// describe says what of the releases, oldest first, is newer than the one that podd has.
func describe(has string, releases []string) string {
	releases = slices.DeleteFunc(slices.Clone(releases), func(v string) bool { return strings.Contains(v, "-") })
	if len(releases) == 0 {
		return has + ", and no release is known"
	}
	newest := releases[len(releases)-1]
	minor := has[:strings.LastIndexByte(has, '.')+1]
	patch := has
	for _, v := range releases {
		if strings.HasPrefix(v, minor) {
			patch = v
		}
	}
	switch {
	case newest == has:
		return has + ", the newest"
	case patch == has || patch == newest:
		return has + ", newest " + newest
	}
	return has + ", newest " + patch + " of " + strings.TrimSuffix(minor, ".") + ", " + newest + " of all"
}

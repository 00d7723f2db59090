package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// debian is the image of one of the examples, made of what Debian's packages have: some paths
// (patterns of path.Match), the libraries of the programs among them, and a user.
type debian struct {
	name         string
	paths        []string
	without      []string // prefixes of what is left out of the paths
	user, bin    string
	uid          int
	dirs         []string // that the user writes to
	stop         string   // the signal that ends the program in peace
	busybox      bool     // a shell, which the program calls
	cmd          []string
	exposesPorts []string
}

// debians are the images of examples/. Users and signals are those of the images that the
// projects themselves publish, so that a manifest runs with these, too.
var debians = []debian{
	{
		name:    "postgres",
		paths:   []string{"usr/lib/postgresql/*/bin", "usr/lib/postgresql/*/lib", "usr/share/postgresql", "usr/share/zoneinfo", "usr/lib/locale/C.utf8"},
		without: []string{"usr/share/zoneinfo/posix", "usr/share/zoneinfo/right"},
		user:    "postgres", uid: 999, bin: "usr/lib/postgresql/*/bin", dirs: []string{"var/run/postgresql"},
		stop: "SIGINT", busybox: true, cmd: []string{"postgres"}, exposesPorts: []string{"5432/tcp"},
	},
	{
		name: "nginx", paths: []string{"usr/sbin/nginx", "etc/nginx/*"}, without: []string{"etc/nginx/sites-", "etc/nginx/modules-"},
		user: "nginx", uid: 101, dirs: []string{"var/log/nginx", "var/lib/nginx"},
		stop: "SIGQUIT", cmd: []string{"nginx", "-g", "daemon off;"}, exposesPorts: []string{"80/tcp"},
	},
	{
		name: "prometheus", paths: []string{
			"usr/bin/prometheus", "usr/bin/promtool", "etc/prometheus/*", "usr/share/prometheus",
			// What the links of its pages lead to.
			"usr/share/javascript/[bdejmpr]*", "usr/share/nodejs", "usr/share/fonts-glyphicons",
		},
		without: []string{"usr/share/javascript/dojo", "usr/share/javascript/moment-timezone/data"},
		user:    "nobody", uid: 65534, dirs: []string{"prometheus"},
		cmd: []string{"prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"}, exposesPorts: []string{"9090/tcp"},
	},
	{
		name: "node-exporter", paths: []string{"usr/bin/prometheus-node-exporter"},
		user: "nobody", uid: 65534, cmd: []string{"prometheus-node-exporter"}, exposesPorts: []string{"9100/tcp"},
	},
}

// writeDebians writes an archive for each of the debians into a directory. root is where the
// packages have been unpacked.
func writeDebians(root, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, d := range debians {
		img, err := d.image(root)
		if err == nil {
			err = img.write(filepath.Join(out, d.name+".tar"), "localhost/podd/"+d.name+":1")
		}
		if err != nil {
			return fmt.Errorf("image %s: %w", d.name, err)
		}
	}
	return nil
}

func (d *debian) image(root string) (*image, error) {
	content := map[string]file{}
	for _, pattern := range d.paths {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("the packages have no %s", pattern)
		}
		for _, f := range found {
			if err := d.add(content, root, f); err != nil {
				return nil, err
			}
		}
	}
	if d.busybox {
		f, err := readFile(root, "bin/busybox")
		if err != nil {
			return nil, err
		}
		content[f.path], content["bin/sh"] = f, file{path: "bin/sh", mode: 0o777, link: "busybox"}
	}
	if err := addLibraries(content, root); err != nil {
		return nil, err
	}
	search := []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	if d.bin != "" {
		found, err := filepath.Glob(filepath.Join(root, d.bin))
		if err != nil || len(found) != 1 {
			return nil, fmt.Errorf("want one directory %s, found %q: %w", d.bin, found, err)
		}
		search = append(search, "/"+relative(root, found[0]))
	}
	for _, f := range accounts() {
		switch {
		case f.path == "etc/passwd" && d.uid != 65534:
			f.content = fmt.Appendf(f.content, "%s:x:%d:%d::/:/bin/sh\n", d.user, d.uid, d.uid)
		case f.path == "etc/group" && d.uid != 65534:
			f.content = fmt.Appendf(f.content, "%s:x:%d:\n", d.user, d.uid)
		}
		content[f.path] = f
	}
	for _, dir := range d.dirs { // layers have no owners: whoever runs the program writes to these
		content[dir] = file{path: dir, mode: 0o1777}
	}
	ports := map[string]struct{}{}
	for _, p := range d.exposesPorts {
		ports[p] = struct{}{}
	}
	img := &image{config: v1.Config{
		Cmd: d.cmd, Env: []string{"PATH=" + strings.Join(search, ":")}, User: fmt.Sprintf("%d:%d", d.uid, d.uid),
		WorkingDir: "/", ExposedPorts: ports, StopSignal: d.stop,
	}}
	for _, f := range content {
		img.files = append(img.files, f)
	}
	return img, nil
}

// add adds what is at a path of the root and below it.
func (d *debian) add(content map[string]file, root, at string) error {
	return filepath.WalkDir(at, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := relative(root, p)
		if slices.ContainsFunc(d.without, func(prefix string) bool { return strings.HasPrefix(rel, prefix) }) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		switch e.Type() {
		case fs.ModeDir:
			content[rel] = file{path: rel, mode: 0o755}
		case fs.ModeSymlink:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			content[rel] = file{path: rel, mode: 0o777, link: to}
		case 0:
			f, err := readFile(root, rel)
			if err != nil {
				return err
			}
			content[rel] = f
		}
		return nil
	})
}

// addLibraries adds what the loader of the root loads for the programs and plugins that are
// there so far. PostgreSQL's compiler, which weighs more than all the rest, is left out: it
// does without where its plugin is not there.
func addLibraries(content map[string]file, root string) error {
	loaders, err := filepath.Glob(filepath.Join(root, "lib*/ld-linux*.so.*"))
	if err != nil || len(loaders) == 0 {
		return errors.Join(errors.New("the packages have no dynamic loader"), err)
	}
	loader := relative(root, loaders[0])
	needed := map[string]bool{}
	for name, f := range content {
		if path.Base(name) == "llvmjit.so" || strings.Contains(name, "/bitcode/") || strings.HasSuffix(name, ".bc") {
			delete(content, name)
			continue
		}
		if !strings.HasPrefix(string(f.content), "\x7fELF") || name == "bin/busybox" {
			continue
		}
		out, err := exec.Command("chroot", root, "/"+loader, "--list", "/"+name).Output()
		if err != nil {
			return fmt.Errorf("the libraries of %s: %w", name, err)
		}
		for word := range strings.FieldsSeq(string(out)) { // "name => path (address)", the loader without a name
			if path.IsAbs(word) {
				needed[strings.TrimPrefix(word, "/")] = true
			}
		}
	}
	needed[loader] = true
	for name := range needed {
		f, err := readFile(root, name)
		if err != nil {
			return err
		}
		content[name] = f
	}
	return nil
}

// readFile reads a file of the root; where it is a link, what that leads to.
func readFile(root, name string) (file, error) {
	at := filepath.Join(root, name)
	info, err := os.Stat(at)
	if err != nil {
		return file{}, err
	}
	text, err := os.ReadFile(at)
	if err != nil {
		return file{}, err
	}
	if text == nil {
		text = []byte{}
	}
	return file{path: name, mode: int64(info.Mode().Perm()), content: text}, nil
}

func relative(root, p string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, filepath.Clean(root)), "/")
}

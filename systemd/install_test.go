package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// program writes a script that plays a program.
func program(t *testing.T, path, script string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// The log of the podd that ends the pods had the name of a directory that
// everybody sees in /tmp, and .log behind it: a link of that name led root's
// output into any file.
func TestStopPodsWritesNothingBesideItsOwnDirectory(t *testing.T) {
	for _, ends := range []bool{true, false} {
		dir := t.TempDir()
		bin, tmp, victim := dir+"/bin", dir+"/tmp", dir+"/victim"
		for _, d := range []string{bin, tmp} {
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		real, err := exec.LookPath("mktemp")
		if err != nil {
			t.Skip("needs mktemp")
		}
		// Whoever watches /tmp is quicker than the script.
		program(t, bin+"/mktemp", `made=$(`+real+` "$@") && ln -s `+victim+` "$made.log" && echo "$made"`)
		program(t, bin+"/systemctl", `echo "systemctl $*" >>`+dir+`/calls`)
		program(t, bin+"/podd", `echo "podd $*" >>`+dir+`/calls
			case "$1 $2" in
			"runtime stop") exit 0 ;;
			esac
			echo "many words"
			for each; do case $each in --pod-manifest-path=*) [ -z "$(ls -A "${each#*=}")" ] || exit 1 ;; esac; done
			touch `+dir+`/ran`)
		// podd ends the last pod, and exits, while somebody still looks at what there was.
		left := "[ -e " + dir + "/ran ] || { sleep 0.3; echo a-pod; }"
		if !ends {
			left = "echo a-pod"
		}
		program(t, bin+"/crictl", left)
		cmd := exec.Command("sh", "stop-pods.sh", bin+"/podd", bin, dir+"/config.yaml")
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TMPDIR="+tmp)
		out, err := cmd.CombinedOutput()
		calls, _ := os.ReadFile(dir + "/calls")
		if (err == nil) != ends || strings.Contains(string(calls), "podd runtime stop") != ends {
			t.Errorf("pods end %t: got %v\n%s%s", ends, err, out, calls)
		}
		if !ends && !strings.Contains(string(out), "a-pod") || !ends && !strings.Contains(string(out), "many words") {
			t.Errorf("what does not end is not named, or podd's last words are not shown:\n%s", out)
		}
		if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
			t.Errorf("pods end %t: the file that the link leads to has %q, %v", ends, text, err)
		}
		if rest, _ := filepath.Glob(tmp + "/*"); len(rest) > 1 || len(rest) == 1 && !strings.HasSuffix(rest[0], ".log") {
			t.Errorf("pods end %t: left in the temporary directory: %v", ends, rest)
		}
	}
}

// makeTarget runs a target of the Makefile with DESTDIR; old files are not built.
func makeTarget(t *testing.T, target, destdir string, variables ...string) string {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("needs make")
	}
	cmd := exec.Command("make", append([]string{"-C", "..", target, "DESTDIR=" + destdir}, variables...)...)
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out) + "\n" + err.Error()
	}
	return string(out)
}

// A volume that could not be unmounted was in the directory that make uninstall
// told to delete.
func TestUninstallAdvisesToDeleteNothingThatIsMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	const advice = "rm -rf"
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	volume := dir + "/var/lib/podd/pods/u1/volumes/kubernetes.io~empty-dir/scratch"
	if err := os.MkdirAll(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	if out := makeTarget(t, "uninstall", dir); !strings.Contains(out, advice) || !strings.Contains(out, "/var/lib/podd") {
		t.Errorf("with nothing mounted: got\n%s\nwant what to delete", out)
	}
	if err := unix.Mount("none", volume, "tmpfs", 0, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	defer func() { _ = unix.Unmount(volume, unix.MNT_DETACH) }()
	out := makeTarget(t, "uninstall", dir)
	if strings.Contains(out, advice) || !strings.Contains(out, volume) {
		t.Errorf("with a volume mounted: got\n%s\nwant its name and no advice to delete", out)
	}
}

// config.yaml may hold the credentials of the manifest URL, and manifests hold Secrets. A
// configuration that is there stays as it is.
func TestInstalledConfigurationIsForRootAlone(t *testing.T) {
	dir, built := t.TempDir(), t.TempDir()
	for _, name := range []string{"podd", "containerd", "pause.tar", "web.tar"} {
		if err := os.WriteFile(filepath.Join(built, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	install := func() string {
		return makeTarget(t, "install-files", dir, "PODD="+built+"/podd", "RUNTIME="+built, "IMAGES_BUILT="+built)
	}
	install()
	for path, want := range map[string]os.FileMode{"/etc/podd/config.yaml": 0o600, "/etc/podd/manifests": 0o700 | os.ModeDir, "/usr/libexec/podd/containerd": 0o755} {
		info, err := os.Stat(dir + path)
		if err != nil {
			t.Error(err)
		} else if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
	const own = "maxPods: 7\n"
	if err := os.WriteFile(dir+"/etc/podd/config.yaml", []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	out := install()
	if text, err := os.ReadFile(dir + "/etc/podd/config.yaml"); err != nil || string(text) != own || !strings.Contains(out, "kept /etc/podd/config.yaml") {
		t.Errorf("an edited configuration has become %q, %v\n%s", text, err, out)
	}
}

package bundle

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"podd/internal/pod"
)

// fakeBin makes a folder with the named programs, which do nothing.
func fakeBin(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindTakesTheNamedFolderElseTheNearest(t *testing.T) {
	named, env := fakeBin(t, required...), fakeBin(t, required...)
	prefix := t.TempDir()
	near := filepath.Join(prefix, "bin/runtime/bin")
	if err := os.MkdirAll(filepath.Dir(near), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fakeBin(t, required...), near); err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(prefix, "bin")
	for name, c := range map[string]struct{ flag, env, want string }{
		"flag before environment": {named, env, named},
		"environment before near": {"", env, env},
		"near the program":        {"", "", near},
	} {
		if got, err := find(c.flag, c.env, self); err != nil || got != c.want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, c.want)
		}
	}
}

func TestFindSaysWhereItSearchedAndWhatToDo(t *testing.T) {
	incomplete := fakeBin(t, "containerd", "bridge")
	_, err := find(incomplete, "", "/nonexistent/bin")
	if _, ok := errors.AsType[*MissingError](err); !ok {
		t.Fatalf("got %v, want a MissingError", err)
	}
	for _, want := range []string{incomplete, "lacks containerd-shim-runc-v2, runc, host-local", "make runtime", "--runtime-dir", "$PODD_RUNTIME_DIR"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}
	_, err = find("", "", "/nonexistent/bin")
	if err != nil && !strings.Contains(err.Error(), "/nonexistent/libexec/podd (does not exist)") {
		t.Errorf("got %q, want the folders that were looked at", err)
	}
}

func aSettings(t *testing.T) *Settings {
	t.Helper()
	dir := t.TempDir()
	s := &Settings{
		BinDir: "/opt/podd bin", RootDir: filepath.Join(dir, "root"), StateDir: filepath.Join(dir, "state"),
		ConfigDir: "/etc/podd", CNIConfDir: filepath.Join(dir, "net.d"), SandboxImage: PauseImage, LogLevel: "warn",
	}
	t.Cleanup(func() { _ = os.RemoveAll(s.shimDir()) }) // of a long state directory it is elsewhere
	return s
}

func TestConfigFollowsTheMachine(t *testing.T) {
	for name, c := range map[string]struct {
		systemd, lower, pages bool
	}{"a machine with everything": {true, true, true}, "a poor one": {false, false, false}} {
		s := aSettings(t)
		s.SystemdCgroup, s.LowerOOMScore, s.BoundHugePages = c.systemd, c.lower, c.pages
		text, err := s.render("overlayfs")
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Version  int
			OOMScore int `toml:"oom_score"`
			Plugins  map[string]map[string]any
		}
		if err := toml.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, text)
		}
		cri := got.Plugins["io.containerd.cri.v1.runtime"]
		runc := cri["containerd"].(map[string]any)["runtimes"].(map[string]any)["runc"].(map[string]any)["options"].(map[string]any)
		if got.Version != 4 || cri["restrict_oom_score_adj"] != !c.lower || (got.OOMScore < 0) != c.lower ||
			cri["disable_hugetlb_controller"] != !c.pages || runc["SystemdCgroup"] != c.systemd || runc["BinaryName"] != "/opt/podd bin/runc" {
			t.Errorf("%s: got\n%s", name, text)
		}
	}
}

func TestMachineWithoutOverlayUnpacksForTheOtherSnapshotter(t *testing.T) {
	text, err := aSettings(t).render("native")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Disabled []string `toml:"disabled_plugins"`
		Plugins  map[string]map[string]any
	}
	if err := toml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	unpack := got.Plugins["io.containerd.transfer.v1.local"]["unpack_config"].([]any)[0].(map[string]any)
	if unpack["snapshotter"] != "native" || got.Plugins["io.containerd.cri.v1.images"]["snapshotter"] != "native" {
		t.Errorf("got\n%s", text)
	}
	if slices.Contains(got.Disabled, "io.containerd.snapshotter.v1.native") {
		t.Error("the native snapshotter is needed and disabled")
	}
}

// containerd itself must know every key: it ignores none silently in a dump.
func TestContainerdAcceptsTheConfig(t *testing.T) {
	bin, err := find("", os.Getenv(EnvDir), "../build")
	if err != nil {
		t.Skip("needs the bundle: make runtime")
	}
	s := aSettings(t)
	s.BinDir = bin
	text, err := s.render("overlayfs")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(bin, "containerd"), "--config", path, "config", "dump").Output()
	if err != nil {
		t.Fatalf("containerd config dump: %v\n%s", err, out)
	}
	for _, want := range []string{
		"stats_collect_period = '10m'", "stats_collect_period = 600", "use_internal_loopback = true",
		fmt.Sprintf("max_recv_message_size = %d", pod.MaxRuntimeMessage), fmt.Sprintf("max_send_message_size = %d", pod.MaxRuntimeMessage),
		"netns_mounts_under_state_dir = true", "address = '" + Socket(s.StateDir) + "'", "sandbox = '" + PauseImage + "'",
		"config_path = '/etc/podd/certs.d'", "conf_dir = '" + s.CNIConfDir + "'", "socket_dir = '" + s.shimDir() + "'",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("containerd does not see %s in\n%s", want, out)
		}
	}
	// Nothing of the machine's other containerd may be named. (The dump shows a
	// default of imports that containerd reads only without a file of ours.)
	for _, global := range []string{"/run/containerd/containerd.sock", "'/run/containerd'", "'/var/lib/containerd'"} {
		if strings.Contains(string(out), global) {
			t.Errorf("the configuration names the global %s", global)
		}
	}
}

func TestLongStateDirIsRejectedInASentence(t *testing.T) {
	s := aSettings(t)
	s.StateDir = "/" + strings.Repeat("x", 100)
	if _, _, err := s.WriteConfig(); err == nil || !strings.Contains(err.Error(), "choose a shorter directory") {
		t.Errorf("got %v, want a sentence with a remedy", err)
	}
	s.StateDir = "/" + strings.Repeat("x", 70)
	if dir := s.shimDir(); len(dir) > maxShimDir {
		t.Errorf("shim sockets in %s: containerd takes %d characters", dir, maxShimDir)
	}
}

// Root in a pod's user namespace reaches its root file system below StateDir.
func TestDirectoriesLetContainersPass(t *testing.T) {
	for range 20 { // however often it is made
		s := aSettings(t)
		if _, _, err := s.WriteConfig(); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{s.RootDir, s.StateDir, filepath.Join(s.StateDir, "containerd")} {
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o711 {
				t.Fatalf("%s: got %v, %v, want 0711", dir, info.Mode(), err)
			}
		}
		if info, err := os.Stat(s.shimDir()); err != nil || info.Mode().Perm() != 0o700 {
			t.Fatalf("%s: got %v, %v, want 0700", s.shimDir(), info.Mode(), err)
		}
	}
}

func TestMayLowerOOMScoreLeavesTheScoreAlone(t *testing.T) {
	before, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Skip(err)
	}
	MayLowerOOMScore()
	if after, _ := os.ReadFile("/proc/self/oom_score_adj"); string(after) != string(before) {
		t.Errorf("got %q, want %q as before", after, before)
	}
	if mayLower("/nonexistent") {
		t.Error("without /proc: got yes, want no")
	}
}

func TestSearchPathHasTheBundleFirstAndSbin(t *testing.T) {
	if got, want := searchPath("/b", "/usr/bin:/x"), "/b:/usr/bin:/x:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

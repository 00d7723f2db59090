package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// oddly is a shell script that executes its arguments as nobody should start a daemon: with a
// umask of 077, signals ignored, nice 5, few open files and small files, in a directory of its own.
const oddly = `umask 077; trap "" HUP; ulimit -Sn 512; ulimit -Sf 2048; cd "$1"; shift; exec nice -n 5 "$@"`

// blocksSignals is set in the process that blocks signals, and executes its arguments.
const blocksSignals = "PODD_TEST_BLOCK_SIGNALS"

// execBlocked executes args with most signals blocked, as no shell can.
func execBlocked(args []string) error {
	if err := os.Unsetenv(blocksSignals); err != nil {
		return err
	}
	var set unix.Sigset_t
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1, unix.SIGCHLD} {
		set.Val[(sig-1)/64] |= 1 << ((sig - 1) % 64)
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return err
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return unix.Exec(program, args, os.Environ())
}

// procStatus returns a field of /proc/PROCESS/status.
func procStatus(t *testing.T, process, field string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + process + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); name == field {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no %s in %s", field, text)
	return ""
}

// TestADaemonDoesNotDependOnWhoStartedIt: what podd starts inherits all this from it.
func TestADaemonDoesNotDependOnWhoStartedIt(t *testing.T) {
	d := newDaemon(t, 0)
	odd := filepath.Join(d.dir, "odd")
	if err := os.Mkdir(odd, 0o755); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(d.dir, "made")
	d.put("made", `apiVersion: v1
kind: Pod
metadata: {name: made}
spec:
  dnsPolicy: Default
  containers:
  - {name: c, image: "`+testImage+`", volumeMounts: [{name: dir, mountPath: /d}, {name: file, mountPath: /f}]}
  volumes:
  - {name: dir, hostPath: {path: `+made+`, type: DirectoryOrCreate}}
  - {name: file, hostPath: {path: `+made+`/file, type: FileOrCreate}}
`)
	d.through = []string{os.Args[0], "sh", "-c", oddly, "sh", odd}
	t.Setenv(blocksSignals, "1")
	d.start()
	d.await("the pod runs", func() bool { return d.running() == 1 })
	pid := d.cmd.Process.Pid
	if got := procStatus(t, strconv.Itoa(pid), "Umask"); got != "0022" {
		t.Errorf("umask: got %s, want 0022", got)
	}
	if cwd, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd"); err != nil || cwd != "/" {
		t.Errorf("working directory: got %q, %v, want /", cwd, err)
	}
	d.await("signals are blocked in one thread at most", func() bool {
		threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
		if err != nil {
			t.Fatal(err)
		}
		blocking := 0
		for _, thread := range threads {
			tid, _ := strconv.Atoi(thread.Name())
			// The Go runtime has one that receives signals for the others, and a thread that is
			// just being made blocks them, too.
			mask, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + thread.Name() + "/status")
			if err == nil && !strings.Contains(string(mask), "SigBlk:\t0000000000000000\n") {
				blocking++
			}
			if raw, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil && raw != 20 {
				t.Errorf("nice of thread %d: got %d, want 0", tid, 20-raw)
			}
		}
		return blocking <= 1
	})
	for resource, least := range map[int]uint64{unix.RLIMIT_NOFILE: 1 << 20, unix.RLIMIT_FSIZE: unix.RLIM_INFINITY} {
		var got unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &got); err != nil {
			t.Fatal(err)
		}
		if got.Cur < min(least, got.Max) { // not every machine permits a higher hard limit
			t.Errorf("limit %d: got %+v, want %d, or the hard limit", resource, got, least)
		}
	}
	for path, want := range map[string]os.FileMode{made: 0o755, filepath.Join(made, "file"): 0o644} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want %v", path, info, err, want)
		}
	}
}

// TestWhatADaemonExecutesInheritsNothingOdd: podd runtime executes containerd; here a script is in
// its place.
func TestWhatADaemonExecutesInheritsNothingOdd(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("podd runtime needs root")
	}
	var out, complaint bytes.Buffer
	cmd := exec.Command(os.Args[0], "sh", "-c", oddly, "sh", t.TempDir(), os.Args[0])
	cmd.Env = append(os.Environ(), blocksSignals+"=1", resetsInherited+"=1")
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &complaint)
	}
	if got, want := out.String(), "0022 / 0 0000000000000000 "; !strings.HasPrefix(got, want) {
		t.Errorf("umask, directory, nice and blocked signals: got %q, want %q", got, want)
	}
}

// resetsInherited is set in the process that does as podd runtime, and executes a script.
const resetsInherited = "PODD_TEST_RESET_INHERITED"

func execReset() error {
	const show = `echo "$(umask) $(pwd) $(nice) $(sed -n 's/SigBlk:\t//p' /proc/self/status) $(ulimit -n)"`
	if err := resetInherited(); err != nil && !errors.Is(err, unix.EPERM) { // the hard limits, on some machines
		return err
	}
	if err := chdirRoot(); err != nil {
		return err
	}
	return unix.Exec("/bin/sh", []string{"sh", "-c", show}, os.Environ())
}

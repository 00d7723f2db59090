package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/podfs"
)

// dead is the status of a container that failed, with its termination log at
// file and its log at log.
func dead(file, log, policy string) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		ExitCode: 1, Reason: "Error", LogPath: log,
		Annotations: map[string]string{spec.AnnotationMessagePath: "/dev/termination-log", spec.AnnotationMessagePolicy: policy},
		Mounts:      []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: file}},
	}
}

func TestTerminationMessage(t *testing.T) {
	root := t.TempDir()
	c := &Client{spec: spec.Options{Dirs: podfs.Dirs{Root: root}}}
	dir := filepath.Join(root, "pods", "u1", "containers", "app")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the node's secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	fifo := filepath.Join(dir, "fifo")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	// A volume of the pod's over the path, with a symlinked directory in it.
	if err := os.Symlink(filepath.Dir(secret), filepath.Join(root, "evil")); err != nil {
		t.Fatal(err)
	}
	stamp := time.Now().Format(time.RFC3339Nano)
	log := write("0.log", stamp+" stdout F first\n"+stamp+" stderr P half \n"+stamp+" stderr F whole\n")
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "%s stdout F line %d\n", stamp, i)
	}
	long := write("1.log", many.String())

	for _, tc := range []struct{ name, file, log, policy, want string }{
		{"file", write("m", "bye"), log, "File", "bye"},
		{"long file keeps its end", write("l", strings.Repeat("x", 5000)+"end"), "", "File", strings.Repeat("x", 4093) + "end"},
		{"not UTF-8", write("b", "a\xffb"), "", "File", "a�b"},
		{"empty file", write("e", ""), log, "File", ""},
		{"missing file", filepath.Join(dir, "none"), "", "File", ""},
		{"fallback", write("e", ""), log, "FallbackToLogsOnError", "first\nhalf whole\n"},
		{"no fallback when it spoke", write("m", "bye"), log, "FallbackToLogsOnError", "bye"},
	} {
		if got := c.terminationMessage(dead(tc.file, tc.log, tc.policy)); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	if got := c.terminationMessage(dead(write("e", ""), long, "FallbackToLogsOnError")); strings.Count(got, "\n") != 80 || !strings.HasPrefix(got, "line 120\n") || !strings.HasSuffix(got, "line 199\n") {
		t.Errorf("long log: got %q", got)
	}
	for _, file := range []string{link, fifo, filepath.Join(root, "evil", "secret"), "/dev/zero", dir} {
		if got := c.terminationMessage(dead(file, "", "File")); !strings.HasPrefix(got, "Error on reading termination log") || strings.Contains(got, "the node's") {
			t.Errorf("%s: got %q, want a refusal", file, got)
		}
	}
	ok := dead(write("e", ""), log, "FallbackToLogsOnError")
	ok.ExitCode = 0
	if got := c.terminationMessage(ok); got != "" {
		t.Errorf("exit 0 falls back to logs: %q", got)
	}
	ok = dead("", log, "FallbackToLogsOnError")
	ok.Mounts = nil
	if got := c.terminationMessage(ok); got == "" {
		t.Error("no termination log at all: got nothing, want the log's end")
	}
}

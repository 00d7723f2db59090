package bundle

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// TestThePauseProfileAllowsLittle: it is a list of what is needed, and a pod's longest
// living process can neither reach a network nor change the machine with it.
func TestThePauseProfileAllowsLittle(t *testing.T) {
	dir := t.TempDir()
	path, err := WritePauseProfile(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var p specs.LinuxSeccomp // as containerd reads it
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	var names []string
	for _, s := range p.Syscalls {
		if s.Action != specs.ActAllow || len(s.Args) > 0 {
			t.Errorf("got %+v, want names that are allowed", s)
		}
		names = append(names, s.Names...)
	}
	if p.DefaultAction != specs.ActErrno || len(p.Architectures) > 0 {
		t.Errorf("got default action %s and architectures %q, want %s and the machine's own", p.DefaultAction, p.Architectures, specs.ActErrno)
	}
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) || len(names) > 80 {
		t.Errorf("%d names, %d of them different, want 80 at most, each once: %q", len(names), len(unique), names)
	}
	for _, name := range []string{"bind", "bpf", "connect", "io_uring_setup", "kill", "listen", "mount", "open_by_handle_at", "perf_event_open", "pidfd_getfd", "ptrace", "setns", "setuid", "socket", "unlinkat", "unshare", "userfaultfd"} {
		if slices.Contains(names, name) {
			t.Errorf("it allows %s", name)
		}
	}
	if !slices.Contains(StateFiles(dir), path) {
		t.Errorf("%s is not among what podd runtime stop removes", path)
	}
	if _, err := WritePauseProfile(filepath.Join(dir, "absent")); err == nil {
		t.Error("it was written where there is no directory")
	}
}

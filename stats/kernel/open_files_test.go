package kernel

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWhatProcessesHaveOpenIsCounted: two processes of a fixture, of which one has ended, and
// a limit.
func TestWhatProcessesHaveOpenIsCounted(t *testing.T) {
	for _, name := range []string{"v1.txtar", "v2.txtar"} {
		t.Run(name, func(t *testing.T) {
			r, dir := of(t, name)
			fds := filepath.Join(dir, "proc/4711/fd")
			if err := os.MkdirAll(fds, 0o755); err != nil {
				t.Fatal(err)
			}
			for i, target := range []string{"/dev/null", "socket:[17]", "pipe:[18]", "socket:[19]", "/srv/socket:x"} {
				if err := os.Symlink(target, filepath.Join(fds, strconv.Itoa(i))); err != nil {
					t.Fatal(err)
				}
			}
			limits := "Limit                     Soft Limit           Hard Limit           Units     \nMax processes             unlimited            unlimited            processes \nMax open files            1024                 524288               files     \n"
			if err := os.WriteFile(filepath.Join(dir, "proc/4711/limits"), []byte(limits), 0o644); err != nil {
				t.Fatal(err)
			}
			s, err := r.Cgroup("/pods/burstable/poda/c1", All)
			if err != nil || s.OpenFiles != 5 || s.OpenSockets != 2 || s.MaxOpenFiles != 1024 {
				t.Errorf("got %d files, %d sockets, at most %d, %v", s.OpenFiles, s.OpenSockets, s.MaxOpenFiles, err)
			}
			if s.CPU == nil || s.Memory == nil || s.Threads != 5 {
				t.Errorf("the rest of the cgroup was not read: %+v", s)
			}
			if s, err = r.Cgroup("/pods/burstable/poda/c1", Usage); err != nil || s.OpenFiles != 0 || s.MaxOpenFiles != 0 {
				t.Errorf("a summary, which does not show it, has %d files, at most %d, %v", s.OpenFiles, s.MaxOpenFiles, err)
			}
		})
	}
	if got := parseMaxOpenFiles([]byte("Max open files            unlimited            unlimited            files\n")); got != -1 {
		t.Errorf("no limit: got %d, want -1", got)
	}
}

// TestOpenFilesOfThisProcess: more than fit into one read of the directory, sockets among
// them, and no more sockets than a reading looks for.
func TestOpenFilesOfThisProcess(t *testing.T) {
	r := New(Config{})
	read := func(links int) (s Sample) {
		f := files.Get().(*file)
		defer files.Put(f)
		r.countOpenFilesOf(f, os.Getpid(), &s, &links)
		return s
	}
	before := read(maxLinks)
	for range 600 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	after := read(maxLinks)
	if files, sockets := after.OpenFiles-before.OpenFiles, after.OpenSockets-before.OpenSockets; files < 603 || files > 610 || sockets != 3 {
		t.Errorf("got %d more files, %d more sockets, want 603 and 3", files, sockets)
	}
	if bounded := read(1); bounded.OpenFiles != after.OpenFiles || bounded.OpenSockets > 1 {
		t.Errorf("with a bound of one: got %d files, %d sockets", bounded.OpenFiles, bounded.OpenSockets)
	}

	var want unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &want); err != nil {
		t.Fatal(err)
	}
	s := Sample{FirstPID: os.Getpid()}
	f := files.Get().(*file)
	defer files.Put(f)
	r.countOpenFiles(f, []byte(strings.Repeat("0\n", 2)), &s) // those of another PID namespace
	if s.MaxOpenFiles != int64(want.Cur) || s.OpenFiles != 0 {
		t.Errorf("got a limit of %d, want %d, and %d files", s.MaxOpenFiles, want.Cur, s.OpenFiles)
	}
}

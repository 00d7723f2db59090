package filewatch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func newWrites(t *testing.T, most int) *WriteWatcher {
	t.Helper()
	w, err := NewWriteWatcher(most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWhatWasWrittenIsToldOnce(t *testing.T) {
	w := newWrites(t, 2)
	a, b := t.TempDir(), t.TempDir()
	ma, mb := w.Add(a), w.Add(b)
	if ma == nil || mb == nil {
		t.Fatal("directories have no mark")
	}
	check := func(what string, wantA, wantB bool) {
		t.Helper()
		w.Poll()
		if gotA, gotB := ma.Written(), mb.Written(); gotA != wantA || gotB != wantB {
			t.Errorf("%s: got %v, %v, want %v, %v", what, gotA, gotB, wantA, wantB)
		}
	}
	check("at first", false, false)
	write(t, filepath.Join(a, "f"))
	check("after a write in the first", true, false)
	if _, err := os.ReadFile(filepath.Join(a, "f")); err != nil {
		t.Fatal(err)
	}
	check("after a read", false, false)
	write(t, filepath.Join(a, "f"))
	write(t, filepath.Join(b, "another"))
	check("after writes in both", true, true)

	if w.Add(t.TempDir()) != nil {
		t.Error("a third has a mark where two may")
	}
	ma.Remove()
	if w.Add(b) != nil {
		t.Error("the second has two marks")
	}
	if w.Add(filepath.Join(b, "another")) != nil || w.Add(filepath.Join(a, "missing")) != nil {
		t.Error("what is no directory has a mark")
	}
	if ma = w.Add(a); ma == nil {
		t.Fatal("one whose mark was removed gets none")
	}
	write(t, filepath.Join(a, "f"))
	check("after another mark", true, false)
}

// TestAllCountAsWrittenWhereTheKernelKeptNotAll: it keeps fs.inotify.max_queued_events.
func TestAllCountAsWrittenWhereTheKernelKeptNotAll(t *testing.T) {
	w := newWrites(t, 2)
	busy, quiet := t.TempDir(), t.TempDir()
	w.Add(busy)
	m := w.Add(quiet)
	var most int
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &most); err != nil || most > 1<<17 {
		t.Skipf("%d events, %v: too many to be made", most, err)
	}
	var files [2]*os.File
	for i := range files {
		if files[i], err = os.Create(filepath.Join(busy, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = files[i].Close() }() // its content does not matter
	}
	for i := range most + 2 { // by turns: two of the same are kept as one
		if _, err := files[i%2].WriteAt([]byte("x"), 0); err != nil {
			t.Fatal(err)
		}
	}
	w.Poll()
	if !m.Written() {
		t.Error("a directory does not count as written though events were lost")
	}
	w.Poll()
	if m.Written() {
		t.Error("it counts as written for good")
	}
}

// TestWhatIsWrittenWakesNobody: an instance that Go's poller waits for wakes the process at
// each write to a watched directory.
func TestWhatIsWrittenWakesNobody(t *testing.T) {
	w, err := NewWriteWatcher(1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	i, err := NewInotify() // the poller waits for this one
	if err != nil {
		t.Fatal(err)
	}
	defer i.File.Close()
	polled := func(fd int) bool {
		infos, err := filepath.Glob("/proc/self/fdinfo/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			text, _ := os.ReadFile(info) // one may be closed meanwhile
			for _, line := range strings.Split(string(text), "\n") {
				if f := strings.Fields(line); len(f) > 1 && f[0] == "tfd:" && f[1] == strconv.Itoa(fd) {
					return true
				}
			}
		}
		return false
	}
	if polled(w.fd) || !polled(i.fd) {
		t.Errorf("Go's poller waits for Writes: %t, for Inotify: %t; want the second alone", polled(w.fd), polled(i.fd))
	}
}

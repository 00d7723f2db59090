package filewatch

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// instances are the inotify instances of this process.
func instances(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		if target, _ := os.Readlink("/proc/self/fd/" + fd.Name()); target == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

func hears(t *testing.T, what string, s *Subscription) {
	t.Helper()
	select {
	case _, ok := <-s.Changed:
		if !ok {
			t.Errorf("%s: the subscription has ended", what)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: not reported", what)
	}
}

func TestSubscribersShareOneInstance(t *testing.T) {
	before := instances(t)
	var dirs Dirs
	root := t.TempDir()
	var all []*Subscription
	for i := range 300 {
		dir := filepath.Join(root, fmt.Sprint(i/2)) // two of a directory
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s, err := dirs.Subscribe(dir + "/")
		if err != nil {
			t.Fatalf("subscription %d: %v", i, err)
		}
		all = append(all, s)
	}
	if n := instances(t) - before; n != 1 {
		t.Errorf("%d subscribers have %d inotify instances, want one", len(all), n)
	}
	for i := range all {
		if i%2 == 0 {
			if err := os.WriteFile(filepath.Join(all[i].dir, "f"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		hears(t, fmt.Sprint("subscription ", i), all[i])
	}
	for i, s := range all {
		if i%2 == 1 {
			s.Close()
		}
	}
	// The other of each directory goes on.
	for i := 0; i < len(all); i += 2 {
		for len(all[i].Changed) > 0 {
			<-all[i].Changed
		}
		if err := os.WriteFile(filepath.Join(all[i].dir, "g"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		hears(t, fmt.Sprint("subscription ", i, " alone"), all[i])
		all[i].Close()
	}
	if n := instances(t) - before; n != 0 {
		t.Errorf("without subscribers: %d inotify instances", n)
	}
}

func TestADirectoryThatIsAnotherIsWatchedAnew(t *testing.T) {
	var dirs Dirs
	dir := filepath.Join(t.TempDir(), "d")
	if _, err := dirs.Subscribe(dir); err == nil {
		t.Error("a directory that is not there: no error")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	old, err := dirs.Subscribe(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	hears(t, "its removal", old)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := dirs.Subscribe(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hears(t, "a file in the new one", s)
}

func TestAnInstanceThatFailsEndsItsSubscriptionsAndTheNextGetsAnother(t *testing.T) {
	var dirs Dirs
	a, err := dirs.Subscribe(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := dirs.watcher.Close(); err != nil { // as a read that fails
		t.Fatal(err)
	}
	for ended := false; !ended; {
		select {
		case _, ok := <-a.Changed:
			ended = !ok
		case <-time.After(30 * time.Second):
			t.Fatal("the subscriber is not told")
		}
	}
	a.Close()
	dir := t.TempDir()
	b, err := dirs.Subscribe(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hears(t, "a file", b)
}

func TestSubscribersComeAndGo(t *testing.T) {
	before := instances(t)
	var dirs Dirs
	shared := t.TempDir()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for n := range 50 {
				s, err := dirs.Subscribe(shared)
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(shared, fmt.Sprint(i, "-", n)), nil, 0o600); err != nil {
					t.Error(err)
				}
				hears(t, "a file", s)
				s.Close()
			}
		})
	}
	all.Wait()
	if n := instances(t) - before; n != 0 {
		t.Errorf("%d inotify instances are left", n)
	}
}

package archive

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestWhoAsksDoesNotWaitForTheDisk: pods ask where an image comes from while a record is
// written.
func TestWhoAsksDoesNotWaitForTheDisk(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := loadState(filepath.Join(dir, "state.json"))
	a, b := file("a.tar"), file("b.tar")
	if err := s.put(a, record{Refs: []string{"localhost/a:1"}}); err != nil {
		t.Fatal(err)
	}
	writing, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error)
	s.write = func(f stateFile) error {
		close(writing)
		<-goOn
		return s.file.Write(f)
	}
	go func() { done <- s.put(b, record{Refs: []string{"localhost/b:1"}}) }()
	<-writing
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if refs := s.refs(); !s.hasImage("localhost/a:1") || !slices.Contains(refs, "localhost/a:1") {
			t.Errorf("got %v, want a's image among them", refs)
		}
	}()
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Error("who asks waits for the disk")
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	s.write = s.file.Write
	if err := s.put(b, record{Refs: []string{"localhost/b:1"}}); err != nil {
		t.Fatal(err)
	}
	if again := loadState(s.file.Path); again.hasImage("localhost/a:1") || !again.hasImage("localhost/b:1") {
		t.Errorf("on the disk: got %v, want b's alone", again.byPath)
	}
}

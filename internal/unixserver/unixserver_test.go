package unixserver

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
)

// broken is a listener that fails.
type broken struct{ net.Listener }

var errBroken = errors.New("broken")

func (broken) Accept() (net.Conn, error) { return nil, errBroken }

func TestAServerThatIsStoppedIsNoError(t *testing.T) {
	dir, err := os.MkdirTemp("", "us") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listen := func() net.Listener {
		t.Helper()
		l, err := Listen(filepath.Join(dir, "s.sock"))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	before := grpc.NewServer()
	before.Stop()
	if err := Serve(before, listen()); err != nil {
		t.Errorf("stopped before it serves: got %v", err)
	}
	while, done := grpc.NewServer(), make(chan error)
	l := listen()
	go func() { done <- Serve(while, l) }()
	c, err := net.Dial("unix", filepath.Join(dir, "s.sock"))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	while.Stop()
	if err := <-done; err != nil {
		t.Errorf("stopped while it serves: got %v", err)
	}
	fails := grpc.NewServer()
	defer fails.Stop()
	if err := Serve(fails, broken{listen()}); !errors.Is(err, errBroken) {
		t.Errorf("a listener that fails: got %v", err)
	}
}

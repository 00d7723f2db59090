package cri_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"podd/cri"
	"podd/cri/critest"
)

// middleman passes a runtime's connections on, and can stand still: it then reads no
// more of the connections that it has, and writes nothing to them.
type middleman struct {
	socket string

	mu    sync.Mutex
	still chan struct{} // what the next connections stop at; guarded by mu
	dead  bool          // no connection is answered any more; guarded by mu
	made  int           // guarded by mu
	conns []net.Conn    // kept: one that nobody refers to is closed; guarded by mu
}

func newMiddleman(t *testing.T, runtime string) *middleman {
	m := &middleman{socket: filepath.Join(t.TempDir(), "m.sock"), still: make(chan struct{})}
	l, err := net.Listen("unix", m.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.made++
			still, dead := m.still, m.dead
			m.mu.Unlock()
			if dead {
				continue // accepted, and never read
			}
			to, err := net.Dial("unix", strings.TrimPrefix(runtime, "unix://"))
			if err != nil {
				t.Error(err)
				return
			}
			m.mu.Lock()
			m.conns = append(m.conns, conn, to)
			m.mu.Unlock()
			go pass(to, conn, still)
			go pass(conn, to, still)
		}
	}()
	return m
}

// pass copies until still is closed.
func pass(to io.Writer, from io.Reader, still <-chan struct{}) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		select {
		case <-still:
			return
		default:
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// stop has the connections so far stand still.
func (m *middleman) stop(dead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.still)
	m.still, m.dead = make(chan struct{}), dead
}

func TestAConnectionThatStandsStillIsReplacedAndItsCallsAreMadeAgain(t *testing.T) {
	t.Parallel() // it waits for seconds in which nothing moves
	srv := critest.New(t)
	m := newMiddleman(t, srv.Endpoint())
	reg := prometheus.NewRegistry()
	conn, err := cri.Connect("unix://"+m.socket, 0, quiet, reg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := cri.NewClient(conn, (&rig{}).opts)
	m.stop(false)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := client.AskSandbox(t.Context(), "none"); err != nil {
				t.Errorf("got %v, want an answer by the next connection", err)
			}
		})
	}
	wg.Wait()
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP podd_runtime_connections_replaced_total Connections to the container runtime that were replaced because nothing moved on them while the runtime answered on a new one.
# TYPE podd_runtime_connections_replaced_total counter
podd_runtime_connections_replaced_total 1
`), "podd_runtime_connections_replaced_total"); err != nil {
		t.Error(err)
	}
}

func TestARuntimeThatHangsKeepsItsConnection(t *testing.T) {
	t.Parallel()
	srv := critest.New(t)
	m := newMiddleman(t, srv.Endpoint())
	conn := connect(t, "unix://"+m.socket, 0, quiet)
	client := cri.NewClient(conn, (&rig{}).opts)
	m.stop(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- client.AskSandbox(ctx, "none") }()
	// Others were tried, and the calls' own connection was not dropped for them: it
	// would have been dialled anew.
	eventually(t, "a second connection is tried after a first", func() bool { return m.count() >= 3 })
	if conn.Dropped() != 0 {
		t.Errorf("got %d connections dropped, want none", conn.Dropped())
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want no answer", err)
	}
}

func TestALongCallIsNoSignOfAConnectionThatStandsStill(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	release := r.srv.Hang("StopPodSandbox")
	done := make(chan error)
	go func() { done <- r.StopSandbox(t.Context(), s.ID) }()
	r.untilLookedAt(t)
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := r.Dropped(); n != 0 {
		t.Errorf("got %d dropped connections, want none", n)
	}
}

func (m *middleman) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made
}

// untilLookedAt waits until the watch has asked the runtime for a sign of life.
func (r *rig) untilLookedAt(t *testing.T) {
	t.Helper()
	before := r.srv.Count("Version")
	eventually(t, "a look at the connection", func() bool { return r.srv.Count("Version") > before })
}

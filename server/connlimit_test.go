package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeConn is a connection from an address that notes whether it was closed.
type fakeConn struct {
	net.Conn
	from   string
	closed atomic.Bool
}

func (c *fakeConn) RemoteAddr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", c.from)
	if err != nil {
		panic(err)
	}
	return addr
}
func (c *fakeConn) Write(p []byte) (int, error) { return len(p), nil }
func (c *fakeConn) Close() error                { c.closed.Store(true); return nil }

// addConns has n connections of an address come, a millisecond apart.
func addConns(d *connLimiter, address string, n int) (all []*limitedConn) {
	for i := range n {
		time.Sleep(time.Millisecond)
		all = append(all, d.add(&fakeConn{from: fmt.Sprintf("%s:%d", address, 1000+i)}))
	}
	return all
}

func open(conns []*limitedConn) (n int) {
	for _, g := range conns {
		if !g.Conn.(*fakeConn).closed.Load() {
			n++
		}
	}
	return n
}

func TestStrangersOnlyDisplaceTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newConnLimiter(connLimits{unauthenticated: 20, perAddress: 8, authenticated: 2})
		defer d.closeAll()
		lone := addConns(d, "192.0.2.1", 1)
		flood := addConns(d, "192.0.2.2", 100)
		if open(lone) != 1 || open(flood) != 8 || open(flood[92:]) != 8 {
			t.Errorf("one address: got %d of another's and %d of its own open, %d of them the newest; want 1, 8, 8", open(lone), open(flood), open(flood[92:]))
		}
		for i := range 8 { // each has few, and together they have too many
			addConns(d, fmt.Sprintf("192.0.2.%d", 10+i), 2)
		}
		if open(lone) != 1 {
			t.Error("many addresses: the one with a single connection lost it")
		}
		if n := len(d.conns); n != 20 {
			t.Errorf("got %d connections, want 20", n)
		}
		d = newConnLimiter(connLimits{unauthenticated: 20, perAddress: 8, authenticated: 2})
		defer d.closeAll()
		six := addConns(d, "[2001:db8::1]", 4)
		six = append(six, addConns(d, "[2001:db8::2]", 8)...)
		if n := open(six); n != 8 {
			t.Errorf("a host with many addresses of one network: got %d open, want 8", n)
		}
	})
}

func TestTheStalestConnectionGivesWayFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newConnLimiter(connLimits{unauthenticated: 3})
		defer d.closeAll()
		all := addConns(d, "127.0.0.1", 3)
		time.Sleep(time.Second)
		if _, err := all[0].Write([]byte("a part of an answer")); err != nil {
			t.Fatal(err)
		}
		addConns(d, "127.0.0.1", 1)
		if all[0].Conn.(*fakeConn).closed.Load() || !all[1].Conn.(*fakeConn).closed.Load() || all[2].Conn.(*fakeConn).closed.Load() {
			t.Errorf("got %d open, want the second one closed", open(all))
		}
	})
}

// TestAConnectionToAPlainPortHasItsTime: those who connect again and again wait.
func TestAConnectionToAPlainPortHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newConnLimiter(connLimits{unauthenticated: 2})
		defer d.closeAll()
		addConns(d, "127.0.0.1", 2)
		began := time.Now()
		d.awaitRoom()
		if waited := time.Since(began); waited < minConnTime-3*time.Millisecond || waited > minConnTime {
			t.Errorf("got %v, want the rest of %v", waited, minConnTime)
		}
		all := addConns(d, "127.0.0.1", 2)
		go func() {
			time.Sleep(minConnTime / 10)
			_ = all[1].Close()
		}()
		began = time.Now()
		d.awaitRoom()
		if waited := time.Since(began); waited != minConnTime/10 {
			t.Errorf("one that ends by itself makes room: waited %v, want %v", waited, minConnTime/10)
		}
	})
}

func TestWhoIsKnownHasPlacesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newConnLimiter(connLimits{unauthenticated: 4, perAddress: 4, authenticated: 3})
		defer d.closeAll()
		of := func(g *limitedConn) context.Context { return connContext(t.Context(), g) }
		known := addConns(d, "192.0.2.1", 3)
		for _, g := range known {
			Admit(of(g), true)
			d.connState(g, http.StateActive)
		}
		addConns(d, "192.0.2.1", 20) // unauthenticated ones of the same address: a proxy's
		if open(known) != 3 {
			t.Errorf("strangers closed %d of those that are known", 3-open(known))
		}
		one := addConns(d, "192.0.2.9", 1)[0]
		if d.markAuthenticated(one) {
			t.Error("all places are taken by busy ones, and there was another")
		}
		d.connState(known[1], http.StateIdle)
		if !d.markAuthenticated(one) || !known[1].Conn.(*fakeConn).closed.Load() || open(known) != 2 {
			t.Errorf("one is idle: it did not give way")
		}
		time.Sleep(time.Hour)
		if open(known) != 2 || one.Conn.(*fakeConn).closed.Load() {
			t.Error("a known one was closed for its age")
		}
	})
}

func TestAStrangersConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newConnLimiter(connLimits{unauthenticated: 4, perAddress: 4, authenticated: 3})
		defer d.closeAll()
		all := addConns(d, "192.0.2.1", 3)
		Reject(connContext(t.Context(), all[0]))
		time.Sleep(rejectedTimeout / 2)
		Reject(connContext(t.Context(), all[0])) // another refusal gives it no more time
		Admit(connContext(t.Context(), all[1]), false)
		time.Sleep(rejectedTimeout/2 + time.Millisecond)
		if !all[0].Conn.(*fakeConn).closed.Load() || open(all) != 2 {
			t.Errorf("after a refusal: got %d open, want the refused one closed", open(all))
		}
		time.Sleep(admitTimeout)
		if !all[2].Conn.(*fakeConn).closed.Load() || open(all) != 1 {
			t.Errorf("after %v: got %d open, want the one that was let in", admitTimeout, open(all))
		}
	})
}

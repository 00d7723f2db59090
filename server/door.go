package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"podd/internal/sender"
	"podd/internal/wake"
)

// bounds limits the connections to one port.
type bounds struct {
	// strangers is how many connections from unauthenticated peers may be open, and share how
	// many of them may come from one address; a share of 0 means no limit per address.
	strangers, share int
	// known is how many connections from authenticated peers may be open in addition. It is 0
	// on a port that authenticates nobody.
	known int
}

var (
	// kubeletBounds: an apiserver, or a proxy in front of it, is one address for a whole
	// cluster. It holds up to maxSessions sessions and follows up to maxFollowers logs;
	// maxConnections more leave some room.
	kubeletBounds = bounds{strangers: maxConnections, share: 16, known: maxSessions + maxFollowers + maxConnections}
	// localBounds has no share per address: every client is 127.0.0.1.
	localBounds = bounds{strangers: maxConnections}
)

const (
	// handshakeTimeout bounds the TLS handshake.
	handshakeTimeout = 5 * time.Second
	// strangerTimeout is how long a connection may stay open before one of its requests is
	// admitted.
	strangerTimeout = 30 * time.Second
	// leastTime is how long every connection to a plain port may stay without progress, even if
	// others wait. It is many times what a health check needs.
	leastTime = time.Second
	// refusedTimeout is how long an unauthenticated client has to read its refusal.
	refusedTimeout = time.Second
)

// door counts the connections of a port. It admits every new connection sooner or later. When
// there are too many from unauthenticated peers, busy or not, the one that has gone longest
// without progress is closed. It is taken from the new connection's address if that address
// exceeds its share, and otherwise from the address with the most connections, so a client that
// holds connections open displaces only its own. An authenticated connection moves to a larger
// limit of its own, where only idle connections are closed.
type door struct {
	bounds bounds

	left wake.Signal // notified when one has gone

	mu     sync.Mutex
	guests map[*guest]struct{} // guarded by mu
}

// guest is a connection, below TLS.
type guest struct {
	net.Conn
	door    *door
	address netip.Prefix
	// progress is when the connection was accepted or last took part of a response, in
	// nanoseconds since the process started. Bytes that the client sends do not count: it could
	// send them one at a time.
	progress atomic.Int64
	patience *time.Timer // closes the connection unless it is admitted first

	known, idle, dismissed bool // guarded by door.mu
}

func newDoor(b bounds) *door {
	return &door{bounds: b, left: wake.New(), guests: map[*guest]struct{}{}}
}

var processStart = time.Now()

func (g *guest) touch() { g.progress.Store(int64(time.Since(processStart))) }

// Write implements net.Conn.
func (g *guest) Write(p []byte) (int, error) {
	n, err := g.Conn.Write(p)
	if n > 0 {
		g.touch()
	}
	return n, err
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.door.mu.Lock()
	delete(g.door.guests, g)
	g.door.mu.Unlock()
	g.patience.Stop()
	g.door.left.Notify()
	return g.Conn.Close()
}

// enter counts a new connection and closes the one that must make room for it.
func (d *door) enter(conn net.Conn) *guest {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // a unix socket's peers share one address
	g := &guest{Conn: conn, door: d, address: sender.Of(from.Addr()), idle: true}
	g.touch()
	g.patience = time.AfterFunc(strangerTimeout, func() { _ = g.Close() })
	if d.bounds.known == 0 {
		g.patience.Stop() // this port does not authenticate: the server's own timeouts suffice
	}
	d.mu.Lock()
	victim := d.victimLocked(g.address)
	delete(d.guests, victim)
	d.guests[g] = struct{}{}
	d.mu.Unlock()
	if victim != nil {
		_ = victim.Close() // below TLS: there is nothing to wait for
	}
	return g
}

// victimLocked returns the unauthenticated connection to close for a new one from address, or
// nil if there is room.
func (d *door) victimLocked(address netip.Prefix) *guest {
	of := map[netip.Prefix][]*guest{}
	strangers := 0
	for g := range d.guests {
		if !g.known {
			strangers++
			of[g.address] = append(of[g.address], g)
		}
	}
	switch {
	case d.bounds.share > 0 && len(of[address]) >= d.bounds.share:
		return stalest(of[address])
	case strangers < d.bounds.strangers:
		return nil
	}
	most := of[address]
	for _, guests := range of {
		if len(guests) > len(most) {
			most = guests
		}
	}
	return stalest(most)
}

// stalest returns the connection that has gone longest without progress.
func stalest(guests []*guest) *guest {
	if len(guests) == 0 {
		return nil
	}
	return slices.MinFunc(guests, func(a, b *guest) int { return cmp.Compare(a.progress.Load(), b.progress.Load()) })
}

// welcome marks a connection's peer as authenticated. It returns false if busy connections hold
// all the places of authenticated peers.
func (d *door) welcome(g *guest) bool {
	d.mu.Lock()
	if g.known {
		d.mu.Unlock()
		return true
	}
	known := 0
	var idle []*guest
	for other := range d.guests {
		if other.known {
			known++
			if other.idle {
				idle = append(idle, other)
			}
		}
	}
	var victim *guest
	if known >= d.bounds.known {
		if victim = stalest(idle); victim == nil {
			d.mu.Unlock()
			return false
		}
		delete(d.guests, victim)
	}
	g.known = true
	d.mu.Unlock()
	g.patience.Stop()
	if victim != nil {
		_ = victim.Close()
	}
	return true
}

// note is an http.Server.ConnState hook.
func (d *door) note(conn net.Conn, state http.ConnState) {
	g := guestOf(conn)
	if g == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	g.idle = state == http.StateNew || state == http.StateIdle
}

// closeAll closes all open connections, including those still in their handshake.
func (d *door) closeAll() {
	d.mu.Lock()
	guests := make([]*guest, 0, len(d.guests))
	for g := range d.guests {
		guests = append(guests, g)
	}
	d.mu.Unlock()
	for _, g := range guests {
		_ = g.Close()
	}
}

// guestOf returns the guest below a connection, or nil on the socket.
func guestOf(conn net.Conn) *guest {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	g, _ := conn.(*guest)
	return g
}

type guestKey struct{}

// connContext is an http.Server.ConnContext hook. It lets Admit and Dismiss find the
// connection.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if g := guestOf(conn); g != nil {
		return context.WithValue(ctx, guestKey{}, g)
	}
	return ctx
}

// Admit reports that the request with this context was admitted. If the request was
// authenticated, its connection moves to the larger limit.
func Admit(ctx context.Context, authenticated bool) {
	g, ok := ctx.Value(guestKey{}).(*guest)
	switch {
	case !ok:
	case authenticated:
		g.door.welcome(g)
	default:
		g.patience.Stop()
	}
}

// Dismiss reports that the request with this context was refused because its sender is
// unauthenticated. The connection closes after refusedTimeout, whether or not the client has
// read the refusal by then.
func Dismiss(ctx context.Context) {
	g, ok := ctx.Value(guestKey{}).(*guest)
	if !ok {
		return
	}
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	if !g.known && !g.dismissed {
		g.dismissed = true
		g.patience.Reset(refusedTimeout)
	}
}

// doorListener passes each accepted connection through a door. It neither handshakes nor blocks
// on a peer.
type doorListener struct {
	net.Listener
	door *door
}

// Accept implements net.Listener.
func (l doorListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.door.await()
	return l.door.enter(conn), nil
}

// await waits on a port where all clients share one address. It returns once the connection
// that would be closed next has had leastTime. Otherwise a client that reconnects in a loop
// could displace a health check that is being answered. Later connections wait in the kernel's
// queue, in order of arrival.
func (d *door) await() {
	if d.bounds.share > 0 {
		return
	}
	for {
		d.mu.Lock()
		full := len(d.guests) >= d.bounds.strangers
		var left time.Duration
		if full {
			guests := make([]*guest, 0, len(d.guests))
			for g := range d.guests {
				guests = append(guests, g)
			}
			left = leastTime - (time.Since(processStart) - time.Duration(stalest(guests).progress.Load()))
		}
		d.mu.Unlock()
		if !full || left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-d.left: // a connection closed by itself
		case <-timer.C:
		}
		timer.Stop()
	}
}

// split accepts TLS connections. After the handshake it passes each one to known if the client
// showed a certificate that trusts accepts, and otherwise to stranger.
type split struct {
	from            net.Listener
	config          *tls.Config
	trusts          func([]*x509.Certificate) bool
	known, stranger *passed
}

// run accepts until the listener is closed, and returns the error that ended it.
func (s *split) run() error {
	defer s.known.Close()
	defer s.stranger.Close()
	for {
		conn, err := s.from.Accept()
		if err != nil {
			return err
		}
		go s.pass(conn)
	}
}

func (s *split) pass(conn net.Conn) {
	secure := tls.Server(conn, s.config)
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return
	}
	to := s.stranger
	if certificates := secure.ConnectionState().PeerCertificates; len(certificates) > 0 && s.trusts(certificates) {
		if g := guestOf(secure); g != nil && !g.door.welcome(g) {
			_ = conn.Close()
			return
		}
		to = s.known
	}
	to.give(secure)
}

// passed is a listener that gets its connections from split.
type passed struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

func newPassed(addr net.Addr) *passed {
	return &passed{conns: make(chan net.Conn), closed: make(chan struct{}), addr: addr}
}

func (p *passed) give(conn net.Conn) {
	select {
	case p.conns <- conn:
	case <-p.closed:
		_ = guestOf(conn).Close()
	}
}

// Accept implements net.Listener.
func (p *passed) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *passed) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *passed) Addr() net.Addr { return p.addr }

// isClosed reports whether a listener or a server ended because it was closed on purpose.
func isClosed(err error) bool {
	return errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed)
}

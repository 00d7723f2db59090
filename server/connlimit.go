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

// connLimits limits the connections to one port.
type connLimits struct {
	// unauthenticated is how many connections from unauthenticated peers may be open, and
	// perAddress how many of them may come from one address; 0 means no limit per address.
	unauthenticated, perAddress int
	// authenticated is how many connections from authenticated peers may be open in addition.
	// It is 0 on a port that authenticates nobody.
	authenticated int
}

var (
	// kubeletConnLimits: an apiserver, or a proxy in front of it, is one address for a whole
	// cluster. It holds up to maxSessions sessions and follows up to maxFollowers logs;
	// maxConnections more leave some room.
	kubeletConnLimits = connLimits{unauthenticated: maxConnections, perAddress: 16, authenticated: maxSessions + maxFollowers + maxConnections}
	// localConnLimits has no limit per address: every client is 127.0.0.1.
	localConnLimits = connLimits{unauthenticated: maxConnections}
)

const (
	// handshakeTimeout bounds the TLS handshake.
	handshakeTimeout = 5 * time.Second
	// admitTimeout is how long a connection may stay open before one of its requests is
	// admitted.
	admitTimeout = 30 * time.Second
	// minConnTime is how long every connection to a plain port may stay without progress, even if
	// others wait. It is many times what a health check needs.
	minConnTime = time.Second
	// rejectedTimeout is how long an unauthenticated client has to read its refusal.
	rejectedTimeout = time.Second
)

// connLimiter limits the connections of a port. It admits every new connection sooner or later.
// When there are too many from unauthenticated peers, busy or not, the one that has gone
// longest without progress is closed. It is taken from the new connection's address if that
// address exceeds its share, and otherwise from the address with the most connections, so a
// client that holds connections open displaces only its own. An authenticated connection moves
// to a larger limit of its own, where only idle connections are closed.
type connLimiter struct {
	limits connLimits

	connClosed wake.Signal // notified when one has gone

	mu    sync.Mutex
	conns map[*limitedConn]struct{} // guarded by mu
}

// limitedConn is a connection, below TLS.
type limitedConn struct {
	net.Conn
	limiter *connLimiter
	address netip.Prefix
	// lastProgress is when the connection was accepted or last took part of a response, in
	// nanoseconds since the process started. Bytes that the client sends do not count: it could
	// send them one at a time.
	lastProgress atomic.Int64
	admitTimer   *time.Timer // closes the connection unless it is admitted first

	authenticated, idle, rejected bool // guarded by limiter.mu
}

func newConnLimiter(b connLimits) *connLimiter {
	return &connLimiter{limits: b, connClosed: wake.New(), conns: map[*limitedConn]struct{}{}}
}

var processStart = time.Now()

func (g *limitedConn) touch() { g.lastProgress.Store(int64(time.Since(processStart))) }

// Write implements net.Conn.
func (g *limitedConn) Write(p []byte) (int, error) {
	n, err := g.Conn.Write(p)
	if n > 0 {
		g.touch()
	}
	return n, err
}

// Close implements net.Conn.
func (g *limitedConn) Close() error {
	g.limiter.mu.Lock()
	delete(g.limiter.conns, g)
	g.limiter.mu.Unlock()
	g.admitTimer.Stop()
	g.limiter.connClosed.Notify()
	return g.Conn.Close()
}

// add counts a new connection and closes the one that must make room for it.
func (d *connLimiter) add(conn net.Conn) *limitedConn {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // a unix socket's peers share one address
	g := &limitedConn{Conn: conn, limiter: d, address: sender.Prefix(from.Addr()), idle: true}
	g.touch()
	g.admitTimer = time.AfterFunc(admitTimeout, func() { _ = g.Close() })
	if d.limits.authenticated == 0 {
		g.admitTimer.Stop() // this port does not authenticate: the server's own timeouts suffice
	}
	d.mu.Lock()
	victim := d.victimLocked(g.address)
	delete(d.conns, victim)
	d.conns[g] = struct{}{}
	d.mu.Unlock()
	if victim != nil {
		_ = victim.Close() // below TLS: there is nothing to wait for
	}
	return g
}

// victimLocked returns the unauthenticated connection to close for a new one from address, or
// nil if there is room.
func (d *connLimiter) victimLocked(address netip.Prefix) *limitedConn {
	of := map[netip.Prefix][]*limitedConn{}
	unauthenticated := 0
	for g := range d.conns {
		if !g.authenticated {
			unauthenticated++
			of[g.address] = append(of[g.address], g)
		}
	}
	switch {
	case d.limits.perAddress > 0 && len(of[address]) >= d.limits.perAddress:
		return stalest(of[address])
	case unauthenticated < d.limits.unauthenticated:
		return nil
	}
	most := of[address]
	for _, conns := range of {
		if len(conns) > len(most) {
			most = conns
		}
	}
	return stalest(most)
}

// stalest returns the connection that has gone longest without progress.
func stalest(conns []*limitedConn) *limitedConn {
	if len(conns) == 0 {
		return nil
	}
	return slices.MinFunc(conns, func(a, b *limitedConn) int { return cmp.Compare(a.lastProgress.Load(), b.lastProgress.Load()) })
}

// markAuthenticated marks a connection's peer as authenticated. It returns false if busy
// connections hold all the places of authenticated peers.
func (d *connLimiter) markAuthenticated(g *limitedConn) bool {
	d.mu.Lock()
	if g.authenticated {
		d.mu.Unlock()
		return true
	}
	authenticated := 0
	var idle []*limitedConn
	for other := range d.conns {
		if other.authenticated {
			authenticated++
			if other.idle {
				idle = append(idle, other)
			}
		}
	}
	var victim *limitedConn
	if authenticated >= d.limits.authenticated {
		if victim = stalest(idle); victim == nil {
			d.mu.Unlock()
			return false
		}
		delete(d.conns, victim)
	}
	g.authenticated = true
	d.mu.Unlock()
	g.admitTimer.Stop()
	if victim != nil {
		_ = victim.Close()
	}
	return true
}

// connState is an http.Server.ConnState hook.
func (d *connLimiter) connState(conn net.Conn, state http.ConnState) {
	g := limitedConnOf(conn)
	if g == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	g.idle = state == http.StateNew || state == http.StateIdle
}

// closeAll closes all open connections, including those still in their handshake.
func (d *connLimiter) closeAll() {
	d.mu.Lock()
	conns := make([]*limitedConn, 0, len(d.conns))
	for g := range d.conns {
		conns = append(conns, g)
	}
	d.mu.Unlock()
	for _, g := range conns {
		_ = g.Close()
	}
}

// limitedConnOf returns the limitedConn below a connection, or nil on the socket.
func limitedConnOf(conn net.Conn) *limitedConn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	g, _ := conn.(*limitedConn)
	return g
}

type limitedConnKey struct{}

// connContext is an http.Server.ConnContext hook. It lets Admit and Reject find the
// connection.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if g := limitedConnOf(conn); g != nil {
		return context.WithValue(ctx, limitedConnKey{}, g)
	}
	return ctx
}

// Admit reports that the request with this context was admitted. If the request was
// authenticated, its connection moves to the larger limit.
func Admit(ctx context.Context, authenticated bool) {
	g, ok := ctx.Value(limitedConnKey{}).(*limitedConn)
	switch {
	case !ok:
	case authenticated:
		g.limiter.markAuthenticated(g)
	default:
		g.admitTimer.Stop()
	}
}

// Reject reports that the request with this context was rejected because its sender is
// unauthenticated. The connection closes after rejectedTimeout, whether or not the client has
// read the refusal by then.
func Reject(ctx context.Context) {
	g, ok := ctx.Value(limitedConnKey{}).(*limitedConn)
	if !ok {
		return
	}
	g.limiter.mu.Lock()
	defer g.limiter.mu.Unlock()
	if !g.authenticated && !g.rejected {
		g.rejected = true
		g.admitTimer.Reset(rejectedTimeout)
	}
}

// limitedListener passes each accepted connection to a connLimiter. It neither handshakes nor
// blocks on a peer.
type limitedListener struct {
	net.Listener
	limiter *connLimiter
}

// Accept implements net.Listener.
func (l limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.limiter.awaitRoom()
	return l.limiter.add(conn), nil
}

// awaitRoom waits on a port where all clients share one address. It returns once the connection
// that would be closed next has had minConnTime. Otherwise a client that reconnects in a loop
// could displace a health check that is being answered. Later connections wait in the kernel's
// queue, in order of arrival.
func (d *connLimiter) awaitRoom() {
	if d.limits.perAddress > 0 {
		return
	}
	for {
		d.mu.Lock()
		full := len(d.conns) >= d.limits.unauthenticated
		var left time.Duration
		if full {
			conns := make([]*limitedConn, 0, len(d.conns))
			for g := range d.conns {
				conns = append(conns, g)
			}
			left = minConnTime - (time.Since(processStart) - time.Duration(stalest(conns).lastProgress.Load()))
		}
		d.mu.Unlock()
		if !full || left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-d.connClosed: // a connection closed by itself
		case <-timer.C:
		}
		timer.Stop()
	}
}

// tlsSplitter accepts TLS connections. After the handshake it passes each one to trusted if the
// client showed a certificate that trusts accepts, and otherwise to untrusted.
type tlsSplitter struct {
	from               net.Listener
	config             *tls.Config
	trusts             func([]*x509.Certificate) bool
	trusted, untrusted *connListener
}

// run accepts until the listener is closed, and returns the error that ended it.
func (s *tlsSplitter) run() error {
	defer s.trusted.Close()
	defer s.untrusted.Close()
	for {
		conn, err := s.from.Accept()
		if err != nil {
			return err
		}
		go s.handshake(conn)
	}
}

func (s *tlsSplitter) handshake(conn net.Conn) {
	secure := tls.Server(conn, s.config)
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return
	}
	to := s.untrusted
	if certificates := secure.ConnectionState().PeerCertificates; len(certificates) > 0 && s.trusts(certificates) {
		if g := limitedConnOf(secure); g != nil && !g.limiter.markAuthenticated(g) {
			_ = conn.Close()
			return
		}
		to = s.trusted
	}
	to.deliver(secure)
}

// connListener is a listener that gets its connections from a tlsSplitter.
type connListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

func newConnListener(addr net.Addr) *connListener {
	return &connListener{conns: make(chan net.Conn), closed: make(chan struct{}), addr: addr}
}

func (p *connListener) deliver(conn net.Conn) {
	select {
	case p.conns <- conn:
	case <-p.closed:
		_ = limitedConnOf(conn).Close()
	}
}

// Accept implements net.Listener.
func (p *connListener) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *connListener) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *connListener) Addr() net.Addr { return p.addr }

// isClosed reports whether a listener or a server ended because it was closed on purpose.
func isClosed(err error) bool {
	return errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed)
}

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

// bounds are those of the connections of one port.
type bounds struct {
	// strangers is how many connections may be open whose peers are not known, share how
	// many of them of one address; 0 for all.
	strangers, share int
	// known is how many may be open besides whose peers are; 0 where nobody ever is.
	known int
}

var (
	// kubeletBounds: an apiserver, or a proxy before it, is one address for a whole cluster;
	// it has maxSessions sessions, maxFollowers logs that are followed, and room besides.
	kubeletBounds = bounds{strangers: maxConnections, share: 16, known: maxSessions + maxFollowers + maxConnections}
	// localBounds: everybody is 127.0.0.1.
	localBounds = bounds{strangers: maxConnections}
)

const (
	// handshakeTimeout bounds the TLS handshake.
	handshakeTimeout = 5 * time.Second
	// strangerTimeout is how long a connection may go without a request that was let in.
	strangerTimeout = 30 * time.Second
	// leastTime is what every connection to a plain port has without progress, even if others
	// wait: many times what the answer to a health check takes.
	leastTime = time.Second
	// refusedTimeout is how long a client that is not known has to read its refusal.
	refusedTimeout = time.Second
)

// door counts the connections of a port. It lets every new one in, sooner or later: where
// there are too many of strangers, busy or not, the one without progress for longest gives way, of the
// same address if that has more than its share, and else of the address that has most. So
// whoever holds connections only displaces their own. What was authenticated moves out of
// the strangers' bound into a larger one, in which only what is idle gives way.
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
	// progress is when it came or last took a part of an answer, in nanoseconds since the
	// start of the process: what it sends byte by byte is none.
	progress atomic.Int64
	patience *time.Timer // closes it, until it is let in

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

// enter counts a connection, and closes the one that has to give way for it.
func (d *door) enter(conn net.Conn) *guest {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // a unix socket's peers are one
	g := &guest{Conn: conn, door: d, address: sender.Of(from.Addr()), idle: true}
	g.touch()
	g.patience = time.AfterFunc(strangerTimeout, func() { _ = g.Close() })
	if d.bounds.known == 0 {
		g.patience.Stop() // nobody is asked who they are: the server's own timeouts serve
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

// victimLocked is the stranger that gives way to another one of an address; nil for none.
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

// stalest is the one without progress for longest.
func stalest(guests []*guest) *guest {
	if len(guests) == 0 {
		return nil
	}
	return slices.MinFunc(guests, func(a, b *guest) int { return cmp.Compare(a.progress.Load(), b.progress.Load()) })
}

// welcome says that a connection's peer was authenticated. It is false if all places of such
// are taken by others that are busy.
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

// closeAll closes what is open: handshakes that are under way, too.
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

// guestOf is the guest below a connection; nil on the socket.
func guestOf(conn net.Conn) *guest {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	g, _ := conn.(*guest)
	return g
}

type guestKey struct{}

// connContext is an http.Server.ConnContext hook: Admit and Dismiss find the connection.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if g := guestOf(conn); g != nil {
		return context.WithValue(ctx, guestKey{}, g)
	}
	return ctx
}

// Admit says that the request with this context was let in. The connection of one that was
// authenticated moves to the larger bound of those.
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

// Dismiss says that the request with this context was refused, because its sender is not
// known: the connection ends as soon as its client had the time to read that, even if the
// client never does.
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

// doorListener has connections pass a door. It neither handshakes nor blocks on a peer.
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

// await waits, where all have one address, until the connection that would give way has had
// its time: who connects again and again must not displace a health check that is being
// answered. The others wait in the kernel's queue, in the order in which they came.
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
		case <-d.left: // one has gone by itself
		case <-timer.C:
		}
		timer.Stop()
	}
}

// split accepts TLS connections and passes each, after its handshake, to the listener for
// those that have shown a certificate that trusts accepts, or to that for all others.
type split struct {
	from            net.Listener
	config          *tls.Config
	trusts          func([]*x509.Certificate) bool
	known, stranger *passed
}

// run accepts until the listener is closed, and returns why.
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

// passed is a listener whose connections come from elsewhere.
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

// isClosed says that a listener or a server ended because it was told to.
func isClosed(err error) bool {
	return errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed)
}

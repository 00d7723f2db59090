package nodestatus

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/wake"
)

// AddressConfig configures Addresses.
type AddressConfig struct {
	NodeName string
	// NodeIPs are the addresses of --node-ip. A lone 0.0.0.0 or :: only states the preferred
	// family.
	NodeIPs []netip.Addr
	// InCluster says that a resolver looks up the address of NodeName. Without a cluster nobody
	// else has to agree on the address, so podd starts without using the network.
	InCluster bool
}

// Addresses are the node's addresses, primary first: those of --node-ip, or the one found, or
// none if the node has no network, or those that a cloud controller manager gave the Node.
// Everything that shows the addresses to pods or users uses these. The caller looks them up
// when podd starts and when the runtime has responded. In a cluster it also does so with each
// state of the Node, as a kubelet does, because the machine may have a new address (DHCP,
// another network). Create them with NewAddresses.
type Addresses struct {
	// find returns the addresses. named are those that the node's name resolves to.
	find func(named []netip.Addr) []string
	// resolve looks up the node's name. It is nil if the result does not matter.
	resolve func(ctx context.Context) ([]netip.Addr, error)
	// asked is closed after the first lookup.
	asked chan struct{}

	mu    sync.Mutex
	known []string     // replaced, never changed
	named []netip.Addr // the last answer of resolve
	given []string     // the Node's, if others set them
}

// NewAddresses returns the addresses after a first look.
func NewAddresses(cfg AddressConfig) *Addresses {
	return newAddresses(func(named []netip.Addr) []string { return addresses(cfg, named) }, resolver(cfg))
}

func newAddresses(find func([]netip.Addr) []string, resolve func(context.Context) ([]netip.Addr, error)) *Addresses {
	a := &Addresses{find: find, resolve: resolve, asked: make(chan struct{}), known: find(nil)}
	if resolve == nil {
		close(a.asked)
	}
	return a
}

const (
	// firstAnswer bounds how long the Node's first state waits for the resolver. lastAnswer
	// bounds a lookup that nothing waits for.
	firstAnswer = 2 * time.Second
	lastAnswer  = 30 * time.Second
)

// Run resolves the node's name periodically until ctx ends. A slow resolver delays nobody: Look
// uses the last answer.
func (a *Addresses) Run(ctx context.Context, every time.Duration) error {
	if a.resolve == nil {
		return nil
	}
	a.ask(ctx, firstAnswer)
	close(a.asked)
	for wake.Sleep(ctx, every) {
		a.ask(ctx, lastAnswer)
	}
	return ctx.Err()
}

func (a *Addresses) ask(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	named, err := a.resolve(ctx)
	if e, ok := errors.AsType[*net.DNSError](err); err != nil && (!ok || !e.IsNotFound) {
		return // a resolver that does not respond says nothing about the name
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.named = named
}

// Await waits for the first lookup of the node's name, but not for long.
func (a *Addresses) Await(ctx context.Context) {
	select {
	case <-a.asked:
	case <-ctx.Done():
	}
}

// Now returns the addresses. They are read-only. It does not block.
func (a *Addresses) Now() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known
}

// Look looks the addresses up again and reports whether they have changed. If the machine has
// none at the moment, the last ones stay: an unplugged cable is not a new address.
func (a *Addresses) Look() bool {
	a.mu.Lock()
	named, found := a.named, a.given
	a.mu.Unlock()
	if len(found) == 0 {
		found = a.find(named)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(found) == 0 || slices.Equal(found, a.known) {
		return false
	}
	a.known = found
	return true
}

// Follow takes the addresses that others have set on the Node, if any. They apply from the next
// Look on.
func (a *Addresses) Follow(given []v1.NodeAddress) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.given = hostIPs(given)
}

// hostIPs returns the addresses of a Node that its pods get, as upstream's GetNodeHostIPs does:
// internal addresses before external ones, and of these the first plus one of the other family.
func hostIPs(of []v1.NodeAddress) (ips []string) {
	var first netip.Addr
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range of {
			ip, err := netip.ParseAddr(a.Address)
			switch {
			case a.Type != kind || err != nil:
			case !first.IsValid():
				first, ips = ip, []string{ip.String()}
			case len(ips) == 1 && ip.Is4() != first.Is4():
				ips = append(ips, ip.String())
			}
		}
	}
	return ips
}

// resolver returns a function that resolves the node's name, or nil if the name does not
// matter.
func resolver(cfg AddressConfig) func(context.Context) ([]netip.Addr, error) {
	if given, _ := configured(cfg); !cfg.InCluster || len(given) > 0 {
		return nil
	}
	return func(ctx context.Context) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", cfg.NodeName)
	}
}

// configured returns the addresses of --node-ip. If there are none, six says whether to prefer
// IPv6.
func configured(cfg AddressConfig) (given []netip.Addr, six bool) {
	if len(cfg.NodeIPs) == 1 && cfg.NodeIPs[0].IsUnspecified() {
		return nil, cfg.NodeIPs[0].Is6()
	}
	return cfg.NodeIPs, false
}

// addresses returns the configured addresses, or the one that a kubelet finds: the node's name,
// if that is an address; else an address that the name resolves to and this machine has; else
// the address that the machine would now use to reach others. It returns none if the machine
// has no route.
func addresses(cfg AddressConfig, named []netip.Addr) []string {
	given, six := configured(cfg)
	if len(given) > 0 {
		all := make([]string, len(given))
		for i, ip := range given {
			all[i] = ip.String()
		}
		return all
	}
	ip, err := netip.ParseAddr(cfg.NodeName)
	if err != nil && len(named) > 0 {
		ip = choose(onInterfaces(named, interfaceAddresses()), six)
	}
	if !ip.IsValid() {
		ip = choose(routed(), six)
	}
	if !ip.IsValid() {
		return nil
	}
	return []string{ip.String()}
}

// choose returns the first address that others can reach, of the wanted family if there is one.
// It returns an invalid address if there is none.
func choose(from []netip.Addr, six bool) (chosen netip.Addr) {
	for _, ip := range from {
		switch ip = ip.Unmap(); {
		case !ip.IsGlobalUnicast(): // loopback, multicast, link-local
		case ip.Is6() == six:
			return ip
		case !chosen.IsValid():
			chosen = ip
		}
	}
	return chosen
}

// onInterfaces returns the addresses that this machine has.
func onInterfaces(all, local []netip.Addr) []netip.Addr {
	var own []netip.Addr
	for _, ip := range all {
		if slices.Contains(local, ip.Unmap()) {
			own = append(own, ip)
		}
	}
	return own
}

func interfaceAddresses() []netip.Addr {
	all, _ := net.InterfaceAddrs() // without them, no name resolves to this machine
	var out []netip.Addr
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, prefix.Addr().Unmap())
		}
	}
	return out
}

// routed returns the addresses from which this machine would now reach others.
func routed() []netip.Addr {
	var out []netip.Addr
	// Connecting a datagram socket sends nothing; it only picks the route. The addresses belong
	// to documentation networks (RFC 5737, RFC 3849).
	for _, target := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := net.Dial("udp", target)
		if err != nil {
			continue
		}
		if local, ok := conn.LocalAddr().(*net.UDPAddr); ok {
			out = append(out, local.AddrPort().Addr())
		}
		_ = conn.Close()
	}
	return out
}

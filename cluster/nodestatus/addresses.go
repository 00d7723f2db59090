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
	// compute returns the addresses. named are those that the node's name resolves to.
	compute func(named []netip.Addr) []string
	// resolve looks up the node's name. It is nil if the result does not matter.
	resolve func(ctx context.Context) ([]netip.Addr, error)
	// firstLookupDone is closed after the first lookup.
	firstLookupDone chan struct{}

	mu       sync.Mutex
	current  []string     // replaced, never changed
	resolved []netip.Addr // the last answer of resolve
	fromNode []string     // the Node's, if others set them
}

// NewAddresses returns the addresses, computed once.
func NewAddresses(cfg AddressConfig) *Addresses {
	return newAddresses(func(named []netip.Addr) []string { return addresses(cfg, named) }, resolver(cfg))
}

func newAddresses(compute func([]netip.Addr) []string, resolve func(context.Context) ([]netip.Addr, error)) *Addresses {
	a := &Addresses{compute: compute, resolve: resolve, firstLookupDone: make(chan struct{}), current: compute(nil)}
	if resolve == nil {
		close(a.firstLookupDone)
	}
	return a
}

const (
	// firstLookupTimeout bounds how long the Node's first state waits for the resolver.
	// lookupTimeout bounds a lookup that nothing waits for.
	firstLookupTimeout = 2 * time.Second
	lookupTimeout      = 30 * time.Second
)

// Run resolves the node's name periodically until ctx ends. A slow resolver delays nobody:
// Refresh uses the last answer.
func (a *Addresses) Run(ctx context.Context, every time.Duration) error {
	if a.resolve == nil {
		return nil
	}
	a.lookUpName(ctx, firstLookupTimeout)
	close(a.firstLookupDone)
	for wake.Sleep(ctx, every) {
		a.lookUpName(ctx, lookupTimeout)
	}
	return ctx.Err()
}

func (a *Addresses) lookUpName(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	named, err := a.resolve(ctx)
	if e, ok := errors.AsType[*net.DNSError](err); err != nil && (!ok || !e.IsNotFound) {
		return // a resolver that does not respond says nothing about the name
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resolved = named
}

// AwaitFirstLookup waits for the first lookup of the node's name, but not for long.
func (a *Addresses) AwaitFirstLookup(ctx context.Context) {
	select {
	case <-a.firstLookupDone:
	case <-ctx.Done():
	}
}

// Current returns the addresses. They are read-only. It does not block.
func (a *Addresses) Current() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current
}

// Refresh looks the addresses up again and reports whether they have changed. If the machine has
// none at the moment, the last ones stay: an unplugged cable is not a new address.
func (a *Addresses) Refresh() bool {
	a.mu.Lock()
	named, found := a.resolved, a.fromNode
	a.mu.Unlock()
	if len(found) == 0 {
		found = a.compute(named)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(found) == 0 || slices.Equal(found, a.current) {
		return false
	}
	a.current = found
	return true
}

// SetFromNode takes the addresses that others have set on the Node, if any. They apply from the
// next Refresh on.
func (a *Addresses) SetFromNode(given []v1.NodeAddress) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fromNode = hostIPs(given)
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
	if given, _ := configuredIPs(cfg); !cfg.InCluster || len(given) > 0 {
		return nil
	}
	return func(ctx context.Context) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", cfg.NodeName)
	}
}

// configuredIPs returns the addresses of --node-ip. If there are none, six says whether to prefer
// IPv6.
func configuredIPs(cfg AddressConfig) (given []netip.Addr, six bool) {
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
	given, six := configuredIPs(cfg)
	if len(given) > 0 {
		all := make([]string, len(given))
		for i, ip := range given {
			all[i] = ip.String()
		}
		return all
	}
	ip, err := netip.ParseAddr(cfg.NodeName)
	if err != nil && len(named) > 0 {
		ip = chooseIP(onInterfaces(named, interfaceAddresses()), six)
	}
	if !ip.IsValid() {
		ip = chooseIP(outboundIPs(), six)
	}
	if !ip.IsValid() {
		return nil
	}
	return []string{ip.String()}
}

// chooseIP returns the first address that others can reach, of the wanted family if there is one.
// It returns an invalid address if there is none.
func chooseIP(from []netip.Addr, six bool) (chosen netip.Addr) {
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

// outboundIPs returns the addresses from which this machine would now reach others.
func outboundIPs() []netip.Addr {
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

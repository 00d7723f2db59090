package node

import (
	"net"
	"net/netip"

	"podd/config"
)

// addresses returns the configured ones, or the address that this machine would
// now use to reach others; none if it has no route. They are looked up for Facts,
// and for the statuses before that.
func addresses(cfg *config.Config) []string {
	if len(cfg.NodeIPs) > 0 {
		return texts(cfg.NodeIPs)
	}
	var out []string
	// Connecting a datagram socket sends nothing: it only picks the route. The
	// addresses are of documentation networks (RFC 5737, RFC 3849).
	for _, target := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := net.Dial("udp", target)
		if err != nil {
			continue
		}
		if local, ok := conn.LocalAddr().(*net.UDPAddr); ok && !local.IP.IsLoopback() {
			out = append(out, local.IP.String())
		}
		_ = conn.Close()
	}
	return out
}

func texts(ips []netip.Addr) []string {
	out := make([]string, len(ips))
	for i, ip := range ips {
		out[i] = ip.String()
	}
	return out
}

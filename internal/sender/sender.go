// Package sender says which addresses of a network count as one sender, for limits on what
// each sender may have or do.
package sender

import "net/netip"

// Prefix returns the addresses that count as one sender with ip: an IPv4 address itself, or an
// IPv6 address's network, in which a host chooses its own addresses. The zero Addr has the
// zero Prefix.
func Prefix(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

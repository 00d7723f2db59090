// Package sender says which addresses of a network count as one sender, for what each
// sender may have or do.
package sender

import "net/netip"

// Of returns who counts as one sender with ip: an IPv4 address itself, or the network of
// an IPv6 one, in which a host chooses its addresses itself. The zero Addr has the zero
// Prefix.
func Of(ip netip.Addr) netip.Prefix {
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

package pod

import "net/netip"

// PodIPs picks a pod's IPs from the addresses that a runtime reports for its sandbox. It
// picks at most one of each family, first from the family of the node's first address, IPv4
// if that is unknown (kubernetes/kubernetes#97979). Status, environment and probes all use
// it. Invalid addresses are left out.
func PodIPs(reported, nodeIPs []string) []string {
	var four, six string
	for _, s := range reported {
		ip, err := netip.ParseAddr(s)
		switch {
		case err != nil:
		case ip.Is4() && four == "":
			four = ip.String()
		case ip.Is6() && six == "":
			six = ip.String()
		}
	}
	first, second := four, six
	if len(nodeIPs) > 0 {
		if ip, err := netip.ParseAddr(nodeIPs[0]); err == nil && ip.Is6() {
			first, second = six, four
		}
	}
	var ips []string
	for _, ip := range []string{first, second} {
		if ip != "" {
			ips = append(ips, ip)
		}
	}
	return ips
}

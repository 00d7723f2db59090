package pod

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// UnreachableHostPort is a host port of a container where nothing can answer.
type UnreachableHostPort struct {
	Container string
	// Index is the port's index in the container's ports.
	Index int
	Port  v1.ContainerPort
}

func (d UnreachableHostPort) String() string {
	return fmt.Sprintf("nothing answers at host port %d of %s: podd's pod network has IPv4 addresses only, and hostIP %s is one of IPv6",
		d.Port.HostPort, d.Container, d.Port.HostIP)
}

// UnreachableHostPorts returns the host ports of a pod that an IPv4 pod network cannot forward,
// because their hostIP is IPv6: there, even :: includes no IPv4 address.
func UnreachableHostPorts(p *v1.Pod) []UnreachableHostPort {
	if p.Spec.HostNetwork {
		return nil
	}
	var out []UnreachableHostPort
	for c := range ContainerSpecs(&p.Spec) {
		for i, port := range c.Ports {
			if ip, err := netip.ParseAddr(port.HostIP); err == nil && port.HostPort > 0 && ip.Is6() && !ip.Is4In6() {
				out = append(out, UnreachableHostPort{c.Name, i, port})
			}
		}
	}
	return out
}

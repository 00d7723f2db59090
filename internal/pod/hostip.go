package pod

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// DeadPort is a host port of a container where nothing can answer.
type DeadPort struct {
	Container string
	// Index is the port's index in the container's ports.
	Index int
	Port  v1.ContainerPort
}

func (d DeadPort) String() string {
	return fmt.Sprintf("nothing answers at host port %d of %s: podd's pod network has IPv4 addresses only, and hostIP %s is one of IPv6",
		d.Port.HostPort, d.Container, d.Port.HostIP)
}

// DeadPorts returns the host ports of a pod that an IPv4 pod network cannot forward,
// because their hostIP is IPv6: there, even :: includes no IPv4 address.
func DeadPorts(p *v1.Pod) []DeadPort {
	if p.Spec.HostNetwork {
		return nil
	}
	var out []DeadPort
	for c := range ContainerSpecs(&p.Spec) {
		for i, port := range c.Ports {
			if ip, err := netip.ParseAddr(port.HostIP); err == nil && port.HostPort > 0 && ip.Is6() && !ip.Is4In6() {
				out = append(out, DeadPort{c.Name, i, port})
			}
		}
	}
	return out
}

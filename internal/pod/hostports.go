package pod

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// HostPort is one port of the node that a pod requests.
type HostPort struct {
	IP       string // "" for all addresses
	Protocol v1.Protocol
	Number   int32
	// Path is the port's field in the pod.
	Path string
}

func (p HostPort) String() string {
	s := fmt.Sprintf("%d/%s", p.Number, p.Protocol)
	if p.IP != "" {
		s = p.IP + ":" + s
	}
	return s
}

// ConflictsWith says that one node cannot have both ports by the scheduler's rule, which the
// kubelet applies, too: it compares addresses as they are written.
func (p HostPort) ConflictsWith(q HostPort) bool {
	return p.Number == q.Number && p.Protocol == q.Protocol && (p.IP == q.IP || p.IP == "" || q.IP == "")
}

// Overlaps says that one port takes from the other. It includes one address in two
// spellings, and :: beside another IPv6 address. Ports of two protocols are two ports, and
// so are ports of two addresses.
func (p HostPort) Overlaps(q HostPort) bool {
	if p.ConflictsWith(q) {
		return true
	}
	if p.Number != q.Number || p.Protocol != q.Protocol {
		return false
	}
	a, errA := netip.ParseAddr(p.IP)
	b, errB := netip.ParseAddr(q.IP)
	if errA != nil || errB != nil {
		return false
	}
	a, b = a.Unmap(), b.Unmap()
	return a == b || a.Is6() && b.Is6() && (a.IsUnspecified() || b.IsUnspecified())
}

// HostPorts returns the host ports that a pod has as long as it runs. Ports of init
// containers that end before the pod is ready do not count. With the host's network,
// defaulting has made all ports host ports.
func HostPorts(p *v1.Pod) (ports []HostPort) {
	take := func(path string, c *v1.Container) {
		for i, port := range c.Ports {
			if port.HostPort <= 0 {
				continue
			}
			hp := HostPort{IP: port.HostIP, Protocol: port.Protocol, Number: port.HostPort, Path: fmt.Sprintf("%s.ports[%d].hostPort", path, i)}
			if hp.Protocol == "" {
				hp.Protocol = v1.ProtocolTCP
			}
			// Upstream's word for all addresses, including IPv6. :: is an address like any
			// other (HostPortInfo of the scheduler's framework): a pod's port there is
			// forwarded from IPv6 addresses alone.
			if hp.IP == "0.0.0.0" {
				hp.IP = ""
			}
			ports = append(ports, hp)
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; IsSidecar(c) {
			take(fmt.Sprintf("spec.initContainers[%d]", i), c)
		}
	}
	for i := range p.Spec.Containers {
		take(fmt.Sprintf("spec.containers[%d]", i), &p.Spec.Containers[i])
	}
	return ports
}

package admission

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// hostPort is one port of the node that a pod asks for.
type hostPort struct {
	ip       string // "" for all addresses
	protocol v1.Protocol
	number   int32
}

func (p hostPort) String() string {
	s := fmt.Sprintf("%d/%s", p.number, p.protocol)
	if p.ip != "" {
		s = p.ip + ":" + s
	}
	return s
}

// meets says that both ports cannot be had at once.
func (p hostPort) meets(q hostPort) bool {
	return p.number == q.number && p.protocol == q.protocol && (p.ip == q.ip || p.ip == "" || q.ip == "")
}

// hostPorts are those that a pod has as long as it runs: the ports of init
// containers that end before the pod is ready do not count. With the host's
// network, defaulting has made host ports of all.
func hostPorts(p *v1.Pod) []hostPort {
	var out []hostPort
	take := func(c *v1.Container) {
		for _, port := range c.Ports {
			if port.HostPort <= 0 {
				continue
			}
			hp := hostPort{ip: port.HostIP, protocol: port.Protocol, number: port.HostPort}
			if hp.protocol == "" {
				hp.protocol = v1.ProtocolTCP
			}
			// Upstream's word for all, also of IPv6; :: is an address as any other
			// (HostPortInfo of the scheduler's framework), and a pod's port is
			// forwarded from addresses of IPv6 alone.
			if hp.ip == "0.0.0.0" {
				hp.ip = ""
			}
			out = append(out, hp)
		}
	}
	for c, kind := range pod.ContainerSpecs(&p.Spec) {
		if kind == pod.RegularContainer || kind == pod.SidecarContainer {
			take(c)
		}
	}
	return out
}

// portHolder returns who has a host port that p asks for; nil for nobody.
func portHolder(p *v1.Pod, others []*v1.Pod) (*v1.Pod, hostPort) {
	wants := hostPorts(p)
	if len(wants) == 0 {
		return nil, hostPort{}
	}
	for _, other := range others {
		for _, has := range hostPorts(other) {
			for _, want := range wants {
				if want.meets(has) {
					return other, want
				}
			}
		}
	}
	return nil, hostPort{}
}

package agent

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// reasonNodePorts is the kubelet's reason for a pod whose host port is taken
// (pkg/scheduler/framework/plugins/nodeports, used on admission).
const reasonNodePorts = "NodePorts"

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

func hostPorts(p *v1.Pod) []hostPort {
	var out []hostPort
	for i := range p.Spec.Containers {
		for _, port := range p.Spec.Containers[i].Ports {
			if port.HostPort == 0 {
				continue
			}
			hp := hostPort{ip: port.HostIP, protocol: port.Protocol, number: port.HostPort}
			if hp.protocol == "" {
				hp.protocol = v1.ProtocolTCP
			}
			if hp.ip == "0.0.0.0" || hp.ip == "::" {
				hp.ip = ""
			}
			out = append(out, hp)
		}
	}
	return out
}

// portHolder returns who has a host port that d asks for. Only the pods whose
// workers live count: a pod that is ending has its ports until it is gone.
func (a *Agent) portHolder(d *pod.Desired) (holder *pod.Desired, port hostPort) {
	wants := hostPorts(d.Pod)
	if len(wants) == 0 {
		return nil, hostPort{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		other := w.wanted()
		for _, has := range hostPorts(other.Pod) {
			for _, want := range wants {
				if want.meets(has) {
					return other, want
				}
			}
		}
	}
	return nil, hostPort{}
}

// refusePorts says, once, that a pod waits for a host port. It is taken up by
// itself when the port is free.
func (a *Agent) refusePorts(d, holder *pod.Desired, port hostPort) {
	message := fmt.Sprintf("host port %s is taken by pod %s%s: give one of them another hostPort, or remove one",
		port, holder.Name(), from(holder))
	if a.refused[d.UID()] != message {
		a.refused[d.UID()] = message
		a.cfg.Events.Event(d.Pod, v1.EventTypeWarning, reasonNodePorts, message)
	}
	now := time.Now()
	waiting := make(map[string]pod.Waiting, len(d.Pod.Spec.Containers))
	for i := range d.Pod.Spec.Containers {
		waiting[d.Pod.Spec.Containers[i].Name] = pod.Waiting{Reason: reasonNodePorts, Message: message}
	}
	a.cfg.Status.Report(pod.Report{
		Desired: d, Observed: pod.Observed{UID: d.UID(), At: now}, Waiting: waiting,
		Reason: reasonNodePorts, Message: message, At: now,
	})
}

// from is where a pod's manifest is, for a sentence.
func from(d *pod.Desired) string {
	if d.Origin == "" {
		return ""
	}
	return " (" + strings.TrimSuffix(d.Origin, "/") + ")"
}

// admit forgets that a pod was refused, or that it is wanted at all.
func (a *Agent) admit(uid pod.UID) { delete(a.refused, uid) }

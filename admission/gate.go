package admission

import (
	v1 "k8s.io/api/core/v1"

	"github.com/prometheus/client_golang/prometheus"

	"podd/internal/pod"
)

// Devices gives pods the devices of device plugins. Its methods must not block.
type Devices interface {
	// Admit gives a pod the devices that it requests. The error says why it cannot have
	// them. If waits is not empty, it says what has to happen before that is known.
	Admit(p *v1.Pod) (waits string, err error)
	// Release takes all devices from a pod.
	Release(uid pod.UID)
}

// Gate asks Admit and AdmitResize with the node's facts, gives the pods that are admitted
// their devices, and counts verdicts.
type Gate struct {
	node    *Node
	devices Devices
	metrics *metrics
}

// NewGate makes a Gate for a node; devices may be nil. Its methods may be called from any
// goroutine and do not block.
func NewGate(node *Node, devices Devices, reg prometheus.Registerer) *Gate {
	return &Gate{node: node, devices: devices, metrics: newMetrics(reg)}
}

// Admit is Admit for this node. Devices come last, so that a pod rejected for another reason
// reserves none. (The kubelet allocates before its predicates and therefore gives the other
// reason for a pod that fails both.)
func (g *Gate) Admit(p *v1.Pod, others []*v1.Pod) pod.Verdict {
	v := Admit(g.node, p, others)
	if (v.Reason == ReasonNodeAffinity || v.Reason == ReasonTaints) && g.node.Refresh != nil && !pod.IsStatic(p) {
		if waits := g.node.Refresh(p.UID); waits != "" {
			return pod.Verdict{PendingReason: waits}
		}
	}
	if g.devices != nil {
		v = g.withDevices(p, v)
	}
	if v.Reason != "" {
		g.metrics.rejected(v.Reason)
	}
	return v
}

// CountRejection counts a pod that was rejected after its admission.
func (g *Gate) CountRejection(reason string) { g.metrics.rejected(reason) }

func (g *Gate) withDevices(p *v1.Pod, v pod.Verdict) pod.Verdict {
	if v.Reason != "" {
		g.devices.Release(p.UID) // what it had waited for
		return v
	}
	if !v.Admitted() {
		return v
	}
	waits, err := g.devices.Admit(p)
	if err != nil {
		return reject(ReasonUnexpected, "Allocate failed due to %v, which is unexpected", err)
	}
	return pod.Verdict{PendingReason: waits}
}

// AdmitResize is AdmitResize for this node.
func (g *Gate) AdmitResize(desired, allocated *v1.Pod, others []*v1.Pod) pod.Verdict {
	v, detail := AdmitResize(g.node, desired, allocated, others)
	if detail != "" {
		g.metrics.infeasible.WithLabelValues(detail).Inc()
	}
	return v
}

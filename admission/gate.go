package admission

import (
	v1 "k8s.io/api/core/v1"

	"github.com/prometheus/client_golang/prometheus"

	"podd/internal/pod"
)

// Gate asks Admit and AdmitResize with the node's facts and counts rejections.
type Gate struct {
	node    *Node
	metrics *metrics
}

// NewGate makes a Gate for a node. Its methods may be called from any goroutine
// and do not block.
func NewGate(node *Node, reg prometheus.Registerer) *Gate {
	return &Gate{node: node, metrics: newMetrics(reg)}
}

// Admit is Admit for this node.
func (g *Gate) Admit(p *v1.Pod, others []*v1.Pod) pod.Verdict {
	v := Admit(g.node, p, others)
	if v.Reason != "" {
		g.metrics.rejected(v.Reason)
	}
	return v
}

// AdmitResize is AdmitResize for this node.
func (g *Gate) AdmitResize(desired, allocated *v1.Pod, others []*v1.Pod) pod.Verdict {
	return AdmitResize(g.node, desired, allocated, others)
}

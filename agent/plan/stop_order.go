package plan

import (
	"math"

	"podd/internal/pod"
)

// orderStops sets the turns of the sidecars among a step's stops: after everything that
// was started after them and is stopped in the same step, the regular containers
// first and then later sidecars (KEP-753).
func (s *Step) orderStops(in *Input) {
	orders := make([]stopOrder, 0, 8)
	ordered := false
	for i := range s.Stop {
		order := stopOrderOf(in, &s.Stop[i])
		orders = append(orders, order)
		ordered = ordered || order.sidecar
	}
	if !ordered {
		return
	}
	for i := range s.Stop {
		for j := range s.Stop {
			if orders[i].sidecar && orders[j].turn > orders[i].turn {
				s.Stop[i].After = append(s.Stop[i].After, s.Stop[j].ID)
			}
		}
	}
}

// stopOrder is a container's turn in the order of starts, which its pod's sidecars reverse
// when they end.
type stopOrder struct {
	turn    int64
	sidecar bool // it waits for the containers with a later turn
}

// stopOrderOf determines a container's turn by its pod's spec. Regular containers share
// the last one; what has none comes first, and nothing waits for it. For an orphaned
// pod, it is the order in which its sidecars were created.
func stopOrderOf(in *Input, st *Stop) stopOrder {
	p := in.Granted.Pod
	if isOrphaned(p) {
		for i := range in.Observed.Containers {
			if c := &in.Observed.Containers[i]; c.ID == st.ID && c.Kept != nil && pod.IsSidecar(c.Kept) {
				return stopOrder{turn: c.CreatedAt.UnixNano(), sidecar: true}
			}
		}
		return stopOrder{turn: math.MaxInt64}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == st.Name {
			return stopOrder{turn: int64(i), sidecar: pod.IsSidecar(c)}
		}
	}
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == st.Name {
			return stopOrder{turn: math.MaxInt64}
		}
	}
	return stopOrder{turn: -1}
}

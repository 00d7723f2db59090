package plan

import (
	"math"

	"podd/internal/pod"
)

// order sets the turns of the sidecars among a step's stops: after everything that
// was started after them and is stopped in the same step, the regular containers
// first and then later sidecars (KEP-753).
func (s *Step) order(in *Input) {
	places := make([]place, 0, 8)
	ordered := false
	for i := range s.Stop {
		pl := placeOf(in, &s.Stop[i])
		places = append(places, pl)
		ordered = ordered || pl.waits
	}
	if !ordered {
		return
	}
	for i := range s.Stop {
		for j := range s.Stop {
			if places[i].waits && places[j].turn > places[i].turn {
				s.Stop[i].After = append(s.Stop[i].After, s.Stop[j].ID)
			}
		}
	}
}

// place is that of a container in the order of starts, which its pod's sidecars
// reverse when they end.
type place struct {
	turn  int64
	waits bool // is a sidecar
}

// placeOf determines a container's place by its pod's spec. Regular containers share
// the last one; what has none comes first, and nothing waits for it. For an orphaned
// pod, it is the order in which its sidecars were created.
func placeOf(in *Input, st *Stop) place {
	p := in.Granted.Pod
	if orphan(p) {
		for i := range in.Observed.Containers {
			if c := &in.Observed.Containers[i]; c.ID == st.ID && c.Kept != nil && pod.IsSidecar(c.Kept) {
				return place{turn: c.CreatedAt.UnixNano(), waits: true}
			}
		}
		return place{turn: math.MaxInt64}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == st.Name {
			return place{turn: int64(i), waits: pod.IsSidecar(c)}
		}
	}
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == st.Name {
			return place{turn: math.MaxInt64}
		}
	}
	return place{turn: -1}
}

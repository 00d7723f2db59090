package plan

import v1 "k8s.io/api/core/v1"

// order lets the sidecars among a step's stops take their turn: after all that
// was started after them and ends in the same step, the regular containers
// first and then later sidecars (KEP-753).
func (s *Step) order(p *v1.Pod) {
	for i := range s.Stop {
		if _, k := specOf(p, s.Stop[i].Name); k != sidecar {
			continue
		}
		turn := rank(p, s.Stop[i].Name)
		for j := range s.Stop {
			if rank(p, s.Stop[j].Name) > turn {
				s.Stop[i].After = append(s.Stop[i].After, s.Stop[j].ID)
			}
		}
	}
}

// rank is the place of a container in the order of starts; regular ones share
// the last, and those without a place in it have -1.
func rank(p *v1.Pod, name string) int {
	i := 0
	for c, k := range specs(p) {
		switch {
		case c.Name != name:
			i++
		case k == ephemeral:
			return -1
		case k == regular:
			return len(p.Spec.InitContainers)
		default:
			return i
		}
	}
	return -1
}

package agent

import (
	"podd/agent/plan"
	"podd/internal/budget"
)

// placeEarly takes places in the node's budget for restarts that the pod's annotations
// want early, and says whether it took any.
func (w *worker) placeEarly(early map[string]plan.Early) bool {
	for name, e := range early {
		e.At = w.agent.cfg.Budget.Place(budget.Restart, e.Wanted, e.Otherwise)
		w.memory = w.memory.Placed(name, e)
	}
	return len(early) > 0
}

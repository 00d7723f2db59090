package agent

import (
	"podd/agent/plan"
	"podd/internal/budget"
)

// grantEarlyRestarts reserves places in the node's budget for restarts that the pod's
// annotations want early, and says whether it reserved any.
func (w *worker) grantEarlyRestarts(early map[string]plan.EarlyRestart) bool {
	for name, e := range early {
		e.GrantedAt = w.agent.cfg.Budget.Reserve(budget.Restart, e.PodPolicyAt, e.NodePolicyAt)
		w.memory = w.memory.EarlyRestartGranted(name, e)
	}
	return len(early) > 0
}

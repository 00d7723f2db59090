package agent

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// checkFeatures reports an update of a pod that needs a feature that this node does not
// declare, as the kubelet does. An apiserver normally rejects such an update.
func (w *worker) checkFeatures(d *pod.Desired) {
	before := w.stored.checked
	w.stored.checked = d
	if before == nil || before == d || d.Source != pod.SourceAPIServer || w.agent.cfg.MissingFeatures == nil {
		return
	}
	missing := w.agent.cfg.MissingFeatures(before.Pod, d.Pod)
	if len(missing) == 0 {
		return
	}
	names := strings.Join(missing, ", ")
	w.log.Warn("this node does not support an update of the pod: the update has no effect here", "missing_features", names)
	w.agent.cfg.Events.Event(d.Pod, v1.EventTypeWarning, "FailedNodeDeclaredFeaturesCheck", "Pod requires node features that are not available: "+names)
}

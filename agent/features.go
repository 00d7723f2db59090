package agent

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// checkFeatures reports, as the kubelet does, that somebody has changed a pod in a way that needs
// a feature that this node does not declare: an apiserver normally refuses that.
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
	w.log.Warn("the pod was changed in a way that this node does not support: the change has no effect here", "missing_features", names)
	w.agent.cfg.Events.Event(d.Pod, v1.EventTypeWarning, "FailedNodeDeclaredFeaturesCheck", "Pod requires node features that are not available: "+names)
}

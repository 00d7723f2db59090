package nodestatus

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// condition is a condition without its times.
type condition struct {
	kind            v1.NodeConditionType
	status          v1.ConditionStatus
	reason, message string
}

// pressure is one of the kubelet's three pressure conditions, with its reasons and messages
// with and without pressure.
type pressure struct {
	kind                      v1.NodeConditionType
	reasonTrue, reasonFalse   string
	messageTrue, messageFalse string
}

var pressures = []pressure{
	{v1.NodeMemoryPressure, "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory", "kubelet has insufficient memory available", "kubelet has sufficient memory available"},
	{v1.NodeDiskPressure, "KubeletHasDiskPressure", "KubeletHasNoDiskPressure", "kubelet has disk pressure", "kubelet has no disk pressure"},
	{v1.NodePIDPressure, "KubeletHasInsufficientPID", "KubeletHasSufficientPID", "kubelet has insufficient PID available", "kubelet has sufficient PID available"},
}

// conditions returns podd's conditions, with Ready last: older control planes rely on that
// (kubernetes/kubernetes#16961).
func (f *Facts) conditions(s State, capacity v1.ResourceList) []condition {
	var out []condition
	for i, under := range []bool{s.MemoryPressure, s.DiskPressure, s.PIDPressure} {
		p := pressures[i]
		if under {
			out = append(out, condition{p.kind, v1.ConditionTrue, p.reasonTrue, p.messageTrue})
		} else {
			out = append(out, condition{p.kind, v1.ConditionFalse, p.reasonFalse, p.messageFalse})
		}
	}
	ready := condition{v1.NodeReady, v1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"}
	if why := notReadyMessage(s, capacity); why != "" {
		ready = condition{v1.NodeReady, v1.ConditionFalse, "KubeletNotReady", why}
	}
	return append(out, ready)
}

func notReadyMessage(s State, capacity v1.ResourceList) string {
	var why []string
	if s.NotReady != nil {
		why = append(why, s.NotReady.Error())
	}
	var missing []string
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, v1.ResourceEphemeralStorage} {
		if _, ok := capacity[name]; !ok {
			missing = append(missing, string(name))
		}
	}
	if len(missing) > 0 {
		why = append(why, "missing node capacity for resources: "+strings.Join(missing, ", "))
	}
	if len(why) > 1 {
		return fmt.Sprintf("[%s]", strings.Join(why, ", "))
	}
	return strings.Join(why, "")
}

// setCondition replaces or adds a condition. The transition time changes only with the status.
func setCondition(s *v1.NodeStatus, c condition, now metav1.Time) {
	next := v1.NodeCondition{
		Type: c.kind, Status: c.status, Reason: c.reason, Message: c.message, LastHeartbeatTime: now, LastTransitionTime: now,
	}
	for i, old := range s.Conditions {
		if old.Type != c.kind {
			continue
		}
		if old.Status == c.status {
			next.LastTransitionTime = old.LastTransitionTime
		}
		s.Conditions[i] = next
		return
	}
	s.Conditions = append(s.Conditions, next)
}

// isNativeResource reports whether a resource is one of Kubernetes' own. Only the node agent
// sets its amount.
func isNativeResource(name v1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

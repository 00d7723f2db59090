package advice

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

const (
	nodeCritical         = "system-node-critical"
	nodeCriticalPriority = 2_000_001_000
)

// systemPriorities has the priorities of the classes that every cluster has.
var systemPriorities = map[string]int32{nodeCritical: nodeCriticalPriority, "system-cluster-critical": 2_000_000_000}

// priorityWarnings returns warnings about a static pod's priority. No apiserver resolves the
// pod's class, but the apiserver checks the mirror pod. The kubelet of 1.37 logs the same
// warnings.
func priorityWarnings(s *v1.PodSpec, mirrored bool) []warning {
	const class, priority = "spec.priorityClassName", "spec.priority"
	switch {
	case s.Priority == nil && s.PriorityClassName != "":
		w := warning{path: class, message: "the pod has no priority: a node does not know what priority a class has", hint: "give the pod the priority of the class, too"}
		if n, known := systemPriorities[s.PriorityClassName]; known {
			w.hint = fmt.Sprintf("give the pod priority: %d, too", n)
		}
		if mirrored {
			w.message += ". The apiserver may refuse its mirror pod"
		}
		return []warning{w}
	case s.Priority == nil || !mirrored:
		return nil
	case s.PriorityClassName == "":
		return []warning{{path: priority, message: fmt.Sprintf("the apiserver refuses the mirror pod if the cluster's default priority is not %d, because the pod has no priorityClassName", *s.Priority),
			hint: "give the pod the priorityClassName of a class with this priority"}}
	case *s.Priority != nodeCriticalPriority || s.PriorityClassName != nodeCritical:
		return []warning{{path: priority, message: "the cluster may evict the mirror pod, or preempt it for another pod: the pod itself runs on, and keeps its resources",
			hint: fmt.Sprintf("give the pod priority: %d with priorityClassName: %s", nodeCriticalPriority, nodeCritical)}}
	}
	return nil
}

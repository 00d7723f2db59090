package cri

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/internal/pod"
)

// unknownInstance stands in for the identity of a podd version that wrote none.
const unknownInstance = "unknown, of an older version"

// maxNamed bounds how many pods of another podd one message names.
const maxNamed = 10

// otherPodds is what is known about other podds on this runtime.
type otherPodds struct {
	// shared says that another podd owns something on this runtime.
	shared atomic.Bool

	mu     sync.Mutex
	warned map[string]bool // instances that were warned about; guarded by mu
}

// owner returns the identity of another podd that created a sandbox or container. It is
// empty for what this podd created, and for what no podd created. What an older podd
// created without an identity is this one's if the pod's directory exists here: only this
// podd, in whatever version, created that.
func (c *Client) owner(uid pod.UID, annotations map[string]string) string {
	own := c.spec.Instance
	if own == "" {
		return ""
	}
	switch by := annotations[pod.AnnotationInstance]; by {
	case own:
		return ""
	case "":
		_, made := annotations[pod.AnnotationStartTime]
		if made && !c.hasDirectory(uid) {
			return unknownInstance
		}
		return ""
	default:
		return by
	}
}

// isManaged says that podd made a sandbox or container, or that a kubelet made it which podd
// has replaced: the pod has its directory here.
func (c *Client) isManaged(uid pod.UID, annotations map[string]string) bool {
	_, podds := annotations[pod.AnnotationStartTime]
	return podds || uid != "" && c.hasDirectory(uid)
}

// isOwn says that a container is this podd's.
func (c *Client) isOwn(k *runtimeapi.Container) bool {
	uid := pod.UID(k.Labels[spec.LabelPodUID])
	return c.isManaged(uid, k.Annotations) && c.owner(uid, k.Annotations) == ""
}

func (c *Client) hasDirectory(uid pod.UID) bool {
	_, err := os.Lstat(c.spec.Dirs.Pod(uid))
	return err == nil
}

// removeForeign removes from two lists what another podd created, and returns those pods with
// the instance that created them.
func (c *Client) removeForeign(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container, map[pod.UID]foreignPod) {
	var left map[pod.UID]foreignPod
	note := func(uid pod.UID, namespace, name, by string, alive bool) bool {
		if by == "" {
			return false
		}
		if left == nil {
			left = map[pod.UID]foreignPod{}
		}
		f := left[uid]
		left[uid] = foreignPod{name: namespace + "/" + name, instance: by, alive: f.alive || alive}
		return true
	}
	sandboxes = slices.DeleteFunc(sandboxes, func(s *runtimeapi.PodSandbox) bool {
		uid := pod.UID(s.Metadata.GetUid())
		return note(uid, s.Metadata.GetNamespace(), s.Metadata.GetName(), c.owner(uid, s.Annotations),
			s.State == runtimeapi.PodSandboxState_SANDBOX_READY)
	})
	containers = slices.DeleteFunc(containers, func(k *runtimeapi.Container) bool {
		uid := pod.UID(k.Labels[spec.LabelPodUID])
		return note(uid, k.Labels[spec.LabelPodNamespace], k.Labels[spec.LabelPodName], c.owner(uid, k.Annotations),
			k.State != runtimeapi.ContainerState_CONTAINER_EXITED)
	})
	if left != nil {
		c.otherPodds.shared.Store(true)
	}
	return sandboxes, containers, left
}

// foreignPod is a pod that another podd created.
type foreignPod struct {
	name, instance string
	alive          bool
}

// Shared says whether this podd has observed another podd's pods on this runtime since it
// started. Resources that belong to no pod here may then be the other podd's.
func (c *Client) Shared() bool { return c.otherPodds.shared.Load() }

// warnOtherPodds logs, once for each other podd, that this podd leaves its pods alone.
func (c *Client) warnOtherPodds(left map[pod.UID]foreignPod) {
	byMaker := map[string][]string{}
	for _, f := range left {
		byMaker[f.instance] = append(byMaker[f.instance], f.name)
	}
	c.otherPodds.mu.Lock()
	defer c.otherPodds.mu.Unlock()
	for by, names := range byMaker {
		if c.otherPodds.warned[by] {
			continue
		}
		if c.otherPodds.warned == nil {
			c.otherPodds.warned = map[string]bool{}
		}
		c.otherPodds.warned[by] = true
		slices.Sort(names)
		c.log.Warn("pods of another podd on this runtime are left alone", "instance", by, "own_instance", c.spec.Instance,
			"count", len(names), "pods", names[:min(len(names), maxNamed)],
			"hint", "if that podd is gone for good, write its instance into "+c.spec.InstanceFile+" and restart this one: it adopts these pods, and terminates those without a manifest; those of an older version without an instance are ended with crictl rmp -f")
	}
}

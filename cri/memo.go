package cri

import (
	"maps"
	"time"

	"podd/internal/pod"
)

// podMemo caches facts that cannot change any more, so that observing an unchanged pod
// costs two calls and not one more per container: the addresses of a ready sandbox, the
// start and resources of a container that the runtime reports as running, the end of one
// that has exited. It is dropped with the sandbox or container, and when podd changes a
// container's resources. Pods of others are not cached, because they are observed only
// once.
type podMemo struct {
	name, namespace string
	source          pod.Source
	startTime       time.Time

	sandboxes  map[string]sandboxFacts
	containers map[string]pod.Container
}

type sandboxFacts struct {
	ips         []string
	hostNetwork bool
}

// memoOf returns the part of an observation that can be cached.
func memoOf(seen *pod.Observed) *podMemo {
	m := &podMemo{
		name: seen.Name, namespace: seen.Namespace, source: seen.Source, startTime: seen.StartTime,
		sandboxes: map[string]sandboxFacts{}, containers: map[string]pod.Container{},
	}
	for _, b := range seen.Sandboxes {
		if b.Ready && (b.HostNetwork || len(b.IPs) > 0) {
			m.sandboxes[b.ID] = sandboxFacts{b.IPs, b.HostNetwork}
		}
	}
	for _, k := range seen.Containers {
		if k.State == pod.ContainerRunning || k.State == pod.ContainerExited {
			m.containers[k.ID] = k
		}
	}
	return m
}

// loadMemo returns a pod's memo, and its age, for storeMemo.
func (c *Client) loadMemo(uid pod.UID) (*podMemo, uint64) {
	c.memoMu.Lock()
	defer c.memoMu.Unlock()
	if m := c.memo[uid]; m != nil {
		return m, c.memoGeneration // never changed once stored
	}
	return &podMemo{}, c.memoGeneration
}

// storeMemo stores the memo of a pod of podd's, unless something was changed meanwhile.
func (c *Client) storeMemo(uid pod.UID, m *podMemo, age uint64, ours bool) {
	c.memoMu.Lock()
	defer c.memoMu.Unlock()
	if age != c.memoGeneration {
		return
	}
	if !ours || len(m.sandboxes) == 0 && len(m.containers) == 0 {
		delete(c.memo, uid)
		return
	}
	c.memo[uid] = m
}

// pruneMemos drops the memos of pods that are not listed any more: a pod that somebody
// else removed may never be observed again.
func (c *Client) pruneMemos(listed map[pod.UID]int) {
	c.memoMu.Lock()
	defer c.memoMu.Unlock()
	maps.DeleteFunc(c.memo, func(uid pod.UID, _ *podMemo) bool { _, there := listed[uid]; return !there })
}

// invalidateMemo drops the memo of a pod that podd changed.
func (c *Client) invalidateMemo(uid pod.UID) {
	c.memoMu.Lock()
	defer c.memoMu.Unlock()
	c.memoGeneration++
	delete(c.memo, uid)
}

// forgetSandbox drops the memo of a removed sandbox's pod; the next observation queries the
// rest of the pod again.
func (c *Client) forgetSandbox(sandbox string) {
	uid := c.roster.removedSandbox(sandbox)
	c.memoMu.Lock()
	delete(c.memo, uid)
	c.memoMu.Unlock()
}

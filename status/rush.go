package status

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

const (
	// rushThreshold is how many may be starting at a time before it is a rush.
	rushThreshold = 10
	// maxStartTime is how long a pod counts as starting after its start began.
	maxStartTime = 10 * time.Second
	// batching is how long statuses are collected in a rush. Controllers that count ready pods
	// (ReplicaSet, Deployment, EndpointSlice) count anew and write the result at each change
	// that they see. One change at a time means two more writes for each pod.
	batching = 500 * time.Millisecond
)

// Rush says that many pods are being started: from more than ten at a time on, until all of
// them have started or have had ten seconds. The node's processors are then what those pods
// wait for. Work that can wait some seconds without anybody missing it should leave the
// processors alone, here and in an apiserver beside. Anybody may call it at any time.
func (u *Uploader) Rush() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Now().Before(u.rushEnds)
}

// updateRushLocked sees whether a rush begins, goes on or is over.
func (u *Uploader) updateRushLocked(pods map[pod.UID]*v1.Pod, now time.Time) {
	starting, ends := 0, now
	for _, p := range pods {
		if !isStarting(p) {
			continue
		}
		if end := p.Status.StartTime.Add(maxStartTime); end.After(now) {
			starting++
			ends = later(ends, end)
		}
	}
	if starting > rushThreshold || now.Before(u.rushEnds) {
		u.rushEnds = ends
	}
}

// dueInRushLocked is when to send a status during a rush; a time in the past means at once.
func (u *Uploader) dueInRushLocked(ours *v1.Pod) time.Time {
	if isStarting(ours) {
		return ours.Status.StartTime.Add(maxStartTime)
	}
	return u.nextBatch
}

// isStarting says whether a status shows nothing but that the pod is starting: no
// container has run, and nothing has failed.
func isStarting(p *v1.Pod) bool {
	s := &p.Status
	if s.Phase != v1.PodPending || s.StartTime == nil || s.Reason != "" || s.Message != "" || p.DeletionTimestamp != nil {
		return false
	}
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			if w := list[i].State.Waiting; w == nil || w.Reason != pod.ReasonContainerCreating && w.Reason != pod.ReasonPodInitializing {
				return false
			}
		}
	}
	return true
}

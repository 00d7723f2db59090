package volumes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/slots"
	"podd/volumes/ownership"
)

// Events records events of pods. It must not block.
type Events interface {
	Event(p *v1.Pod, eventType, reason, message string)
}

// Upstream reports the progress of a change of ownership at these times, with this event.
const (
	firstProgress = 30 * time.Second
	laterProgress = 60 * time.Second

	reasonOwnership = "VolumePermissionChangeInProgress"
)

// parallelOwnershipChanges bounds the changes of ownership in progress.
const parallelOwnershipChanges = 4

// fsGroupApplier applies the fsGroup of pods to their volumes.
type fsGroupApplier struct {
	slots  *slots.Slots
	events Events
}

func newFSGroupApplier(events Events) *fsGroupApplier {
	return &fsGroupApplier{slots: slots.New(parallelOwnershipChanges, slots.Unlimited, longSetUp), events: events}
}

// apply applies the pod's fsGroup, if it has one, to dir, which is or becomes the target's
// content. It may take long, which it reports with events, and ends with ctx.
func (o *fsGroupApplier) apply(ctx context.Context, t target, dir string) error {
	group := fsGroup(t.pod)
	if group == nil {
		return nil
	}
	policy := t.pod.Spec.SecurityContext.FSGroupChangePolicy
	var files atomic.Int64
	stop := o.reportProgress(t, &files)
	defer stop()
	return ownership.Volume{
		Dir: dir, Group: *group, OnRootMismatch: policy != nil && *policy == v1.FSGroupChangeOnRootMismatch,
		Acquire: o.acquire, Processed: &files,
	}.Own(ctx)
}

// acquire waits for a slot. A slot that is held for longer than longSetUp is given to
// others: its holder waits for a disk and must not delay them.
func (o *fsGroupApplier) acquire(ctx context.Context) (done func(), err error) {
	return o.slots.Acquire(ctx, slots.Rest{})
}

// reportProgress reports a change that takes long with upstream's events, until stop is called.
func (o *fsGroupApplier) reportProgress(t target, files *atomic.Int64) (stop func()) {
	if o.events == nil {
		return func() {}
	}
	what := t.dir // from the pod's UID on, as upstream has it
	if i := strings.Index(what, string(t.pod.UID)); i >= 0 {
		what = what[i:]
	}
	message := func() string {
		return fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, consider using OnRootMismatch - "+
			"https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods", what)
	}
	over := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		timer := time.NewTimer(firstProgress)
		defer timer.Stop()
		for {
			select {
			case <-over:
				return
			case <-timer.C:
			}
			o.events.Event(t.pod, v1.EventTypeWarning, reasonOwnership, message())
			message = func() string {
				return fmt.Sprintf("Setting volume ownership for %s, processed %d files.", what, files.Load())
			}
			timer.Reset(laterProgress)
		}
	})
	return func() { close(over); watcher.Wait() }
}

package volumes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/volumes/ownership"
)

// Events tells of what happens to pods. It must not block.
type Events interface {
	Event(p *v1.Pod, eventType, reason, message string)
}

// Upstream's pace of telling how far a change of ownership is, and its event.
const (
	firstProgress = 30 * time.Second
	laterProgress = 60 * time.Second

	reasonOwnership = "VolumePermissionChangeInProgress"
)

// parallelOwners is how many changes of ownership work on their files at a time.
const parallelOwners = 4

// owner gives volumes to their pods' fsGroup.
type owner struct {
	turns  chan struct{}
	events Events
}

func newOwner(events Events) *owner {
	return &owner{turns: make(chan struct{}, parallelOwners), events: events}
}

// own gives what lies at dir, which is or becomes the target's content, to the
// pod's fsGroup, if it has one. It may take long, tells of that, and ends with
// ctx: with the pod.
func (o *owner) own(ctx context.Context, t target, dir string) error {
	group := fsGroup(t.pod)
	if group == nil {
		return nil
	}
	policy := t.pod.Spec.SecurityContext.FSGroupChangePolicy
	var files atomic.Int64
	told := o.watch(t, &files)
	defer told()
	return ownership.Volume{
		Dir: dir, Group: *group, OnRootMismatch: policy != nil && *policy == v1.FSGroupChangeOnRootMismatch,
		Turn: o.turn, Files: &files,
	}.Own(ctx)
}

// turn waits for a turn. One that takes longer than work does waits for a disk,
// and must not keep others waiting with it.
func (o *owner) turn(ctx context.Context) (done func(), err error) {
	select {
	case o.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	leave := sync.OnceFunc(func() { <-o.turns })
	long := time.AfterFunc(longSetUp, leave)
	return func() { long.Stop(); leave() }, nil
}

// watch tells of a change that takes long, in upstream's words, until told is
// called.
func (o *owner) watch(t target, files *atomic.Int64) (told func()) {
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

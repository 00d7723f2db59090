package status

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"podd/internal/logonce"
	"podd/internal/pod"
	"podd/internal/wake"
)

// PodClient changes pods in an apiserver. The methods return the apiserver's errors
// (k8s.io/apimachinery/pkg/api/errors).
type PodClient interface {
	PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error)
	// DeletePod deletes the pod's object at once, if it has that UID.
	DeletePod(ctx context.Context, namespace, name string, uid pod.UID) error
}

const (
	// parallelUploads bounds the requests at a time.
	parallelUploads = 10
)

// uploadRetry is the time between attempts to upload one pod.
var uploadRetry = wake.Backoff{Initial: 500 * time.Millisecond, Max: 10 * time.Second}

// Uploader sets the statuses of pods in an apiserver to those of a Writer, and deletes
// the objects of pods that had a deletion request and are gone from the node. Create it
// with NewUploader, and Run it once. The other methods may be called by anybody at any
// time; none blocks.
//
// It sends only the newest status of a pod, in one request at a time for each pod; after
// an outage, one for each pod that changed. While many pods are starting, a status that
// shows nothing but a start waits for a newer one, and the others are sent together,
// every half second.
type Uploader struct {
	client PodClient
	writer *Writer
	log    *slog.Logger
	poke   wake.Signal

	mu   sync.Mutex
	pods map[pod.UID]*upload
	// rushEnds is when a rush ends at the latest; nextBatch is when statuses are sent again
	// in it.
	rushEnds, nextBatch time.Time
}

// upload is what is known of a pod that the apiserver has.
type upload struct {
	// localUID is the UID that the pod has on this node. For a mirror pod, which shows a
	// static pod, it differs from the apiserver's.
	localUID pod.UID
	theirs   *v1.Pod // the newest version seen
	// finalPod is podd's last version of a pod that has left the node.
	finalPod *v1.Pod
	// comparedOurs and comparedTheirs are the two versions in the last completed comparison.
	comparedOurs, comparedTheirs *v1.Pod

	changedAt time.Time // when our status began to differ from comparedOurs; zero if it does not

	inFlight bool // a request is in progress
	absent   bool // the apiserver does not have it any more
	delay    time.Duration
	retryAt  time.Time // zero: at once
	failure  logonce.Failure
}

// NewUploader returns an Uploader that knows no pods.
func NewUploader(client PodClient, writer *Writer, log *slog.Logger) *Uploader {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Uploader{client: client, writer: writer, log: log, poke: wake.New(), pods: map[pod.UID]*upload{}}
}

// ObservePods takes the apiserver's pods of this node, all of them. Those that are missing
// are gone there.
func (u *Uploader) ObservePods(pods []*v1.Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	there := make(map[pod.UID]bool, len(pods))
	for _, p := range pods {
		there[p.UID] = true
		known := u.pods[p.UID]
		if known == nil {
			u.pods[p.UID] = &upload{localUID: localUID(p), theirs: p}
		} else if p.ResourceVersion != known.theirs.ResourceVersion && newer(p, known.theirs) {
			known.theirs = p
		}
	}
	for uid, known := range u.pods {
		if known.absent = !there[uid]; known.absent && !known.inFlight {
			delete(u.pods, uid)
		}
	}
	u.wake()
}

func localUID(p *v1.Pod) pod.UID {
	if hash := p.Annotations[v1.MirrorPodAnnotationKey]; hash != "" {
		return pod.UID(hash)
	}
	return p.UID
}

// newer says that a is not an older version than b.
func newer(a, b *v1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err != nil || order >= 0
}

// PodRemoved says that this node has nothing left of a pod; last is its last version with
// its final status. If its deletion was requested, the object is deleted after that status
// was uploaded.
func (u *Uploader) PodRemoved(last *v1.Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if known := u.pods[last.UID]; known != nil {
		known.finalPod, known.retryAt = last, time.Time{}
		u.wake()
	}
}

func (u *Uploader) wake() {
	u.poke.Notify()
}

// Run uploads until ctx ends.
func (u *Uploader) Run(ctx context.Context) error {
	changes, stop := u.writer.Changes()
	defer stop()
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, parallelUploads)
	for {
		var timer <-chan time.Time
		if at := u.dispatch(ctx, &work, slots); !at.IsZero() {
			timer = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changes:
		case <-u.poke:
		case <-timer:
		}
	}
}

// dispatch starts what is due, and returns when the next is; zero for none.
func (u *Uploader) dispatch(ctx context.Context, work *sync.WaitGroup, slots chan struct{}) (next time.Time) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	newest := u.newestLocked()
	u.updateRushLocked(newest, now)
	nextBatch := u.nextBatch
	for uid, ours := range newest {
		known := u.pods[uid]
		if known.changedAt.IsZero() && known.comparedOurs != ours {
			known.changedAt = now
		}
		if known.inFlight || known.comparedOurs == ours && known.comparedTheirs == known.theirs && known.finalPod == nil {
			continue
		}
		at := known.retryAt
		if known.finalPod == nil && now.Before(u.rushEnds) {
			at = later(at, u.dueInRushLocked(ours))
			if !at.After(now) {
				nextBatch = now.Add(batching)
			}
		}
		if at.After(now) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		known.inFlight = true
		theirs, final := known.theirs, known.finalPod != nil
		work.Go(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done():
				return
			}
			after, err := u.upload(ctx, theirs, ours, final)
			u.recordResult(uid, sent{ours, final}, after, err)
		})
	}
	u.nextBatch = nextBatch
	return next
}

// newestLocked returns podd's newest version of each pod of the apiserver's that podd has
// or had.
func (u *Uploader) newestLocked() map[pod.UID]*v1.Pod {
	newest := make(map[pod.UID]*v1.Pod, len(u.pods))
	for uid, known := range u.pods {
		ours := known.finalPod
		if ours == nil {
			ours = u.writer.Observed(known.localUID)
		}
		if ours != nil {
			newest[uid] = ours
		}
	}
	return newest
}

// upload sends what differs, and returns the apiserver's version after that; nil if the
// pod is not there any more.
func (u *Uploader) upload(ctx context.Context, theirs, ours *v1.Pod, final bool) (after *v1.Pod, err error) {
	patch, err := Patch(theirs, ours.Status)
	if err != nil {
		return theirs, err
	}
	after = theirs
	if patch != nil {
		after, err = u.client.PatchPodStatus(ctx, ours.Namespace, ours.Name, patch)
		if err != nil {
			return theirs, fmt.Errorf("update the pod's status in the apiserver: %w", err)
		}
	}
	if final && after.DeletionTimestamp != nil {
		if err := u.client.DeletePod(ctx, ours.Namespace, ours.Name, ours.UID); err != nil {
			return after, fmt.Errorf("delete the pod's object in the apiserver: %w", err)
		}
		u.log.Info("pod deleted from the apiserver", "pod", ours.Namespace+"/"+ours.Name, "uid", ours.UID)
		return nil, nil
	}
	return after, nil
}

// sent is what an upload sent; final says that the node had nothing left of the pod by then.
type sent struct {
	ours  *v1.Pod
	final bool
}

// recordResult records how an upload went.
func (u *Uploader) recordResult(uid pod.UID, s sent, after *v1.Pod, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	defer u.wake()
	known := u.pods[uid]
	known.inFlight = false
	switch {
	case known.absent, apierrors.IsConflict(err), err == nil && after == nil:
		// There is none any more, or another pod has its name: what podd has is of no
		// interest to anybody.
		delete(u.pods, uid)
		return
	case apierrors.IsNotFound(err):
		// ObservePods says whether it is gone: an apiserver that has only just started does not
		// find pods that it has (the admission plugin NodeRestriction looks for them in a
		// cache, which is empty then), and who believed it would never delete the object.
		known.delay = uploadRetry.Next(known.delay)
		known.retryAt = time.Now().Add(known.delay)
	case err != nil:
		known.delay = uploadRetry.Next(known.delay)
		known.retryAt = time.Now().Add(known.delay)
		if known.failure.IsNew(err) {
			u.log.Warn("cannot tell the apiserver of a pod: trying again", "pod", s.ours.Namespace+"/"+s.ours.Name, "uid", uid, "error", err)
		}
	default:
		known.delay, known.retryAt = 0, time.Time{}
		known.failure.Recovered()
	}
	if newer(after, known.theirs) {
		known.theirs = after
	}
	if err == nil {
		known.comparedOurs, known.comparedTheirs = s.ours, after
		if !known.changedAt.IsZero() {
			u.writer.metrics.uploads.Observe(time.Since(known.changedAt).Seconds())
			known.changedAt = time.Time{}
		}
		if s.final && known.finalPod == s.ours {
			// Its deletion was not requested: the object stays, as it is.
			known.finalPod = nil
		}
	}
}

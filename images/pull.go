package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"podd/internal/imageref"
	"podd/internal/pod"
)

// Why a pull is cancelled.
var (
	errNobodyWaits = errors.New("no pod is waiting for it any longer")
	errImported    = errors.New("the image was imported from an archive")
	errStopping    = errors.New("podd is stopping")
)

// pullKey identifies a pull. A pod with its own Secrets, or with a service account that gives
// plugins credentials, may have credentials that others lack, so it must not pull for them.
type pullKey struct{ ref, secrets, account string }

// secretsOf identifies the Secrets that a pod's pulls use; empty if they use only the
// node's credentials.
func secretsOf(p *v1.Pod) string {
	var names []string
	for _, s := range p.Spec.ImagePullSecrets {
		if s.Name != "" {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return p.Namespace + "/" + strings.Join(names, ",")
}

// pullOp is one pull, from the queue to its end.
type pullOp struct {
	key         pullKey
	registry    string
	waiters     map[imageKey]*pendingImage
	requestedAt time.Time
	started     time.Time               // zero while it is in the queue
	cancel      context.CancelCauseFunc // nil while it is in the queue
	cancelCause error                   // why the last container lost interest; nil while one is interested
	// slotReleased says that the pull took long and gave its slot to another. slotTimer is
	// the timer for that; nil if pulls keep their slots.
	slotReleased bool
	slotTimer    *time.Timer
}

const (
	// longPullAfter is the time after which a pull gives up its slot.
	longPullAfter = 30 * time.Second
	// longPullFactor bounds all pulls together, as a multiple of MaxParallel and
	// MaxPerRegistry.
	longPullFactor = 4
)

// result is the outcome of a pull.
type result struct {
	image   *pod.Image
	took    time.Duration
	err     error
	retryAt time.Time
}

// joinLocked adds a container to those that wait for a pull of the reference.
func (l *Puller) joinLocked(key imageKey, w *pendingImage, ref string) {
	k := pullKey{ref: ref}
	if l.cfg.Keyring != nil {
		k.secrets, k.account = secretsOf(w.pod), l.cfg.Keyring.ServiceAccountFor(ref, w.pod)
	}
	o := l.pulls[k]
	if o == nil {
		o = &pullOp{key: k, registry: imageref.Registry(ref), waiters: map[imageKey]*pendingImage{}, requestedAt: time.Now()}
		l.pulls[k] = o
		l.queue = append(l.queue, o)
		l.metrics.waiting.Set(float64(len(l.queue)))
	}
	o.waiters[key] = w
	w.op = o
}

// dropPendingLocked drops an image that a container needs. If no other container waits for
// its pull, it cancels the pull, for the reason given.
func (l *Puller) dropPendingLocked(key imageKey, why error) {
	w := l.pending[key]
	if w == nil {
		return
	}
	delete(l.pending, key)
	o := w.op
	if o == nil {
		return
	}
	delete(o.waiters, key)
	if len(o.waiters) > 0 {
		return
	}
	// A later request starts a new pull.
	delete(l.pulls, o.key)
	if o.cancelCause = why; o.cancel != nil {
		o.cancel(why)
		return
	}
	l.queue = slices.DeleteFunc(l.queue, func(q *pullOp) bool { return q == o })
	l.metrics.waiting.Set(float64(len(l.queue)))
}

// dispatch starts the pulls that may start, in the order of the queue, skipping registries
// without a free slot. It returns how long the rate limit delays the next one; 0 if the
// queue does not wait for the rate limit. Pulls end with ctx.
func (l *Puller) dispatch(ctx context.Context, running *sync.WaitGroup) (again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.metrics.waiting.Set(float64(len(l.queue))) }()
	if ctx.Err() != nil {
		return 0
	}
	for i := 0; i < len(l.queue) && l.active < l.cfg.MaxParallel && l.total < longPullFactor*l.cfg.MaxParallel; {
		o := l.queue[i]
		if l.activeByRegistry[o.registry] >= l.cfg.MaxPerRegistry || l.totalByRegistry[o.registry] >= longPullFactor*l.cfg.MaxPerRegistry {
			i++
			continue
		}
		if wait := takeToken(l.rate, time.Now()); wait > 0 {
			return wait
		}
		l.queue = slices.Delete(l.queue, i, i+1)
		pull := l.startLocked(ctx, o)
		running.Go(pull)
	}
	return 0
}

// startLocked takes a slot for a pull and returns the function that pulls.
func (l *Puller) startLocked(ctx context.Context, o *pullOp) (pull func()) {
	pullCtx, cancel := context.WithCancelCause(ctx)
	o.cancel, o.started = cancel, time.Now()
	l.total++
	l.active++
	l.activeByRegistry[o.registry]++
	l.totalByRegistry[o.registry]++
	l.metrics.running.Set(float64(l.total))
	if l.cfg.LongPullsYieldSlot {
		o.slotTimer = time.AfterFunc(longPullAfter, func() {
			l.mu.Lock()
			l.releaseSlotLocked(o)
			l.mu.Unlock()
			l.wake()
		})
	}
	var p *v1.Pod
	for _, w := range o.waiters {
		p = w.pod
		break
	}
	return func() {
		defer cancel(nil)
		start := time.Now()
		img, err := l.fetch(pullCtx, o.key.ref, p)
		l.finish(ctx, o, result{image: img, err: err, took: time.Since(start)})
	}
}

// releaseSlotLocked frees a pull's slot; calling it again does nothing.
func (l *Puller) releaseSlotLocked(o *pullOp) {
	if o.slotReleased {
		return
	}
	o.slotReleased = true
	l.active--
	if l.activeByRegistry[o.registry]--; l.activeByRegistry[o.registry] == 0 {
		delete(l.activeByRegistry, o.registry)
	}
}

// fetch pulls with each of the credentials until one works, and inspects the image.
func (l *Puller) fetch(ctx context.Context, ref string, p *v1.Pod) (*pod.Image, error) {
	var auths []pod.RegistryAuth
	var keyringErr error
	if l.cfg.Keyring != nil {
		if auths, keyringErr = l.cfg.Keyring.Lookup(ctx, ref, p); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	ended, err := l.recordPullIntent(ref)
	if err != nil {
		return nil, err
	}
	id, by, err := l.pullWithAny(ctx, ref, auths, p.Annotations)
	img, err := l.inspect(ctx, ref, id, err)
	ended(img, by)
	if err != nil && ctx.Err() == nil && l.cfg.Keyring != nil {
		l.cfg.Keyring.RecordMissingSecrets(ref, p)
	}
	switch {
	case err != nil && keyringErr != nil:
		return nil, fmt.Errorf("%w; without some credentials: %s", err, truncateMessage(keyringErr.Error()))
	case err != nil:
		return nil, err
	}
	return img, nil
}

// inspect looks up an image that was pulled as id. It returns pullErr if the pull failed.
func (l *Puller) inspect(ctx context.Context, ref, id string, pullErr error) (*pod.Image, error) {
	if pullErr != nil {
		return nil, pullErr
	}
	img, err := l.cfg.Runtime.ImageStatus(ctx, ref)
	switch {
	case err != nil:
		return nil, fmt.Errorf("inspect the pulled image: %w", err)
	case img == nil:
		return nil, fmt.Errorf("the runtime pulled %s as %s and does not know it", ref, id)
	}
	return img, nil
}

// pullWithAny returns the ID of the image, and the credentials that pulled it; nil for none.
func (l *Puller) pullWithAny(ctx context.Context, ref string, auths []pod.RegistryAuth, annotations map[string]string) (id string, by *pod.RegistryAuth, err error) {
	if len(auths) == 0 {
		id, err = l.cfg.Runtime.PullImage(ctx, ref, nil, annotations)
		return id, nil, err
	}
	var errs []error
	for i := range auths {
		id, err := l.cfg.Runtime.PullImage(ctx, ref, &auths[i], annotations)
		if err == nil {
			return id, &auths[i], nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return "", nil, utilerrors.NewAggregate(errs) // formatted as in the kubelet
}

// finish hands a pull's result to the containers that still wait, and frees its slot. ctx
// is Run's.
func (l *Puller) finish(ctx context.Context, o *pullOp, r result) {
	now := time.Now()
	total := now.Sub(o.requestedAt)
	l.mu.Lock()
	l.total--
	if l.totalByRegistry[o.registry]--; l.totalByRegistry[o.registry] == 0 {
		delete(l.totalByRegistry, o.registry)
	}
	l.releaseSlotLocked(o)
	if o.slotTimer != nil {
		o.slotTimer.Stop()
	}
	if l.pulls[o.key] == o {
		delete(l.pulls, o.key)
	}
	waiting := o.waiters
	o.waiters = nil
	if r.err != nil && ctx.Err() != nil {
		waiting = nil // podd is stopping; the next one pulls again
	}
	failed := map[backoffKey]bool{}
	for key, w := range waiting {
		w.op = nil
		mine := r
		if r.err != nil {
			mine.retryAt = l.recordFailureLocked(key, w, r.err, now, failed)
		}
		w.done = &mine
	}
	l.metrics.running.Set(float64(l.total))
	l.mu.Unlock()
	l.wake()
	if len(waiting) == 0 && r.err != nil {
		r.err = errors.Join(context.Canceled, r.err)
	}
	l.reportResult(o, waiting, r, total)
}

// recordFailureLocked increases the back-off, once per pod and image, and returns
// when the pod should try again. An unavailable runtime does not count as a failure
// of the image.
func (l *Puller) recordFailureLocked(key imageKey, w *pendingImage, err error, now time.Time, done map[backoffKey]bool) time.Time {
	if errors.Is(err, pod.ErrUnavailable) {
		return now.Add(unavailableRetry)
	}
	k := backoffKey{key.uid, w.image}
	if !done[k] {
		done[k] = true
		reason, msg := pullFailure(w.image, err)
		why, _ := causeOf(w.image, err)
		l.backoff[k] = l.backoff[k].next(now, why, retryHint(err), reason+": "+msg)
	}
	return now.Add(errImagePullPeriod)
}

// reportResult reports the end of a pull: log, metrics, events, and last the wake-ups.
func (l *Puller) reportResult(o *pullOp, waiting map[imageKey]*pendingImage, r result, total time.Duration) {
	var size uint64
	if r.image != nil {
		size = r.image.Size
	}
	var why cause
	if r.err != nil {
		why, _ = causeOf(o.key.ref, r.err)
	}
	l.metrics.observeResult(total, size, r.err, why)
	if why == causeDiskFull && l.cfg.DiskFull != nil {
		l.cfg.DiskFull()
	}
	switch {
	case r.err == nil:
		l.log.Info("image pulled", "image", o.key.ref, "took", r.took.Truncate(time.Millisecond), "bytes", size)
	case len(waiting) == 0 && errors.Is(o.cancelCause, errImported) && errors.Is(r.err, errAwaitingImport):
		l.log.Debug("image was imported from an archive: it is not pulled", "image", o.key.ref)
	case len(waiting) == 0 && errors.Is(o.cancelCause, errImported):
		l.log.Info("image was imported from an archive while it was being pulled: its pull is cancelled, pods start with the imported one", "image", o.key.ref)
	case len(waiting) == 0:
		l.log.Info("image pull cancelled", "image", o.key.ref, "why", cmp.Or(o.cancelCause, errStopping))
	default:
		l.log.Debug("cannot pull image", "image", o.key.ref, "error", truncateMessage(r.err.Error()))
	}
	for key, w := range waiting {
		if r.err == nil {
			l.event(w.pod, key, v1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
				w.image, r.took.Truncate(time.Millisecond), total.Truncate(time.Millisecond), size))
		} else {
			l.event(w.pod, key, v1.EventTypeWarning, "Failed", truncateMessage(fmt.Sprintf("Failed to pull image %q: %v", w.image, r.err)))
		}
		l.cfg.Waker.Wake(key.uid)
	}
}

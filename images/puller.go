package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/imageref"
	"podd/internal/pod"
)

const (
	maxPullMessage   = 1024
	inspectRetry     = 10 * time.Second
	showErrPull      = 3 * time.Second
	afterUnavailable = time.Second
)

// Runtime is what a Puller needs of the container runtime.
type Runtime interface {
	// ImageStatus is a local lookup; nil if the runtime does not have the image.
	ImageStatus(ctx context.Context, ref string) (*pod.Image, error)
	// PullImage blocks until the image is there, and returns its ID.
	PullImage(ctx context.Context, ref string, auth *pod.RegistryAuth, annotations map[string]string) (string, error)
}

// Waker is told that a pod's image came, or did not.
type Waker interface{ Wake(uid pod.UID) }

// Recorder takes events.
type Recorder interface {
	ContainerEvent(p *v1.Pod, container, eventType, reason, message string)
}

// Keyring finds the credentials for an image and a pod, to be tried in order;
// none means that the pull is anonymous. An error names the sources that could
// not be asked; what the others gave is returned with it and used.
type Keyring interface {
	Lookup(ctx context.Context, ref string, p *v1.Pod) ([]pod.RegistryAuth, error)
}

// PullConfig is what a Puller is made of.
type PullConfig struct {
	Runtime Runtime
	Waker   Waker
	// Recorder, Keyring, Archives, Log and Registerer may be nil.
	Recorder   Recorder
	Keyring    Keyring
	Archives   Archives
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// Progress says how many bytes of all that is being pulled have come, in this
	// moment; it may be nil. It gets a second.
	Progress func(ctx context.Context) (received, total int64, err error)
	// DiskFull is told of a pull that failed for want of space. It may be nil
	// and must not block.
	DiskFull func()
	// MaxParallel pulls at a time; 0 is 5. 1 is one after the other
	// (serializeImagePulls).
	MaxParallel int
	// MaxPerRegistry of them from one registry, so that others find a place; 0
	// is half of MaxParallel, rounded up.
	MaxPerRegistry int
	// Overtake lets a pull that takes long give its place to the next one, so that
	// three large images do not hold up a small one of the same registry
	// (kubernetes/kubernetes#108405); there are never more than four times
	// MaxParallel, and four times MaxPerRegistry of one.
	Overtake bool
	// QPS bounds how many pulls start in a second, Burst how many at once after
	// a pause (registryPullQPS, registryBurst); QPS 0 is no bound.
	QPS   float64
	Burst int
}

// Puller pulls images for pods. Make it with NewPuller and Run it: before that,
// pulls only queue up.
type Puller struct {
	cfg     PullConfig
	log     *slog.Logger
	metrics *pullMetrics

	poke chan struct{} // wakes Run; capacity 1

	mu      sync.Mutex // guards everything below
	wants   map[wantKey]*want
	backoff map[backoffKey]backoff
	ops     map[opKey]*op
	queue   []*op          // not started, in the order of asking
	total   int            // pulls under way
	active  int            // of them, those that hold a place
	perReg  map[string]int // of those, by registry
	allReg  map[string]int // of all, by registry
	rate    bucket
}

type wantKey struct {
	uid       pod.UID
	container string
}

// want is one container that waits for its image.
type want struct {
	pod   *v1.Pod
	image string
	op    *op     // under way, or nil
	done  *result // not told yet, or nil
	told  pod.ImageState
}

// NewPuller makes a Puller; it starts nothing.
func NewPuller(cfg PullConfig) *Puller {
	if cfg.MaxParallel <= 0 {
		cfg.MaxParallel = 5
	}
	if cfg.MaxPerRegistry <= 0 {
		cfg.MaxPerRegistry = max((cfg.MaxParallel+1)/2, 1)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Archives != nil {
		cfg.Runtime = archivesFirst{cfg.Runtime, cfg.Archives}
	}
	return &Puller{
		cfg: cfg, log: cfg.Log, metrics: newPullMetrics(cfg.Registerer), poke: make(chan struct{}, 1),
		wants: map[wantKey]*want{}, backoff: map[backoffKey]backoff{}, ops: map[opKey]*op{},
		perReg: map[string]int{}, allReg: map[string]int{}, rate: newBucket(cfg.QPS, cfg.Burst),
	}
}

// Run starts pulls until ctx ends, which cancels those under way, and returns
// when all of them have ended. It is called once.
func (l *Puller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		var again <-chan time.Time
		if wait := l.dispatch(ctx, &running); wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.poke:
		case <-again:
		}
	}
}

// wake makes Run process the queue.
func (l *Puller) wake() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// Ensure says whether a container's image is present, by its pull policy, and starts
// a pull if necessary. It blocks for one local lookup at most, and for none while a
// pull is in progress. A state that is not ready has the kubelet's reason and message;
// the pod is woken when a pull ends, and may call Ensure at RetryAt, if set, for the
// progress.
//
// With policy Always each success is good for one container: the next asks the
// registry again. Errors are only those of a runtime that does not answer.
func (l *Puller) Ensure(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.ImageState, error) {
	ref, err := imageref.WithTag(c.Image)
	if err != nil {
		msg := fmt.Sprintf("Failed to apply default image tag %q: %v", c.Image, err)
		return l.tell(p, c, pod.ImageState{Reason: pod.ReasonInvalidImageName, Message: msg}, "InspectFailed", msg), nil
	}
	if st, ok := l.recall(ctx, p, c); ok {
		return st, nil
	}
	if c.ImagePullPolicy == v1.PullAlways {
		return l.pull(p, c, ref, "unknown"), nil
	}
	img, err := l.cfg.Runtime.ImageStatus(ctx, ref)
	switch {
	case errors.Is(err, pod.ErrUnavailable) || ctx.Err() != nil:
		return pod.ImageState{}, fmt.Errorf("look up image %q: %w", c.Image, err)
	case err != nil:
		msg := fmt.Sprintf("Failed to inspect image %q: %v", c.Image, err)
		return l.tell(p, c, pod.ImageState{Reason: pod.ReasonImageInspectError, Message: bounded(msg), RetryAt: time.Now().Add(inspectRetry)}, "InspectFailed", msg), nil
	case img != nil:
		l.forgetWant(wantKey{p.UID, c.Name})
		l.metrics.asked(c.ImagePullPolicy, "true", "false")
		l.event(p, c.Name, v1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", c.Image))
		return readyState(img), nil
	case c.ImagePullPolicy == v1.PullNever:
		l.metrics.asked(c.ImagePullPolicy, "false", "unknown")
		msg := fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image)
		return l.tell(p, c, pod.ImageState{Reason: pod.ReasonErrImageNeverPull, Message: msg, RetryAt: time.Now().Add(inspectRetry)}, pod.ReasonErrImageNeverPull, msg), nil
	}
	return l.pull(p, c, ref, "false"), nil
}

// Forget gives up everything that a pod asked for. A pull that nobody else
// wants is cancelled.
func (l *Puller) Forget(uid pod.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.wants {
		if k.uid == uid {
			l.dropWantLocked(k)
		}
	}
	for k := range l.backoff {
		if k.uid == uid {
			delete(l.backoff, k)
		}
	}
}

// Retry forgets a pod's back-offs, so that its next Ensure pulls at once. The
// caller wakes the pod.
func (l *Puller) Retry(uid pod.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.backoff {
		if k.uid == uid {
			delete(l.backoff, k)
		}
	}
}

// Imported reports images that were imported (package archive): pods that wait for
// one are woken, whatever their back-off.
func (l *Puller) Imported(refs []string) {
	names := map[string]bool{}
	for _, r := range refs {
		names[imageref.Full(r)] = true
	}
	l.mu.Lock()
	var wake []pod.UID
	for k, w := range l.wants {
		if ref, err := imageref.WithTag(w.image); err == nil && names[imageref.Full(ref)] {
			delete(l.backoff, backoffKey{k.uid, w.image})
			l.dropWantLocked(k)
			wake = append(wake, k.uid)
		}
	}
	l.mu.Unlock()
	for _, uid := range wake {
		l.cfg.Waker.Wake(uid)
	}
}

// recall answers from what is under way or has just ended.
func (l *Puller) recall(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.ImageState, bool) {
	key := wantKey{p.UID, c.Name}
	l.mu.Lock()
	w := l.wants[key]
	switch {
	case w == nil:
		l.mu.Unlock()
		return pod.ImageState{}, false
	case w.image != c.Image: // an in-place update of the image
		l.dropWantLocked(key)
		l.mu.Unlock()
		return pod.ImageState{}, false
	case w.op != nil:
		st, busy := waitingState(w.told), l.busyLocked(w.op)
		l.mu.Unlock()
		return l.withProgress(ctx, st, c.Image, busy), true
	case w.done == nil:
		l.mu.Unlock()
		return pod.ImageState{}, false
	}
	r := w.done
	w.done = nil
	if r.err == nil {
		delete(l.wants, key)
		l.mu.Unlock()
		return readyState(r.image), true
	}
	reason, msg := pullFailure(w.image, r.err)
	w.told = pod.ImageState{Reason: reason, Message: msg, RetryAt: r.retryAt}
	st := w.told
	l.mu.Unlock()
	l.event(p, c.Name, v1.EventTypeWarning, "Failed", "Error: "+reason)
	return st, true
}

// pull joins or starts a pull, or says that it is too early for one.
func (l *Puller) pull(p *v1.Pod, c *v1.Container, ref, present string) pod.ImageState {
	key := wantKey{p.UID, c.Name}
	l.mu.Lock()
	w := l.wantLocked(key, p, c)
	if b, ok := l.backoff[backoffKey{p.UID, c.Image}]; ok && time.Now().Before(b.until()) {
		msg := fmt.Sprintf("Back-off pulling image %q", c.Image)
		first := w.told.Reason != pod.ReasonImagePullBackOff || !w.told.RetryAt.Equal(b.until())
		w.told = pod.ImageState{Reason: pod.ReasonImagePullBackOff, Message: bounded(msg + ": " + b.message), RetryAt: b.until()}
		st := w.told
		l.mu.Unlock()
		if first {
			l.event(p, c.Name, v1.EventTypeNormal, "BackOff", msg)
			l.event(p, c.Name, v1.EventTypeWarning, "Failed", "Error: "+pod.ReasonImagePullBackOff)
		}
		return st
	}
	l.joinLocked(key, w, ref)
	st := waitingState(w.told)
	if st.Reason == pod.ReasonContainerCreating {
		st.RetryAt = time.Now().Add(progressAfter)
	}
	l.mu.Unlock()
	l.metrics.asked(c.ImagePullPolicy, present, "true")
	l.event(p, c.Name, v1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", c.Image))
	l.wake() // only now, so that no result comes before the event that announces it
	return st
}

// tell remembers a state that no pull will change, and says it once.
func (l *Puller) tell(p *v1.Pod, c *v1.Container, st pod.ImageState, event, msg string) pod.ImageState {
	l.mu.Lock()
	w := l.wantLocked(wantKey{p.UID, c.Name}, p, c)
	first := w.told.Reason != st.Reason || w.told.Message != st.Message
	w.told = st
	l.mu.Unlock()
	if first {
		l.event(p, c.Name, v1.EventTypeWarning, event, bounded(msg))
		l.event(p, c.Name, v1.EventTypeWarning, "Failed", "Error: "+st.Reason)
	}
	return st
}

func (l *Puller) wantLocked(key wantKey, p *v1.Pod, c *v1.Container) *want {
	w := l.wants[key]
	if w == nil {
		w = &want{pod: p, image: c.Image}
		l.wants[key] = w
	}
	return w
}

func (l *Puller) forgetWant(key wantKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropWantLocked(key)
}

func (l *Puller) event(p *v1.Pod, container, eventType, reason, message string) {
	if l.cfg.Recorder != nil {
		l.cfg.Recorder.ContainerEvent(p, container, eventType, reason, message)
	}
}

func readyState(img *pod.Image) pod.ImageState {
	return pod.ImageState{Ready: true, Ref: img.ID, UID: img.UID, Username: img.Username}
}

// waitingState is what is shown while a pull is under way: what was told
// before, as the kubelet does, or that the container is being made.
func waitingState(told pod.ImageState) pod.ImageState {
	if told.Reason == "" {
		told.Reason = pod.ReasonContainerCreating
	}
	told.RetryAt = time.Time{}
	return told
}

// pullFailure is the reason and message for a failed pull. Two reasons of CRI's
// own come as a prefix of the text (k8s.io/cri-api/pkg/errors).
func pullFailure(image string, err error) (reason, message string) {
	text := err.Error()
	if rest, ok := strings.CutPrefix(text, pod.ReasonRegistryUnavailable); ok {
		return pod.ReasonRegistryUnavailable, bounded(fmt.Sprintf("image pull failed for %s because the registry is unavailable%s", image, rest))
	}
	if rest, ok := strings.CutPrefix(text, pod.ReasonSignatureValidationFailed); ok {
		return pod.ReasonSignatureValidationFailed, bounded(fmt.Sprintf("image pull failed for %s because the signature validation failed%s", image, rest))
	}
	if _, advice := causeOf(image, err); advice != "" {
		return pod.ReasonErrImagePull, bounded(text) + " (" + advice + ")"
	}
	return pod.ReasonErrImagePull, bounded(text)
}

func bounded(text string) string {
	if len(text) <= maxPullMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxPullMessage], "") + "…"
}

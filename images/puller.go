package images

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"

	"podd/internal/imageref"
	"podd/internal/pod"
	"podd/internal/text"
	"podd/internal/wake"
)

const (
	maxPullMessage     = 1024
	inspectRetry       = 10 * time.Second
	errImagePullPeriod = 3 * time.Second
	unavailableRetry   = time.Second
)

// Runtime is the part of the container runtime that a Puller needs.
type Runtime interface {
	// ImageStatus is a local lookup; nil if the runtime does not have the image.
	ImageStatus(ctx context.Context, ref string) (*pod.Image, error)
	// PullImage blocks until the image is there, and returns its ID.
	PullImage(ctx context.Context, ref string, auth *pod.RegistryAuth, annotations map[string]string) (string, error)
}

// Waker is called when a pull for a pod has succeeded or failed.
type Waker interface{ Wake(uid pod.UID) }

// Recorder records events.
type Recorder interface {
	// Event attributes the event to the pod, because the image is a volume's.
	Event(p *v1.Pod, eventType, reason, message string)
	ContainerEvent(p *v1.Pod, container, eventType, reason, message string)
}

// Keyring returns the credentials for an image and a pod, in the order in which to try
// them; none means an anonymous pull. An error names the sources that failed. The
// credentials of the others come with it and are used.
type Keyring interface {
	Lookup(ctx context.Context, ref string, p *v1.Pod) ([]pod.RegistryAuth, error)
	// PodCredentials returns the credentials of the pod's own Secrets. It must not block. The error
	// says that the apiserver has not answered yet whether there are more; its answer wakes
	// the pod.
	PodCredentials(ref string, p *v1.Pod) (auths []pod.RegistryAuth, unknown error)
	// RecordMissingSecrets records an event of the pod that lists which of its Secrets for
	// the image are missing, if any. It is called after a pull has failed. It must not
	// block.
	RecordMissingSecrets(ref string, p *v1.Pod)
	// ServiceAccountFor returns the pod's service account if credentials depend on it; else "".
	ServiceAccountFor(ref string, p *v1.Pod) string
}

// PullConfig configures a Puller.
type PullConfig struct {
	Runtime Runtime
	Waker   Waker
	// Recorder, Keyring, Records, Archives, Log and Registerer may be nil. Without Records,
	// every pod may use every image of the node.
	Recorder   Recorder
	Keyring    Keyring
	Records    Records
	Archives   Archives
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// PodUsedImage says whether the runtime has a container of the pod, even a dead one, with an
	// image of that ID; it may be nil.
	PodUsedImage func(ctx context.Context, uid pod.UID, imageID string) (bool, error)
	// Progress returns how many bytes of the current downloads have been received,
	// and their total; it may be nil. It has a second to respond.
	Progress func(ctx context.Context) (received, total int64, err error)
	// DiskFull is called when a pull failed because the disk is full. It may be
	// nil and must not block.
	DiskFull func()
	// MaxParallel is the maximum number of parallel pulls; 0 means 5, and 1 one at
	// a time (serializeImagePulls).
	MaxParallel int
	// MaxPerRegistry is the maximum number of parallel pulls from one registry, so
	// that others find a slot; 0 means half of MaxParallel, rounded up.
	MaxPerRegistry int
	// LongPullsYieldSlot lets a long pull give up its slot, so that three large images do
	// not delay a small one of the same registry (kubernetes/kubernetes#108405).
	// There are never more than four times MaxParallel pulls, and four times
	// MaxPerRegistry from one registry.
	LongPullsYieldSlot bool
	// QPS limits how many pulls start per second, Burst how many at once after a
	// pause (registryPullQPS, registryBurst); 0 means no limit.
	QPS   float64
	Burst int
}

// Puller pulls images for pods. Create it with NewPuller and Run it: before that,
// pulls are only queued.
type Puller struct {
	cfg     PullConfig
	log     *slog.Logger
	metrics *pullMetrics

	poke wake.Signal // wakes Run

	mu               sync.Mutex // guards everything below
	pending          map[imageKey]*pendingImage
	backoff          map[backoffKey]backoff
	pulls            map[pullKey]*pullOp
	queue            []*pullOp      // not started, in order of request
	total            int            // pulls in progress
	active           int            // the pulls that hold a slot
	activeByRegistry map[string]int // the active ones by registry
	totalByRegistry  map[string]int // all by registry
	rate             *rate.Limiter
	// interruptedRecorded says that the leftovers of earlier pulls have been recorded.
	interruptedRecorded bool
}

// imageKey identifies a container that needs an image: its own, or that of a volume that it
// mounts.
type imageKey struct {
	uid               pod.UID
	container, volume string
}

// pendingImage is one image that a container needs: being pulled, or present while others
// are being pulled.
type pendingImage struct {
	pod      *v1.Pod
	image    string
	op       *pullOp // in progress, or nil
	done     *result // a failure not reported yet, or a success not used yet; or nil
	reported pod.ImageState
	// importWaitSince is the time since which the image may yet come from an archive; zero for
	// never.
	importWaitSince time.Time
}

// NewPuller returns a Puller; it starts nothing.
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
		cfg: cfg, log: cfg.Log, metrics: newPullMetrics(cfg.Registerer), poke: wake.New(),
		pending: map[imageKey]*pendingImage{}, backoff: map[backoffKey]backoff{}, pulls: map[pullKey]*pullOp{},
		activeByRegistry: map[string]int{}, totalByRegistry: map[string]int{}, rate: newRate(cfg.QPS, cfg.Burst),
	}
}

// Run starts pulls until ctx ends, which cancels those in progress, and returns
// when all of them have ended. It is called once.
func (l *Puller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		var again time.Time
		if wait := l.dispatch(ctx, &running); wait > 0 {
			again = time.Now().Add(wait)
		}
		if !wake.Until(ctx, l.poke, again) {
			return context.Cause(ctx)
		}
	}
}

// wake makes Run process the queue.
func (l *Puller) wake() {
	l.poke.Notify()
}

// Forget drops everything that a pod requested. A pull that nobody else needs is
// cancelled.
func (l *Puller) Forget(uid pod.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.pending {
		if k.uid == uid {
			l.dropPendingLocked(k, errNobodyWaits)
		}
	}
	for k := range l.backoff {
		if k.uid == uid {
			delete(l.backoff, k)
		}
	}
}

// Retry resets a pod's back-offs, so that its next Ensure pulls at once. The
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

// Imported reports images that were imported (package archive). It wakes the pods that wait
// for one, even in back-off, and cancels a pull of it.
func (l *Puller) Imported(refs []string) {
	names := map[string]bool{}
	for _, r := range refs {
		names[imageref.Full(r)] = true
	}
	l.mu.Lock()
	var wake []pod.UID
	for k, w := range l.pending {
		if ref, err := imageref.WithTag(w.image); err == nil && names[imageref.Full(ref)] {
			delete(l.backoff, backoffKey{k.uid, w.image})
			l.dropPendingLocked(k, errImported)
			wake = append(wake, k.uid)
		}
	}
	l.mu.Unlock()
	for _, uid := range wake {
		l.cfg.Waker.Wake(uid)
	}
}

// pullFailure returns the reason and message of a failed pull.
func pullFailure(image string, err error) (reason, message string) {
	switch reason, rest := criReason(err); reason {
	case pod.ReasonRegistryUnavailable:
		return reason, truncateMessage(fmt.Sprintf("image pull failed for %s because the registry is unavailable%s", image, rest))
	case pod.ReasonSignatureValidationFailed:
		return reason, truncateMessage(fmt.Sprintf("image pull failed for %s because the signature validation failed%s", image, rest))
	}
	if _, advice := causeOf(image, err); advice != "" {
		return pod.ReasonErrImagePull, truncateMessage(err.Error()) + " (" + advice + ")"
	}
	return pod.ReasonErrImagePull, truncateMessage(err.Error())
}

// criReason returns the CRI reason for which a pull failed, and the runtime's text after
// it; empty for none. The reasons are no codes: CRI has them as prefixes of the error's
// text (k8s.io/cri-api/pkg/errors), and the kubelet reads them in the same way.
func criReason(err error) (reason, rest string) {
	for _, reason := range []string{pod.ReasonRegistryUnavailable, pod.ReasonSignatureValidationFailed} {
		if rest, ok := strings.CutPrefix(err.Error(), reason); ok {
			return reason, rest
		}
	}
	return "", ""
}

func truncateMessage(message string) string { return text.Truncate(message, maxPullMessage) }

package events

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/wake"
)

// Client writes events to an apiserver. The methods return the apiserver's errors
// (k8s.io/apimachinery/pkg/api/errors).
type Client interface {
	CreateEvent(ctx context.Context, e *v1.Event) error
	// PatchEvent applies a strategic merge patch.
	PatchEvent(ctx context.Context, namespace, name string, patch []byte) error
}

const (
	// eventTTL is when the apiserver itself forgets an event (--event-ttl).
	eventTTL = time.Hour
	// maxRushDelay is how long an event of type Normal waits at most while the node is in a
	// rush; rushCheckInterval is the interval at which the Uploader checks whether the rush is
	// over.
	maxRushDelay      = 10 * time.Second
	rushCheckInterval = time.Second
)

// uploadRetry is the time between attempts while the apiserver does not answer.
var uploadRetry = wake.Backoff{Initial: 500 * time.Millisecond, Max: 10 * time.Second}

// Uploader sends a Recorder's events to an apiserver. It sends the newest version of each,
// however often it was repeated meanwhile. Create it with NewUploader, and Run it once.
type Uploader struct {
	recorder *Recorder
	client   Client
	limit    *rate.Limiter
	rush     func() bool
	node     func() *v1.Node
	log      *slog.Logger
	// sent are the versions that the apiserver has, by namespace/name. Events are
	// immutable, so a version is a pointer.
	sent map[string]*v1.Event
}

// UploaderConfig is what an Uploader is made of.
type UploaderConfig struct {
	Recorder *Recorder
	Client   Client
	// QPS and Burst bound its requests, as eventRecordQPS and eventBurst do; QPS 0 is no bound.
	QPS   float64
	Burst int
	// Rush, which may be nil and must not block, says that the node has better to do: then
	// events of type Normal wait, ten seconds at most.
	Rush func() bool
	// Node, which may be nil, is this node's Node; nil until it is known.
	Node func() *v1.Node
	Log  *slog.Logger
}

// NewUploader returns an Uploader.
func NewUploader(c UploaderConfig) *Uploader {
	limit := rate.Limit(c.QPS)
	if c.QPS == 0 {
		limit = rate.Inf
	}
	if c.Rush == nil {
		c.Rush = func() bool { return false }
	}
	if c.Node == nil {
		c.Node = func() *v1.Node { return nil }
	}
	sent := map[string]*v1.Event{}
	// The podd before has sent these. What it could not send, since the apiserver was away, is not
	// sent: it is old by now, and would come with each start.
	for _, e := range c.Recorder.restoredEvents() {
		sent[eventID(e)] = e
	}
	return &Uploader{node: c.Node, recorder: c.Recorder, client: c.Client, limit: rate.NewLimiter(limit, max(c.Burst, 1)), rush: c.Rush, log: c.Log, sent: sent}
}

// Run sends events until ctx ends. While the apiserver does not answer, events wait in the
// Recorder.
func (u *Uploader) Run(ctx context.Context) error {
	changes, stop := u.recorder.Watch()
	defer stop()
	var delay time.Duration
	for {
		var again <-chan time.Time
		waiting, err := u.sendAll(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if delay == 0 {
				u.log.Warn("cannot send events to the apiserver: trying again", "error", err)
			}
			delay = uploadRetry.Next(delay)
			again = time.After(delay)
		} else {
			delay = 0
			if waiting {
				again = time.After(rushCheckInterval)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again:
		case <-changes:
			if again != nil { // that more has happened is no reason to ask sooner
				select {
				case <-again:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
	}
}

// sendAll sends what the apiserver does not have, and stops at the first event that gets no
// answer. waiting says that events are left that can wait.
func (u *Uploader) sendAll(ctx context.Context) (waiting bool, err error) {
	all := u.recorder.List(Filter{})
	there := make(map[string]bool, len(all))
	for _, e := range all {
		id := eventID(e)
		there[id] = true
		// Without a UID it is about a manifest; the apiserver has no pod for that.
		if e.InvolvedObject.UID == "" || u.sent[id] == e || time.Since(e.LastTimestamp.Time) > eventTTL {
			continue
		}
		if e.Type == v1.EventTypeNormal && time.Since(e.FirstTimestamp.Time) < maxRushDelay && u.rush() {
			waiting = true
			continue
		}
		if err := u.limit.Wait(ctx); err != nil {
			return false, err
		}
		if err := u.send(ctx, e, u.sent[id] != nil); err != nil {
			return false, err
		}
		u.sent[id] = e
	}
	for id := range u.sent {
		if !there[id] {
			delete(u.sent, id)
		}
	}
	return waiting, nil
}

// send sends one event. If the apiserver refuses it, for example because its namespace is
// being deleted, send does not repeat it: that would not change the answer.
func (u *Uploader) send(ctx context.Context, e *v1.Event, known bool) error {
	var err error
	if known {
		err = u.repeat(ctx, e)
	}
	if !known || apierrors.IsNotFound(err) {
		err = u.client.CreateEvent(ctx, u.withNodeUID(e))
		if apierrors.IsAlreadyExists(err) { // an answer was lost
			err = u.repeat(ctx, e)
		}
	}
	var refused apierrors.APIStatus
	if errors.As(err, &refused) && !apierrors.IsTooManyRequests(err) && !apierrors.IsInternalError(err) && !apierrors.IsServiceUnavailable(err) {
		u.log.Debug("the apiserver refuses an event", "event", e.Namespace+"/"+e.Name, "reason", refused.Status().Reason, "error", err)
		return nil
	}
	return err
}

// withNodeUID returns an event of the node with the UID of its Node object, by which the event
// is found (kubernetes/kubernetes#139921; the kubelet of 1.36 gives the name). Until the
// Node is known, the event keeps the Recorder's UID.
func (u *Uploader) withNodeUID(e *v1.Event) *v1.Event {
	node := u.node()
	if e.InvolvedObject.Kind != "Node" || node == nil || node.UID == "" || node.Name != e.InvolvedObject.Name {
		return e
	}
	e = e.DeepCopy()
	e.InvolvedObject.UID = node.UID
	return e
}

// repeat tells the apiserver of repeats of an event that it has.
func (u *Uploader) repeat(ctx context.Context, e *v1.Event) error {
	patch, err := json.Marshal(struct {
		Count         int32       `json:"count"`
		LastTimestamp metav1.Time `json:"lastTimestamp"`
		Message       string      `json:"message"`
	}{e.Count, e.LastTimestamp, e.Message})
	if err != nil {
		return err
	}
	return u.client.PatchEvent(ctx, e.Namespace, e.Name, patch)
}

package podcerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podd/internal/pod"
	"podd/internal/wake"
)

// Client requests certificates.
type Client interface {
	ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	CreatePodCertificateRequest(ctx context.Context, r *certificatesv1.PodCertificateRequest) (*certificatesv1.PodCertificateRequest, error)
	// FollowPodCertificateRequests calls set with all requests of the node, and again after
	// each change. While the apiserver cannot tell, it calls set with the reason. Calls of set
	// never overlap. It blocks until ctx ends.
	FollowPodCertificateRequests(ctx context.Context, node string, set func(all []*certificatesv1.PodCertificateRequest, err error))
}

// Listener is notified when a pod's credentials have changed or cannot be obtained. It must not
// block for long.
type Listener interface {
	Changed(uid pod.UID)
}

// Events records events of pods.
type Events interface {
	Event(p *v1.Pod, eventType, reason, message string)
}

// Config configures a Manager.
type Config struct {
	Client Client
	Events Events
	// NodeName is the name of this node. Node returns its Node, or nil before it is registered.
	NodeName string
	Node     func() *v1.Node
	Log      *slog.Logger
}

const (
	// maxPerPod bounds the credentials of one pod. Each costs a key, and one object in the
	// cluster per renewal.
	maxPerPod = 100
	// A renewal begins at a random time within refreshJitter after beginRefreshAt. If it has not
	// succeeded overdueAfter later, the pod gets an event (pkg/kubelet/podcertificate).
	refreshJitter = 5 * time.Minute
	overdueAfter  = 10 * time.Minute
	// minRefresh is the least time from a certificate's issue to its renewal. An apiserver allows
	// no earlier beginRefreshAt, but this node's clock may be far ahead of the apiserver's.
	minRefresh = 5 * time.Minute
	// A request that the watch never showed counts as deleted after abandonAfter plus up to
	// refreshJitter (pkg/kubelet/podcertificate). A request that the watch showed and no longer
	// shows counts as deleted at once.
	abandonAfter = 10 * time.Minute
	// maxSleep bounds how late podd notices that the machine was suspended.
	maxSleep = time.Minute
	// maxConcurrentRequests bounds the attempts in flight, and maxConcurrentPerPod those of one
	// pod: a pod with many sources, or with RSA keys, must not hold up the others.
	maxConcurrentRequests = 10
	maxConcurrentPerPod   = 2
)

var (
	// requestBackoff is the back-off after a request could not be created.
	requestBackoff = wake.Backoff{Initial: 500 * time.Millisecond, Max: time.Minute}
	// answerBackoff is the back-off after podd could not use an answer, or the request was
	// deleted. It is longer because each request is another object in the cluster.
	answerBackoff = wake.Backoff{Initial: 10 * time.Second, Max: 10 * time.Minute}
)

// sourceKey identifies a podCertificate source of a pod: the volume, and the index among its
// sources.
type sourceKey struct {
	volume string
	source int
}

// credential is the credential of one source. Manager.mu guards it.
type credential struct {
	pod    *v1.Pod
	key    sourceKey
	source *v1.PodCertificateProjection
	// firstRequested is when the credential was first asked for.
	firstRequested time.Time

	current   *issued     // nil for none
	refreshAt wake.Moment // of current
	overdueAt wake.Moment // the same
	expiresAt wake.Moment // the same
	// overdueTold and expiredTold say that the pod already has this event about current.
	overdueTold, expiredTold bool

	pending *pendingRequest // nil for none
	// refused says why the signer will never give this pod a certificate; state is then denied
	// or failed.
	refused error
	state   string

	err         error    // of the last attempt; nil for none
	unused      *keyPair // of an attempt that failed; the next attempt uses it
	inFlight    bool     // an attempt is in progress
	nextAttempt wake.Moment
	delay       time.Duration
}

// pendingRequest is a PodCertificateRequest without an answer.
type pendingRequest struct {
	name string
	uid  types.UID
	key  *keyPair
	at   time.Time
	// seen says that the apiserver has shown the request; abandonAt is when it counts as deleted
	// if not.
	seen      bool
	abandonAt wake.Moment
}

// Manager keeps the credentials of the node's pods. Create it with New, and Run it once. The
// other methods may be called by any goroutine at any time, and do not block.
type Manager struct {
	cfg  Config
	log  *slog.Logger
	poke wake.Signal
	// keySlots bounds the RSA keys that are generated at a time: each takes seconds of CPU time.
	keySlots chan struct{}

	mu    sync.Mutex
	creds map[pod.UID]map[sourceKey]*credential
	// shown has the requests of this node as the watch last showed them; nil while there is no
	// watch or no answer yet. followErr says why the watch fails.
	shown     map[types.UID]*certificatesv1.PodCertificateRequest
	followErr error
}

// New returns a Manager without credentials.
func New(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{
		cfg: cfg, log: cfg.Log, poke: wake.New(), keySlots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		creds: make(map[pod.UID]map[sourceKey]*credential),
	}
}

// Credential returns the key and the certificate chain of a source of a pod's volume, as PEM. If
// there are none yet, the Manager requests a certificate and notifies the pod later. Until then
// the error has the classes pod.ErrObjectPending and pod.ErrAPIServerUnavailable, and the volume
// keeps the files of an earlier podd. An error of neither class is permanent for the pod. The
// caller must not modify the result.
func (m *Manager) Credential(p *v1.Pod, volume string, source int, s *v1.PodCertificateProjection) (key, chain []byte, err error) {
	if !pod.FromCluster(p) {
		return nil, nil, errors.New("cannot project podCertificate: this pod comes from a manifest and has no service account; only pods of the cluster get certificates")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.credentialLocked(p, sourceKey{volume, source}, s)
	if err == nil {
		switch {
		case c.refused != nil:
			err = c.refused
		case c.current != nil:
			return c.current.key, c.current.chain, nil
		default:
			err = m.whyNoneLocked(c)
		}
	}
	return nil, nil, fmt.Errorf("podCertificate of signer %q: %w", s.SignerName, err)
}

func (m *Manager) credentialLocked(p *v1.Pod, key sourceKey, s *v1.PodCertificateProjection) (*credential, error) {
	of := m.creds[p.UID]
	if c := of[key]; c != nil {
		return c, nil
	}
	switch {
	case keyTypes[s.KeyType] == nil:
		return nil, fmt.Errorf("keyType %q is unknown to podd", s.KeyType)
	case p.Spec.ServiceAccountName == "":
		return nil, errors.New("the pod has no service account (spec.serviceAccountName), and a certificate needs one")
	case len(of) == maxPerPod:
		return nil, fmt.Errorf("the pod has more than %d podCertificate sources: use fewer", maxPerPod)
	}
	if of == nil {
		of = make(map[sourceKey]*credential)
		m.creds[p.UID] = of
	}
	c := &credential{pod: p, key: key, source: s, firstRequested: time.Now()}
	of[key] = c
	m.poke.Notify()
	return c, nil
}

// whyNoneLocked says why there is no certificate yet.
func (m *Manager) whyNoneLocked(c *credential) error {
	switch {
	case c.pending != nil && m.followErr != nil:
		return waitingError{fmt.Errorf("cannot see whether the signer has answered PodCertificateRequest %q: %w", c.pending.name, explain(m.followErr))}
	case c.pending != nil:
		return waitingError{fmt.Errorf("the signer has not answered PodCertificateRequest %q, created at %s: check that a signer of this name runs, and read its log",
			c.pending.name, c.pending.at.UTC().Format(time.RFC3339))}
	case c.err != nil:
		return pod.APIServerUnavailable(c.err)
	}
	return waitingError{errors.New("the certificate is being requested")}
}

// waitingError is an error that goes away with another answer of the apiserver. It has the
// classes pod.ErrObjectPending and pod.ErrAPIServerUnavailable, and its own text.
type waitingError struct{ error }

func (waitingError) Unwrap() error        { return pod.ErrObjectPending }
func (waitingError) Is(target error) bool { return target == pod.ErrAPIServerUnavailable }

// Forget forgets the credentials of a pod, and its keys.
func (m *Manager) Forget(uid pod.UID) {
	m.mu.Lock()
	_, known := m.creds[uid]
	delete(m.creds, uid)
	m.mu.Unlock()
	if known {
		m.poke.Notify()
	}
}

// Run requests and renews certificates, and notifies the listeners in their order, until ctx ends.
func (m *Manager) Run(ctx context.Context, listeners ...Listener) error {
	r := &run{m: m, listeners: listeners, slots: make(chan struct{}, maxConcurrentRequests)}
	defer r.work.Wait()
	defer func() { r.follow(ctx, false) }()
	for {
		next, wanted := r.dispatch(ctx)
		r.follow(ctx, wanted)
		var at time.Time
		if !next.IsZero() {
			at = time.Now().Add(min(time.Until(next), maxSleep))
		}
		if !wake.Until(ctx, m.poke, at) {
			return ctx.Err()
		}
	}
}

// run is one Run of a Manager. Its fields belong to Run's goroutine.
type run struct {
	m         *Manager
	listeners []Listener
	work      sync.WaitGroup
	slots     chan struct{}
	stop      context.CancelFunc // ends the watch; nil: nothing is followed
}

// follow starts or stops the watch of the node's requests, as wanted.
func (r *run) follow(ctx context.Context, wanted bool) {
	switch {
	case wanted && r.stop == nil:
		following, stop := context.WithCancel(ctx)
		r.stop = stop
		r.work.Go(func() {
			r.m.cfg.Client.FollowPodCertificateRequests(following, r.m.cfg.NodeName, func(all []*certificatesv1.PodCertificateRequest, err error) {
				if following.Err() == nil {
					r.m.handleShown(all, err).publish(r.m, r.listeners)
				}
			})
		})
	case !wanted && r.stop != nil:
		r.stop()
		r.stop = nil
		r.m.mu.Lock()
		r.m.shown, r.m.followErr = nil, nil
		r.m.mu.Unlock()
	}
}

// dispatch starts the attempts and records the events that are due. It returns when the next
// one is due (zero if none is known), and whether there is any credential.
func (r *run) dispatch(ctx context.Context) (next time.Time, wanted bool) {
	now := time.Now()
	due := news{}
	r.m.mu.Lock()
	wanted = len(r.m.creds) > 0
	for _, of := range r.m.creds {
		inFlight := attemptsInFlight(of)
		for _, c := range of {
			start, at := c.dueLocked(now, &due)
			if start && inFlight < maxConcurrentPerPod && r.start(ctx, c) { // others follow when an attempt ends
				c.inFlight = true
				inFlight++
			}
			if !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	r.m.mu.Unlock()
	due.publish(r.m, r.listeners)
	return next, wanted
}

// attemptsInFlight counts those of one pod.
func attemptsInFlight(of map[sourceKey]*credential) (n int) {
	for _, c := range of {
		if c.inFlight {
			n++
		}
	}
	return n
}

// start makes an attempt in a goroutine of its own, if one more may be in flight. It notifies
// poke at its end.
func (r *run) start(ctx context.Context, c *credential) bool {
	select {
	case r.slots <- struct{}{}:
	default:
		return false
	}
	r.work.Go(func() {
		r.m.attempt(ctx, c).publish(r.m, r.listeners)
		<-r.slots
		r.m.poke.Notify()
	})
	return true
}

// news collects events and notifications, to be published after the lock is released.
type news struct {
	changed []pod.UID
	events  []podEvent
}

type podEvent struct {
	pod             *v1.Pod
	reason, message string
}

func (n *news) warn(c *credential, reason, format string, args ...any) {
	message := fmt.Sprintf("podCertificate of signer %q in volume %q: ", c.source.SignerName, c.key.volume) + fmt.Sprintf(format, args...)
	n.events = append(n.events, podEvent{c.pod, reason, message})
}

func (n news) publish(m *Manager, listeners []Listener) {
	for _, e := range n.events {
		if m.cfg.Events != nil {
			m.cfg.Events.Event(e.pod, v1.EventTypeWarning, e.reason, e.message)
		}
	}
	for _, uid := range n.changed {
		for _, l := range listeners {
			l.Changed(uid)
		}
	}
}

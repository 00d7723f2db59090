package mirror

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/logonce"
	"podd/internal/pod"
	"podd/internal/wake"
)

// Client changes pods in an apiserver. The methods return the apiserver's errors
// (k8s.io/apimachinery/pkg/api/errors).
type Client interface {
	CreatePod(ctx context.Context, p *v1.Pod) error
	// DeletePod deletes the pod's object at once, if it has this UID.
	DeletePod(ctx context.Context, namespace, name string, uid pod.UID) error
}

// retryBackoff is the back-off for a pod that the apiserver refuses or does not take.
var retryBackoff = wake.Backoff{Initial: time.Second, Max: 5 * time.Minute}

// Config configures a Manager.
type Config struct {
	Client Client
	// Node returns this node's Node. It is not called before Run.
	Node func() *v1.Node
	// Status returns the status of a static pod while anything of it is left on the node; the
	// phase is empty if unknown. It returns nil otherwise.
	Status func(pod.UID) *v1.PodStatus
	// Changes subscribes to changes of Status, until stop is called.
	Changes func() (changes <-chan struct{}, stop func())
	Log     *slog.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer
}

// Manager maintains the mirror pods. Create it with New, and Run it once. The other methods may
// be called by any goroutine at any time; none blocks.
type Manager struct {
	cfg  Config
	poke wake.Signal

	mu sync.Mutex
	// static holds the desired pods of the other sources, by name. sourcesReady is set if each of
	// these sources is ready.
	static       map[podKey]*v1.Pod
	sourcesReady bool
	// mirrors holds the apiserver's mirror pods, by name. mirrorsKnown is set once the apiserver
	// has answered.
	mirrors      map[podKey]*v1.Pod
	mirrorsKnown bool

	// failures belongs to Run.
	failures map[podKey]failure
}

// podKey is a pod's name.
type podKey struct{ namespace, name string }

func podKeyOf(p *v1.Pod) podKey { return podKey{p.Namespace, p.Name} }

func (n podKey) String() string { return n.namespace + "/" + n.name }

// failure is the last failed request about a pod.
type failure struct {
	hash    string // of the request's static pod
	logged  logonce.Failure
	delay   time.Duration
	retryAt time.Time
}

// New returns a Manager that knows no pods.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, poke: wake.New(), failures: make(map[podKey]failure)}
	promauto.With(cfg.Metrics).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_mirror_pods", Help: "Mirror pods of this node that the apiserver has.",
	}, m.count)
	return m
}

// count is the number of mirror pods.
func (m *Manager) count() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return float64(len(m.mirrors))
}

// SetStaticPods takes all pods of the sources other than the apiserver. ready says whether each
// of these sources is ready.
func (m *Manager) SetStaticPods(pods []*pod.Desired, ready bool) {
	static := make(map[podKey]*v1.Pod, len(pods))
	for _, d := range pods {
		static[podKeyOf(d.Pod)] = d.Pod
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.static, m.sourcesReady = static, ready
	m.Wake()
}

// ObservePods takes all pods of this node that the apiserver has.
func (m *Manager) ObservePods(pods []*v1.Pod) {
	mirrors := make(map[podKey]*v1.Pod)
	for _, p := range pods {
		if _, ok := p.Annotations[v1.MirrorPodAnnotationKey]; ok {
			mirrors[podKeyOf(p)] = p
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mirrors, m.mirrorsKnown = mirrors, true
	m.Wake()
}

// Wake compares the mirror pods again. Call it when a pod has gone from the node.
func (m *Manager) Wake() {
	m.poke.Notify()
}

// Run maintains the mirror pods until ctx ends. The Node must be registered.
func (m *Manager) Run(ctx context.Context) error {
	changes, stop := m.cfg.Changes()
	defer stop()
	for {
		var timer <-chan time.Time
		if next := m.sync(ctx); !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.poke:
		case <-changes:
		case <-timer:
		}
	}
}

// request is a request to make.
type request struct {
	pod    podKey
	delete *v1.Pod // nil to create
	create *v1.Pod
}

// sync makes the requests that are due. It returns when the next one is due; zero for none.
func (m *Manager) sync(ctx context.Context) (next time.Time) {
	requests := m.pendingRequests()
	now := time.Now()
	for of := range m.failures {
		if _, due := requests[of]; !due {
			delete(m.failures, of)
		}
	}
	for of, s := range requests {
		last := m.failures[of]
		if hash := s.hash(); last.hash == hash && last.retryAt.After(now) {
			if next.IsZero() || last.retryAt.Before(next) {
				next = last.retryAt
			}
			continue
		} else if last.hash != hash {
			last = failure{hash: hash}
		}
		err := m.send(ctx, s)
		if ctx.Err() != nil {
			return time.Time{}
		}
		if err == nil {
			delete(m.failures, of)
			continue
		}
		if !apierrors.IsNotFound(err) && last.logged.IsNew(err) {
			m.cfg.Log.Warn("cannot show a static pod in the cluster: it runs all the same", "pod", of.String(), "error", err)
		}
		last.delay = retryBackoff.Next(last.delay)
		last.retryAt = time.Now().Add(last.delay)
		m.failures[of] = last
		if next.IsZero() || last.retryAt.Before(next) {
			next = last.retryAt
		}
	}
	return next
}

// pendingRequests returns the requests that bring the mirror pods to their desired state. It
// leaves a mirror pod alone if its source may only be late. It also leaves alone the mirror pod
// of a replaced static pod while anything of that static pod is left on the node: its successor
// waits, too.
func (m *Manager) pendingRequests() map[podKey]request {
	m.mu.Lock()
	defer m.mu.Unlock()
	requests := make(map[podKey]request)
	if !m.mirrorsKnown {
		return requests
	}
	for of, mirror := range m.mirrors {
		hash := mirror.Annotations[v1.MirrorPodAnnotationKey]
		static := m.static[of]
		switch {
		case static != nil && hashOf(static) == hash && mirror.DeletionTimestamp == nil && !m.mirrorStale(mirror, pod.UID(hash)):
		case static != nil && hashOf(static) != hash && mirror.DeletionTimestamp == nil && m.cfg.Status(pod.UID(hash)) != nil:
			// Its static pod is still ending and has its grace period.
		case static == nil && (!m.sourcesReady || m.cfg.Status(pod.UID(hash)) != nil):
		default:
			requests[of] = request{pod: of, delete: mirror}
		}
	}
	for of, static := range m.static {
		if m.mirrors[of] == nil {
			requests[of] = request{pod: of, create: static}
		}
	}
	return requests
}

// mirrorStale reports whether a static pod runs although its mirror pod has ended: it was
// rejected before, or retried. An object that has ended cannot change its phase any more.
func (m *Manager) mirrorStale(mirror *v1.Pod, uid pod.UID) bool {
	s := m.cfg.Status(uid)
	return s != nil && s.Phase != "" && pod.IsPhaseTerminal(mirror.Status.Phase) && !pod.IsPhaseTerminal(s.Phase)
}

// hash identifies the static pod that a request is for.
func (s request) hash() string {
	if s.delete != nil {
		return "-" + string(s.delete.UID)
	}
	return hashOf(s.create)
}

func hashOf(static *v1.Pod) string { return static.Annotations[pod.AnnotationHash] }

// send makes a request. If there is nothing left to do, that is no error: the watch will show
// what the apiserver has. NotFound is an error, though. An apiserver that has only just started
// says so of pods that it has, and the next chance to delete the pod may come much later.
func (m *Manager) send(ctx context.Context, s request) error {
	if s.delete != nil {
		err := m.cfg.Client.DeletePod(ctx, s.pod.namespace, s.pod.name, s.delete.UID)
		if apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	err := m.cfg.Client.CreatePod(ctx, mirrorOf(s.create, m.cfg.Node()))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// mirrorOf returns the mirror pod of a static pod.
func mirrorOf(static *v1.Pod, node *v1.Node) *v1.Pod {
	annotations := maps.Clone(static.Annotations)
	annotations[v1.MirrorPodAnnotationKey] = hashOf(static)
	controller := true
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: static.Namespace, Name: static.Name, Labels: static.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller}},
		},
		Spec: static.Spec,
	}
}

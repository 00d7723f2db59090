package objects

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
	"podd/internal/wake"
)

// Listener is notified when a pod's objects have changed. It must not block for long,
// because others are notified after it.
type Listener interface {
	Changed(uid pod.UID)
}

// Config configures a Store.
type Config struct {
	// BindingsFile is the file for the bindings of claims; it and its directory need not
	// exist. "" keeps them in memory only.
	BindingsFile string
	// NodeLabels has the labels of the node, for the nodeAffinity of volumes; with nil, every
	// volume matches.
	NodeLabels map[string]string
	Log        *slog.Logger
	Metrics    prometheus.Registerer
	// Remote follows the objects of the pods of an apiserver, or is NoRemote.
	Remote Remote
	// ClusterNodeLabels returns the labels of the Node in the apiserver, or nil while they are not
	// known. Volumes of the apiserver select by them. It must not block. Without an
	// apiserver it is NoClusterNodeLabels.
	ClusterNodeLabels func() map[string]string
	// HashKey, of HashKeySize bytes, makes the hashes of Contents comparable among all Stores
	// that have it. Without it they are valid in this process only.
	HashKey []byte
}

// NoClusterNodeLabels serves a node without an apiserver.
var NoClusterNodeLabels func() map[string]string

// Store stores the node's ConfigMaps, Secrets, PersistentVolumes and claims. Its methods
// are safe for concurrent use; only Run and Use block.
type Store struct {
	log               *slog.Logger
	metrics           *metrics
	hashKey           []byte
	epoch             string
	poke              wake.Signal
	remote            Remote // NoRemote for none
	clusterNodeLabels func() map[string]string

	mu      sync.Mutex // guards everything below
	entries map[pod.ObjectKey]entry
	pods    map[pod.UID]registeredPod
	users   map[pod.ObjectKey]map[pod.UID]bool
	// followed are the objects of an apiserver that registered pods reference.
	followed map[pod.ObjectKey]*followedObject
	// remoteClaims are the claims of registered pods of an apiserver.
	remoteClaims map[claimUse]*remoteClaim
	// answerArrived is closed, and replaced, when the apiserver has answered.
	answerArrived chan struct{}
	// changed are the pods with pending notifications.
	changed  map[pod.UID]bool
	problems []pod.Problem
	claims   claimTable
	saving   sync.Mutex // held while the bindings are written; taken before mu
}

// entry is an object with the hash of its content and, for an object of a manifest, the
// time since which there has been an object with its key.
type entry struct {
	object      *pod.Object
	contentHash uint64
	since       time.Time
}

// registeredPod is a registered pod and the objects that it references.
type registeredPod struct {
	name string // namespace/name
	keys []pod.ObjectKey
	// volumeKeys are objects that the PersistentVolumes of its claims name.
	volumeKeys []pod.ObjectKey
}

// New returns an empty Store.
func New(cfg Config) *Store {
	key, epoch := hashKeyOf(&cfg)
	return &Store{
		log: cfg.Log, metrics: newMetrics(cfg.Metrics), hashKey: key, epoch: epoch, poke: wake.New(),
		entries: make(map[pod.ObjectKey]entry), pods: make(map[pod.UID]registeredPod),
		users: make(map[pod.ObjectKey]map[pod.UID]bool), changed: make(map[pod.UID]bool),
		claims: loadClaims(cfg), remote: cfg.Remote, followed: make(map[pod.ObjectKey]*followedObject),
		clusterNodeLabels: cfg.ClusterNodeLabels, remoteClaims: make(map[claimUse]*remoteClaim), answerArrived: make(chan struct{}),
	}
}

// Run notifies the listeners in their order, and then writes changed bindings to disk,
// until ctx ends. The removal of a binding must also be on disk: otherwise, after a restart
// of podd, a new claim of the same name would get the old one's volume.
func (s *Store) Run(ctx context.Context, listeners ...Listener) error {
	failed := ""
	var followers sync.WaitGroup
	defer followers.Wait()
	for {
		s.syncFollowed(ctx, &followers)
		select {
		case <-s.poke:
		case <-ctx.Done():
			return nil
		}
		s.mu.Lock()
		changed := s.changed
		s.changed = make(map[pod.UID]bool)
		s.mu.Unlock()
		for _, uid := range slices.Sorted(maps.Keys(changed)) {
			for _, l := range listeners {
				l.Changed(uid)
			}
		}
		err := s.saveClaims()
		if err != nil && err.Error() != failed { // Use retries and reports the error to the pod
			s.log.Warn("cannot save the bindings of claims", "error", err)
		}
		failed = fmt.Sprint(err)
	}
}

// Replace sets all objects, at most one for each key. It may be called with the same
// objects again.
func (s *Store) Replace(all []*pod.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[pod.ObjectKey]entry, len(all))
	var problems []pod.Problem
	for _, o := range all {
		key := o.Key()
		before, there := s.entries[key]
		e := before
		if before.object != o {
			e = entry{object: o, contentHash: s.contentHash(o), since: o.Seen}
		}
		if there {
			e.since = before.since
		}
		if there && immutable(before.object) && (e.contentHash != before.contentHash || !immutable(o)) {
			problems = append(problems, s.immutableProblemLocked(o))
			e = before
		}
		next[key] = e
		if !there || e.contentHash != before.contentHash {
			s.changedLocked(key)
		}
	}
	for key := range s.entries {
		if _, there := next[key]; !there {
			s.changedLocked(key)
		}
	}
	s.entries, s.problems = next, problems
	s.metrics.count(next)
	s.bindLocked()
	s.pokeLocked()
}

// pokeLocked wakes Run if there are notifications to send, bindings to write, or objects to
// start or stop following.
func (s *Store) pokeLocked() {
	if len(s.changed) == 0 && s.claims.version == s.claims.savedVersion && s.followsAllLocked() {
		return
	}
	s.poke.Notify()
}

// changedLocked marks the pods that reference an object for notification.
func (s *Store) changedLocked(key pod.ObjectKey) {
	s.metrics.changes.WithLabelValues(key.Kind).Inc()
	for uid := range s.users[key] {
		s.changed[uid] = true
	}
}

// immutableProblemLocked returns the problem for a rejected document: it would change an immutable
// object.
func (s *Store) immutableProblemLocked(o *pod.Object) pod.Problem {
	key := o.Key()
	p := pod.Problem{
		Origin: o.Origin, Line: o.Line, Since: o.Seen, LastGoodInUse: true,
		Message: fmt.Sprintf("%s %s/%s is immutable: its content cannot be changed", key.Kind, key.Namespace, key.Name),
		Hint:    "give the changed object another name, and have pods refer to that; or remove the document, and then add it again",
	}
	for _, known := range s.problems {
		if known.Origin == p.Origin && known.Message == p.Message {
			p.Since = known.Since
			return p
		}
	}
	if p.Since.IsZero() {
		p.Since = time.Now()
	}
	s.log.Warn("rejecting a change of an immutable object", "kind", key.Kind, "object", key.Namespace+"/"+key.Name, "origin", o.Origin)
	return p
}

// Problems returns the rejected changes of immutable objects and of bound claims, and the
// problem of a bindings file that could not be read.
func (s *Store) Problems() []pod.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.problems, s.claims.problems, s.claims.fileProblems)
}

// ConfigMap returns a ConfigMap of a pod's namespace from the source of the pod: an
// apiserver or manifests. It must not be modified. The error for a missing one is of class
// pod.ErrNotFound, with the kubelet's wording.
func (s *Store) ConfigMap(p *v1.Pod, name string) (*v1.ConfigMap, error) {
	o, err := s.named(p, pod.KindConfigMap, name)
	if err != nil {
		return nil, fmt.Errorf("configmap %q %w", name, err)
	}
	return o.ConfigMap, nil
}

// Secret is like ConfigMap, for a Secret.
func (s *Store) Secret(p *v1.Pod, name string) (*v1.Secret, error) {
	o, err := s.named(p, pod.KindSecret, name)
	if err != nil {
		return nil, fmt.Errorf("secret %q %w", name, err)
	}
	return o.Secret, nil
}

// SecretOf is like Secret, for a Secret of any namespace that a volume of the pod names. It
// blocks until the apiserver has answered, or until ctx ends.
func (s *Store) SecretOf(ctx context.Context, p *v1.Pod, namespace, name string) (*v1.Secret, error) {
	o, err := s.awaitObject(ctx, pod.ObjectKey{Kind: pod.KindSecret, Namespace: namespace, Name: name, Cluster: pod.FromCluster(p)})
	if err != nil {
		return nil, fmt.Errorf("secret %q %w", name, err)
	}
	return o.Secret, nil
}

func (s *Store) named(p *v1.Pod, kind, name string) (*pod.Object, error) {
	return s.find(pod.ObjectKey{Kind: kind, Namespace: p.Namespace, Name: name, Cluster: pod.FromCluster(p)})
}

// find returns an object; the error is pod.ErrNotFound, or why it is not known.
func (s *Store) find(key pod.ObjectKey) (*pod.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.unknownReasonLocked(key); err != nil {
		return nil, err
	}
	if o := s.entryLocked(key).object; o != nil {
		return o, nil
	}
	return nil, pod.ErrNotFound
}

// CSIDriver is like SecretOf, for a CSIDriver.
func (s *Store) CSIDriver(ctx context.Context, p *v1.Pod, name string) (*storagev1.CSIDriver, error) {
	o, err := s.awaitObject(ctx, pod.ObjectKey{Kind: pod.KindCSIDriver, Name: name, Cluster: pod.FromCluster(p)})
	if err != nil {
		return nil, fmt.Errorf("csidriver %q %w", name, err)
	}
	return o.Driver, nil
}

// KnownCSIDriver is CSIDriver for a caller that cannot wait: while the apiserver has not
// answered, the error is pod.ErrObjectPending.
func (s *Store) KnownCSIDriver(p *v1.Pod, name string) (*storagev1.CSIDriver, error) {
	o, err := s.find(pod.ObjectKey{Kind: pod.KindCSIDriver, Name: name, Cluster: pod.FromCluster(p)})
	if err != nil {
		return nil, fmt.Errorf("csidriver %q %w", name, err)
	}
	return o.Driver, nil
}

// RuntimeClass is like SecretOf, for the RuntimeClass that a pod of an apiserver names.
func (s *Store) RuntimeClass(ctx context.Context, p *v1.Pod) (*nodev1.RuntimeClass, error) {
	name := *p.Spec.RuntimeClassName
	o, err := s.awaitObject(ctx, pod.ObjectKey{Kind: pod.KindRuntimeClass, Name: name, Cluster: true})
	if err != nil {
		return nil, fmt.Errorf("runtimeclass.node.k8s.io %q %w", name, err)
	}
	return o.Class, nil
}

// awaitObject returns an object once it is known whether it exists.
func (s *Store) awaitObject(ctx context.Context, key pod.ObjectKey) (*pod.Object, error) {
	s.awaitKnown(ctx, key)
	return s.find(key)
}

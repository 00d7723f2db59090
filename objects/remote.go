package objects

import (
	"context"
	"fmt"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
)

// Remote follows the objects of an apiserver. Each Follow method calls set with the object
// of that name, if there is one, as soon as that is known and after each change. While it
// cannot be known, it calls set with the reason. Calls of set never overlap. The methods
// block until ctx ends.
type Remote interface {
	FollowConfigMap(ctx context.Context, namespace, name string, set func([]*v1.ConfigMap, error))
	FollowSecret(ctx context.Context, namespace, name string, set func([]*v1.Secret, error))
	FollowCSIDriver(ctx context.Context, name string, set func([]*storagev1.CSIDriver, error))
	FollowRuntimeClass(ctx context.Context, name string, set func([]*nodev1.RuntimeClass, error))
	// FollowTrustBundles follows the ClusterTrustBundle of a name, or all of a signer: one
	// of the two is empty.
	FollowTrustBundles(ctx context.Context, name, signer string, set func([]*certificatesv1.ClusterTrustBundle, error))
	ClaimReader
}

// NoRemote serves a node without an apiserver: all objects come from manifests.
var NoRemote Remote

// followedObject is an object of an apiserver that a registered pod references. Store.mu guards
// it.
type followedObject struct {
	stop context.CancelFunc
	// known says that the apiserver has answered; entry is its last answer, without an
	// object if it has none.
	known bool
	entry entry
	// err says why the apiserver does not answer.
	err error
}

// errNotKnownYet is the error for an object that the apiserver has not answered about yet.
var errNotKnownYet = fmt.Errorf("is not known yet: %w", pod.ErrObjectPending)

// unknownReasonLocked returns the reason why podd cannot say whether an object exists,
// pod.ErrAPIServerUnavailable while the apiserver is away; nil if it can say.
func (s *Store) unknownReasonLocked(key pod.ObjectKey) error {
	if !key.Cluster {
		return nil
	}
	switch f := s.followed[key]; {
	case f == nil || !f.known && f.err == nil:
		return errNotKnownYet // for a moment
	case !f.known:
		return pod.APIServerUnavailable(fmt.Errorf("is not known yet: %w", f.err))
	}
	return nil
}

// entryLocked returns what is known about an object; it is empty for a missing one.
func (s *Store) entryLocked(key pod.ObjectKey) entry {
	if !key.Cluster {
		return s.entries[key]
	}
	if f := s.followed[key]; f != nil {
		return f.entry
	}
	return entry{}
}

// mustFollow says whether an object must be followed.
func (s *Store) mustFollow(key pod.ObjectKey) bool {
	return s.remote != NoRemote && key.Cluster && key.Kind != pod.KindPersistentVolumeClaim
}

// followsAllLocked says whether exactly the objects that registered pods reference are
// followed.
func (s *Store) followsAllLocked() bool {
	if s.remote == NoRemote {
		return true
	}
	n := 0
	for key := range s.users {
		if !s.mustFollow(key) {
			continue
		}
		if s.followed[key] == nil {
			return false
		}
		n++
	}
	return n == len(s.followed) && !s.hasUnreadClaimsLocked()
}

// syncFollowed starts to follow the objects that registered pods now reference, and stops
// following the others.
func (s *Store) syncFollowed(ctx context.Context, work *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, f := range s.followed {
		if len(s.users[key]) == 0 {
			f.stop()
			delete(s.followed, key)
		}
	}
	for key := range s.users {
		if !s.mustFollow(key) || s.followed[key] != nil {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		f := &followedObject{stop: stop}
		s.followed[key] = f
		work.Go(func() {
			defer stop()
			s.followObject(ctx, key, f)
		})
	}
	s.readClaimsLocked(ctx, work)
}

// followObject follows an object until ctx ends. An immutable object need not be followed any
// further.
func (s *Store) followObject(ctx context.Context, key pod.ObjectKey, f *followedObject) {
	switch key.Kind {
	case pod.KindClusterTrustBundle, pod.KindSignerTrustBundles:
		s.followBundles(ctx, key, f)
	case pod.KindSecret:
		s.remote.FollowSecret(ctx, key.Namespace, key.Name, handleAnswers(s, key, f, func(of *v1.Secret) pod.Object { return pod.Object{Secret: of} }))
	case pod.KindCSIDriver:
		s.remote.FollowCSIDriver(ctx, key.Name, handleAnswers(s, key, f, func(of *storagev1.CSIDriver) pod.Object { return pod.Object{Driver: of} }))
	case pod.KindRuntimeClass:
		s.remote.FollowRuntimeClass(ctx, key.Name, handleAnswers(s, key, f, func(of *nodev1.RuntimeClass) pod.Object { return pod.Object{Class: of} }))
	default:
		s.remote.FollowConfigMap(ctx, key.Namespace, key.Name, handleAnswers(s, key, f, func(of *v1.ConfigMap) pod.Object { return pod.Object{ConfigMap: of} }))
	}
}

// handleAnswers passes the apiserver's answers about one object to handleAnswer.
func handleAnswers[T any](s *Store, key pod.ObjectKey, f *followedObject, object func(T) pod.Object) func([]T, error) {
	return func(all []T, err error) {
		var o *pod.Object
		if len(all) > 0 {
			made := object(all[0])
			o = &made
		}
		s.handleAnswer(key, f, o, err)
	}
}

// handleAnswer records the apiserver's answer about an object. While it does not answer, its
// last answer counts.
func (s *Store) handleAnswer(key pod.ObjectKey, f *followedObject, o *pod.Object, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followed[key] != f {
		return // no pod references it any more, or again
	}
	s.wakeWaitersLocked()
	before, was := f.entry, f.known
	if err != nil {
		f.err = err
		if !was { // the pods that wait for it show the reason
			s.changedLocked(key)
			s.pokeLocked()
		}
		return
	}
	f.known, f.err, f.entry = true, nil, entry{object: o}
	if o != nil {
		f.entry.contentHash = s.contentHash(o)
		if immutable(o) {
			f.stop()
		}
	}
	if !was || (before.object == nil) != (o == nil) || before.contentHash != f.entry.contentHash {
		s.changedLocked(key)
		s.pokeLocked()
	}
}

// wakeWaitersLocked makes waitUntil look again.
func (s *Store) wakeWaitersLocked() {
	close(s.answerArrived)
	s.answerArrived = make(chan struct{})
}

// waitUntil blocks until done returns true, or until ctx ends. It calls done with the lock
// held.
func (s *Store) waitUntil(ctx context.Context, done func() bool) {
	for {
		s.mu.Lock()
		over, arrived := done(), s.answerArrived
		s.mu.Unlock()
		if over {
			return
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return
		}
	}
}

// awaitKnown blocks until the apiserver has answered about an object that a registered pod
// references, or cannot answer, or until ctx ends.
func (s *Store) awaitKnown(ctx context.Context, key pod.ObjectKey) {
	if !key.Cluster {
		return
	}
	s.waitUntil(ctx, func() bool {
		f := s.followed[key]
		return f != nil && (f.known || f.err != nil) || len(s.users[key]) == 0
	})
}

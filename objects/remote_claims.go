package objects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/internal/wake"
	"podd/objects/claims"
)

// ClaimReader reads single claims and volumes of an apiserver. An apiserver's Node
// authorizer allows a node no more: it cannot watch them. Both methods block until the
// apiserver has answered.
type ClaimReader interface {
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
}

const (
	// answerTTL is how long an answer is valid for another attempt to use a volume.
	answerTTL = time.Second
	// bindingGrace is how long the apiserver may take to notice that a pod is this node's.
	// Before that, it forbids the node to read the pod's claims.
	bindingGrace = 2 * time.Second
)

// claimBackoff is the delay before a claim that is not bound is read again. podd rarely waits
// for claims: the scheduler does so before it chooses a node.
var claimBackoff = wake.Backoff{Initial: 250 * time.Millisecond, Max: 4 * time.Second}

// pvcProtectionFinalizer is the finalizer that keeps a claim while pods use it.
const pvcProtectionFinalizer = "kubernetes.io/pvc-protection"

// claimUse is a pod's use of a claim. podd reads a claim for each pod, as a kubelet does: a
// claim that was bound when an earlier pod came may be on its way out.
type claimUse struct {
	uid             pod.UID
	namespace, name string
}

// remoteClaim is the apiserver's answer about a claim. Store.mu guards it.
type remoteClaim struct {
	// readPending says that the claim should be read. stop ends the goroutine that reads it, and
	// is nil while there is none.
	readPending bool
	stop        context.CancelFunc
	// readAt is when the last answer came; zero before the first. bound is the volume that
	// the claim is bound to; err says why it cannot be used.
	readAt time.Time
	bound  pod.BoundVolume
	err    error
}

// updateClaimsLocked sets the claims that a pod needs, by its keys.
func (s *Store) updateClaimsLocked(uid pod.UID, keys []pod.ObjectKey) {
	if s.remote == NoRemote {
		return
	}
	needs := func(use claimUse) bool {
		return slices.Contains(keys, pod.ObjectKey{Kind: pod.KindPersistentVolumeClaim, Namespace: use.namespace, Name: use.name, Cluster: true})
	}
	for use, c := range s.remoteClaims {
		if use.uid == uid && !needs(use) {
			c.stopReading()
			delete(s.remoteClaims, use)
		}
	}
	for _, key := range keys {
		use := claimUse{uid, key.Namespace, key.Name}
		if key.Cluster && key.Kind == pod.KindPersistentVolumeClaim && s.remoteClaims[use] == nil {
			s.remoteClaims[use] = &remoteClaim{readPending: true}
		}
	}
}

func (c *remoteClaim) stopReading() {
	if c.stop != nil {
		c.stop()
	}
}

// updateVolumeKeysLocked makes the pod use its keys and the objects that the volumes of its claims
// name: their driver, and its Secrets.
func (s *Store) updateVolumeKeysLocked(uid pod.UID) {
	r, registered := s.pods[uid]
	if !registered {
		return
	}
	s.removeUserLocked(uid, r.volumeKeys)
	r.volumeKeys = nil
	for use, c := range s.remoteClaims {
		if use.uid == uid && c.bound.Volume != nil {
			r.volumeKeys = append(r.volumeKeys, objectsNamedBy(c.bound.Volume)...)
		}
	}
	s.addUserLocked(uid, r.volumeKeys)
	s.addUserLocked(uid, r.keys) // one may be among both
	s.pods[uid] = r
}

// objectsNamedBy returns the objects that a volume of an apiserver names.
func objectsNamedBy(v *v1.PersistentVolume) (keys []pod.ObjectKey) {
	source := v.Spec.CSI
	if source == nil {
		return nil
	}
	keys = append(keys, pod.ObjectKey{Kind: pod.KindCSIDriver, Name: source.Driver, Cluster: true})
	for _, ref := range []*v1.SecretReference{source.NodeStageSecretRef, source.NodePublishSecretRef, source.NodeExpandSecretRef} {
		if ref != nil {
			keys = append(keys, pod.ObjectKey{Kind: pod.KindSecret, Namespace: ref.Namespace, Name: ref.Name, Cluster: true})
		}
	}
	return keys
}

// hasUnreadClaimsLocked says whether a claim should be read but nobody reads it.
func (s *Store) hasUnreadClaimsLocked() bool {
	for _, c := range s.remoteClaims {
		if c.readPending && c.stop == nil {
			return true
		}
	}
	return false
}

// readClaimsLocked starts the pending reads of claims.
func (s *Store) readClaimsLocked(ctx context.Context, work *sync.WaitGroup) {
	for use, c := range s.remoteClaims {
		if !c.readPending || c.stop != nil {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		c.stop = stop
		work.Go(func() {
			defer stop()
			s.readClaim(ctx, use, c)
		})
	}
}

// readClaim reads a claim until it can be used, or ctx ends.
func (s *Store) readClaim(ctx context.Context, use claimUse, c *remoteClaim) {
	began := time.Now()
	for delay := claimBackoff.Initial; ; delay = claimBackoff.Next(delay) {
		bound, err := s.readBoundVolume(ctx, use)
		if ctx.Err() != nil {
			return
		}
		early := apierrors.IsForbidden(err) && time.Since(began) < bindingGrace
		if !early && s.handleClaimAnswer(use, c, bound, err) {
			return
		}
		if !wake.Sleep(ctx, delay) {
			return
		}
	}
}

// readBoundVolume reads a claim and the volume that it is bound to. Its errors are the kubelet's
// (pkg/kubelet/volumemanager/populator), except for a claim that has lost its volume.
func (s *Store) readBoundVolume(ctx context.Context, use claimUse) (b pod.BoundVolume, err error) {
	claim, err := s.remote.Claim(ctx, use.namespace, use.name)
	if err != nil {
		return b, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	}
	name := claim.Spec.VolumeName
	switch {
	case claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, pvcProtectionFinalizer):
		return b, errors.New("PVC is being deleted")
	case claim.Status.Phase == v1.ClaimLost:
		return b, fmt.Errorf("PVC is not bound: it has lost its volume %q", name)
	case claim.Status.Phase != v1.ClaimBound:
		return b, errors.New("PVC is not bound")
	case name == "":
		return b, errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	volume, err := s.remote.PersistentVolume(ctx, name)
	if err != nil {
		return b, fmt.Errorf("failed to fetch PV %s from API server: %w", name, err)
	}
	switch ref := volume.Spec.ClaimRef; {
	case ref == nil:
		return b, fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", name)
	case ref.UID != claim.UID:
		return b, fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", name, ref.UID, claim.UID)
	}
	return pod.BoundVolume{Volume: volume, Claim: claim, Cluster: true}, nil
}

// handleClaimAnswer records the apiserver's answer about a claim, and says whether that is
// enough. If the apiserver does not answer, its last answer counts, as long as the claim
// was bound.
func (s *Store) handleClaimAnswer(use claimUse, c *remoteClaim, bound pod.BoundVolume, err error) (enough bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remoteClaims[use] != c {
		return true
	}
	if c.bound.Volume == nil || !noResponse(err) {
		if c.readAt.IsZero() || fmt.Sprint(c.err) != fmt.Sprint(err) {
			s.changed[use.uid] = true
		}
		c.bound, c.err = bound, err
		s.updateVolumeKeysLocked(use.uid)
	}
	c.readAt = time.Now()
	if enough = c.err == nil; enough {
		c.readPending, c.stop = false, nil
	}
	s.wakeWaitersLocked()
	s.pokeLocked()
	return enough
}

// noResponse says that readBoundVolume has failed because the apiserver did not answer.
func noResponse(err error) bool {
	var answer apierrors.APIStatus
	return errors.Unwrap(err) != nil && !errors.As(err, &answer)
}

// AwaitClaim has the claim of one of the pod's volumes read, if the last answer is older
// than a second, and blocks until the apiserver has answered, or until ctx ends. It does
// nothing for pods of manifests.
func (s *Store) AwaitClaim(ctx context.Context, p *v1.Pod, v *v1.Volume) {
	use := claimUse{p.UID, p.Namespace, pod.ClaimName(p, v)}
	asked := time.Now()
	s.mu.Lock()
	c := s.remoteClaims[use]
	if !pod.FromCluster(p) || c == nil {
		s.mu.Unlock()
		return
	}
	if !c.readPending && asked.Sub(c.readAt) >= answerTTL {
		c.readPending = true
		s.pokeLocked()
	}
	s.mu.Unlock()
	s.waitUntil(ctx, func() bool {
		return s.remoteClaims[use] != c || !c.readAt.IsZero() && (c.err != nil || !c.readPending)
	})
}

// remoteClaim is Claim for a pod of an apiserver.
func (s *Store) remoteClaim(p *v1.Pod, v *v1.Volume) (pod.BoundVolume, error) {
	name := pod.ClaimName(p, v)
	s.mu.Lock()
	defer s.mu.Unlock()
	fail := func(err error) (pod.BoundVolume, error) {
		return pod.BoundVolume{}, fmt.Errorf("error processing PVC %s/%s: %w", p.Namespace, name, err)
	}
	c := s.remoteClaims[claimUse{p.UID, p.Namespace, name}]
	switch {
	case c == nil || c.readAt.IsZero():
		return fail(errNotKnownYet)
	case c.err != nil:
		return fail(c.err)
	case v.Ephemeral != nil && !metav1.IsControlledBy(c.bound.Claim, p):
		return pod.BoundVolume{}, notOwnerError(p, name)
	}
	if s.clusterNodeLabels != nil {
		if err := claims.CheckNode(c.bound.Volume, s.clusterNodeLabels()); err != nil {
			return pod.BoundVolume{}, nodeAffinityError(c.bound.Volume.Name, err.Error())
		}
	}
	b := c.bound
	if v.PersistentVolumeClaim != nil {
		b.ReadOnly = v.PersistentVolumeClaim.ReadOnly
	}
	return b, nil
}

// holdsLocked says whether a pod of an apiserver holds the ReadWriteOncePod volume of a
// claim.
func (s *Store) holdsLocked(key pod.ObjectKey, uid pod.UID) bool {
	c := s.remoteClaims[claimUse{uid, key.Namespace, key.Name}]
	return c != nil && c.bound.Volume != nil && s.claims.remoteHolders[c.bound.Volume.Name] == uid
}

// releaseHolders forgets pods that hold volumes of an apiserver and have left: unlike with
// volumes of manifests, podd does not learn when such a volume is gone.
func (s *Store) releaseHolders(hasLeft func(pod.UID) bool) {
	s.mu.Lock()
	holders := maps.Clone(s.claims.remoteHolders)
	s.mu.Unlock()
	maps.DeleteFunc(holders, func(_ string, uid pod.UID) bool { return !hasLeft(uid) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for volume, uid := range holders {
		if s.claims.remoteHolders[volume] == uid && s.pods[uid].keys == nil {
			delete(s.claims.remoteHolders, volume)
			s.claims.version++
		}
	}
}

package objects

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/checkpoint"
	"podd/internal/pod"
	"podd/objects/claims"
)

// claimTable holds the bindings of claims and volumes. Store.mu guards it.
type claimTable struct {
	nodeLabels map[string]string
	// bound and unseen are as in claims.Input.
	bound  map[string]claims.Ref
	unseen map[string]bool
	// holders are the pods that use ReadWriteOncePod volumes, by name of the volume.
	holders map[string]pod.UID
	// remoteHolders is the same for the volumes of an apiserver.
	remoteHolders map[string]pod.UID
	// ephemeral are claims of registered pods' ephemeral volumes, the oldest first.
	ephemeral []claims.Claim
	// result is the current result of claims.Bind.
	result claims.Result
	// problems are problems of claims; fileProblems are those of the file.
	problems, fileProblems []pod.Problem

	file checkpoint.File[bindingsFile]
	// version counts changes of the bindings that must be saved; savedVersion is the version
	// on disk.
	version, savedVersion int
}

func claimKey(namespace, name string) pod.ObjectKey {
	return pod.ObjectKey{Kind: pod.KindPersistentVolumeClaim, Namespace: namespace, Name: name}
}

// ephemeralClaimsOf returns the claims of a pod's ephemeral volumes, as upstream's controller
// creates them.
func ephemeralClaimsOf(p *v1.Pod) []claims.Claim {
	var all []claims.Claim
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		template := v.Ephemeral.VolumeClaimTemplate
		all = append(all, claims.Claim{Owner: p.UID, PersistentVolumeClaim: &v1.PersistentVolumeClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: pod.KindPersistentVolumeClaim},
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: pod.ClaimName(p, v), Labels: template.Labels, Annotations: template.Annotations,
				CreationTimestamp: metav1.Now()},
			Spec: template.Spec,
		}})
	}
	return all
}

// add adds the claims of a pod and says whether there are any.
func (t *claimTable) add(ephemeral []claims.Claim) bool {
	t.ephemeral = append(t.ephemeral, ephemeral...)
	return len(ephemeral) > 0
}

// remove removes the claims of a pod and says whether there were any.
func (t *claimTable) remove(uid pod.UID) bool {
	before := len(t.ephemeral)
	t.ephemeral = slices.DeleteFunc(t.ephemeral, func(c claims.Claim) bool { return c.Owner == uid })
	return len(t.ephemeral) < before
}

// heldBy says whether the pod holds the claim's ReadWriteOncePod volume.
func (t *claimTable) heldBy(key pod.ObjectKey, uid pod.UID) bool {
	state := t.result.Claims[claims.Key{Namespace: key.Namespace, Name: key.Name}]
	return key.Kind == pod.KindPersistentVolumeClaim && state.VolumeName != "" && t.holders[state.VolumeName] == uid
}

// bindLocked computes the bindings after documents or pods have changed.
func (s *Store) bindLocked() {
	t := &s.claims
	in := claims.Input{Bound: t.bound, Unseen: t.unseen, NodeLabels: t.nodeLabels}
	taken := map[claims.Key]bool{}
	for _, e := range s.entries {
		switch o := e.object; {
		case o.Volume != nil:
			in.Volumes = append(in.Volumes, o.Volume)
			delete(t.unseen, o.Volume.Name)
		case o.Claim != nil:
			in.Claims = append(in.Claims, claims.Claim{PersistentVolumeClaim: o.Claim})
			taken[claims.Key{Namespace: o.Claim.Namespace, Name: o.Claim.Name}] = true
		}
	}
	for _, c := range t.ephemeral { // a name belongs to its first claim until that is gone
		if key := (claims.Key{Namespace: c.Namespace, Name: c.Name}); !taken[key] {
			in.Claims = append(in.Claims, c)
			taken[key] = true
		}
	}
	before := t.result
	for key, state := range before.Claims {
		if !taken[key] { // the claim was removed: its volume is no longer waited for
			delete(t.unseen, state.VolumeName)
		}
	}
	t.result = claims.Bind(in)
	if !maps.Equal(t.bound, t.result.Bound) {
		t.bound = t.result.Bound
		t.version++
	}
	maps.DeleteFunc(t.holders, func(volume string, _ pod.UID) bool { _, bound := t.bound[volume]; return !bound })
	for key, state := range t.result.Claims {
		if old, was := before.Claims[key]; !was || old != state {
			s.changedLocked(claimKey(key.Namespace, key.Name))
		}
	}
	for key := range before.Claims {
		if _, is := t.result.Claims[key]; !is {
			s.changedLocked(claimKey(key.Namespace, key.Name))
		}
	}
	s.updateClaimProblemsLocked()
}

// updateClaimProblemsLocked updates the problems of claims that name another volume than the one
// that they are bound to: as in upstream, the spec of a bound claim is immutable.
func (s *Store) updateClaimProblemsLocked() {
	t := &s.claims
	old := t.problems
	t.problems = nil
	for _, e := range s.entries {
		c := e.object.Claim
		if c == nil || c.Spec.VolumeName == "" {
			continue
		}
		state := t.result.Claims[claims.Key{Namespace: c.Namespace, Name: c.Name}]
		if state.VolumeName == "" || state.VolumeName == c.Spec.VolumeName {
			continue
		}
		p := pod.Problem{
			Origin: e.object.Origin, Line: e.object.Line, Field: "spec.volumeName", Object: e.object.Key().String(), Since: time.Now(), LastGoodInUse: true,
			Message: fmt.Sprintf("spec is immutable after creation: the claim is bound to volume %q", state.VolumeName),
			Hint:    "give the claim for the other volume another name, and have pods refer to that",
		}
		for _, known := range old {
			if known.Origin == p.Origin && known.Line == p.Line && known.Message == p.Message {
				p.Since = known.Since
			}
		}
		t.problems = append(t.problems, p)
	}
	slices.SortFunc(t.problems, func(a, b pod.Problem) int { return strings.Compare(a.Object, b.Object) })
}

// Claim returns the volume that one of the pod's volumes with a claim (pod.ClaimName) is
// bound to. The errors are the kubelet's, and add why the claim is not bound. The error for
// a missing claim is of class pod.ErrNotFound. It does not block.
func (s *Store) Claim(p *v1.Pod, v *v1.Volume) (pod.BoundVolume, error) {
	if pod.FromCluster(p) {
		return s.remoteClaim(p, v)
	}
	name := pod.ClaimName(p, v)
	s.mu.Lock()
	defer s.mu.Unlock()
	claim, err := s.claimLocked(p, v, name)
	if err != nil {
		return pod.BoundVolume{}, err
	}
	fail := func(err error) error { return fmt.Errorf("error processing PVC %s/%s: %w", p.Namespace, name, err) }
	if claim == nil {
		return pod.BoundVolume{}, fail(fmt.Errorf("persistentvolumeclaim %q %w", name, pod.ErrNotFound))
	}
	state := s.claims.result.Claims[claims.Key{Namespace: p.Namespace, Name: name}]
	switch {
	case state.Phase == v1.ClaimPending:
		return pod.BoundVolume{}, fail(fmt.Errorf("PVC is not bound: %s", state.Message))
	case state.Volume == nil:
		return pod.BoundVolume{}, fail(errors.New(state.Message))
	case state.NodeMismatch:
		return pod.BoundVolume{}, nodeAffinityError(state.VolumeName, state.Message)
	}
	b := pod.BoundVolume{Volume: state.Volume, Claim: claim}
	if v.PersistentVolumeClaim != nil {
		b.ReadOnly = v.PersistentVolumeClaim.ReadOnly
	}
	return b, nil
}

// claimLocked returns the claim of that name, or nil. For an ephemeral volume, a claim
// that does not belong to the pod is an error.
func (s *Store) claimLocked(p *v1.Pod, v *v1.Volume, name string) (*v1.PersistentVolumeClaim, error) {
	e, at := s.entries[claimKey(p.Namespace, name)], -1
	if e.object == nil {
		at = slices.IndexFunc(s.claims.ephemeral, func(c claims.Claim) bool { return c.Namespace == p.Namespace && c.Name == name })
	}
	switch {
	case v.Ephemeral != nil && (e.object != nil || at >= 0 && s.claims.ephemeral[at].Owner != p.UID):
		return nil, notOwnerError(p, name)
	case e.object != nil:
		return e.object.Claim, nil
	case at >= 0:
		return s.claims.ephemeral[at].PersistentVolumeClaim, nil
	}
	return nil, nil
}

// notOwnerError is upstream's error (component-helpers, storage/ephemeral).
func notOwnerError(p *v1.Pod, claim string) error {
	return fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", p.Namespace, claim, p.Namespace, p.Name)
}

// nodeAffinityError is upstream's error (operationexecutor).
func nodeAffinityError(volume, why string) error {
	return fmt.Errorf("MountVolume.NodeAffinity check failed for volume %q : %s", volume, why)
}

// errInUse is upstream's error (operationexecutor).
var errInUse = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// Use says that the pod is about to use the volume that Claim returned, and returns once
// the binding is on disk. It fails for a ReadWriteOncePod volume that another pod holds;
// hasLeft says whether that pod has nothing on the node any more, and so no longer holds
// it. It blocks as long as the disk takes.
func (s *Store) Use(b pod.BoundVolume, uid pod.UID, hasLeft func(pod.UID) bool) error {
	name := b.Volume.Name
	holders := s.claims.holders
	if b.Cluster {
		holders = s.claims.remoteHolders
	}
	s.mu.Lock()
	holder, held := holders[name]
	s.mu.Unlock()
	gone := held && holder != uid && hasLeft(holder)
	s.mu.Lock()
	if now, still := holders[name]; b.SinglePod() && (!still || now != uid) {
		if still && !(gone && now == holder) {
			s.mu.Unlock()
			return errInUse
		}
		holders[name] = uid
		s.claims.version++
	}
	s.mu.Unlock()
	s.releaseHolders(hasLeft)
	return s.saveClaims()
}

// Bindings returns the state of each volume and each claim, including those of ephemeral
// volumes. The result must not be modified.
func (s *Store) Bindings() claims.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims.result
}

// EphemeralClaim is the claim of a registered pod's ephemeral volume, with its users.
type EphemeralClaim struct {
	*v1.PersistentVolumeClaim
	// Users are pods as namespace/name.
	Users []string
}

// EphemeralClaims returns the claims of ephemeral volumes, sorted by namespace and name.
func (s *Store) EphemeralClaims() []EphemeralClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []EphemeralClaim
	for _, c := range s.claims.ephemeral {
		all = append(all, EphemeralClaim{c.PersistentVolumeClaim, []string{s.pods[c.Owner].name}})
	}
	slices.SortFunc(all, func(a, b EphemeralClaim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

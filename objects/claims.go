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

	"podd/internal/pod"
	"podd/objects/claims"
)

// claimTable is which claim has which volume. Store.mu guards it.
type claimTable struct {
	node map[string]string
	// bound and unseen are claims.Input's.
	bound  map[string]claims.Ref
	unseen map[string]bool
	// holders are the pods that use a volume which only one may, by its name.
	holders map[string]pod.UID
	// made are claims of registered pods' ephemeral volumes, the oldest first.
	made []claims.Claim
	// now is what came of all of that.
	now claims.Result
	// problems are those of claims, broken the one of the file on disk.
	problems, broken []pod.Problem

	path string
	// version counts changes of what is on disk; saved is the one that is there.
	version, saved int
}

func claimKey(namespace, name string) pod.ObjectKey {
	return pod.ObjectKey{Kind: pod.KindPersistentVolumeClaim, Namespace: namespace, Name: name}
}

// claimsOf are the claims of a pod's ephemeral volumes, as upstream's controller
// makes them.
func claimsOf(p *v1.Pod) []claims.Claim {
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

// add takes in the claims of a pod and says whether there are any.
func (t *claimTable) add(made []claims.Claim) bool {
	t.made = append(t.made, made...)
	return len(made) > 0
}

// remove forgets those of a pod and says whether there were any.
func (t *claimTable) remove(uid pod.UID) bool {
	before := len(t.made)
	t.made = slices.DeleteFunc(t.made, func(c claims.Claim) bool { return c.Owner == uid })
	return len(t.made) < before
}

// heldBy says that the pod has the claim's volume to itself.
func (t *claimTable) heldBy(key pod.ObjectKey, uid pod.UID) bool {
	state := t.now.Claims[claims.Key{Namespace: key.Namespace, Name: key.Name}]
	return key.Kind == pod.KindPersistentVolumeClaim && state.VolumeName != "" && t.holders[state.VolumeName] == uid
}

// bindLocked binds anew, after documents or pods came or went.
func (s *Store) bindLocked() {
	t := &s.claims
	in := claims.Input{Bound: t.bound, Unseen: t.unseen, Node: t.node}
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
	for _, c := range t.made { // a name that is taken stays so until who has it is gone
		if key := (claims.Key{Namespace: c.Namespace, Name: c.Name}); !taken[key] {
			in.Claims = append(in.Claims, c)
			taken[key] = true
		}
	}
	before := t.now
	for key, state := range before.Claims {
		if !taken[key] { // its document was there, and is not waited for any more
			delete(t.unseen, state.VolumeName)
		}
	}
	t.now = claims.Bind(in)
	if !maps.Equal(t.bound, t.now.Bound) {
		t.bound = t.now.Bound
		t.version++
	}
	maps.DeleteFunc(t.holders, func(volume string, _ pod.UID) bool { _, bound := t.bound[volume]; return !bound })
	for key, state := range t.now.Claims {
		if old, was := before.Claims[key]; !was || old != state {
			s.changedLocked(claimKey(key.Namespace, key.Name))
		}
	}
	for key := range before.Claims {
		if _, is := t.now.Claims[key]; !is {
			s.changedLocked(claimKey(key.Namespace, key.Name))
		}
	}
	s.noteRenamedLocked()
}

// noteRenamedLocked are the problems of claims that name another volume than the
// one that they have: as upstream's spec is, a binding is for good.
func (s *Store) noteRenamedLocked() {
	t := &s.claims
	old := t.problems
	t.problems = nil
	for _, e := range s.entries {
		c := e.object.Claim
		if c == nil || c.Spec.VolumeName == "" {
			continue
		}
		state := t.now.Claims[claims.Key{Namespace: c.Namespace, Name: c.Name}]
		if state.VolumeName == "" || state.VolumeName == c.Spec.VolumeName {
			continue
		}
		p := pod.Problem{
			Origin: e.object.Origin, Line: e.object.Line, Field: "spec.volumeName", Object: e.object.Key().String(), Since: time.Now(), KeptRunning: true,
			Message: fmt.Sprintf("spec is immutable after creation: the claim is bound to volume %q", state.VolumeName),
			Hint:    "give the claim for the other volume another name, and have pods name that",
		}
		for _, said := range old {
			if said.Origin == p.Origin && said.Line == p.Line && said.Message == p.Message {
				p.Since = said.Since
			}
		}
		t.problems = append(t.problems, p)
	}
	slices.SortFunc(t.problems, func(a, b pod.Problem) int { return strings.Compare(a.Object, b.Object) })
}

// Claim is what one of the pod's volumes that has a claim (pod.ClaimName) is bound
// to. The errors are the kubelet's, and say besides what it does not know: why the
// claim is not bound. The class of one that is not there is pod.ErrNotFound. It
// does not block.
func (s *Store) Claim(p *v1.Pod, v *v1.Volume) (pod.BoundVolume, error) {
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
	state := s.claims.now.Claims[claims.Key{Namespace: p.Namespace, Name: name}]
	switch {
	case state.Phase == v1.ClaimPending:
		return pod.BoundVolume{}, fail(fmt.Errorf("PVC is not bound: %s", state.Message))
	case state.Volume == nil:
		return pod.BoundVolume{}, fail(errors.New(state.Message))
	case state.Elsewhere:
		return pod.BoundVolume{}, fmt.Errorf("MountVolume.NodeAffinity check failed for volume %q : %s", state.VolumeName, state.Message)
	}
	b := pod.BoundVolume{Volume: state.Volume, Claim: claim}
	if v.PersistentVolumeClaim != nil {
		b.ReadOnly = v.PersistentVolumeClaim.ReadOnly
	}
	return b, nil
}

// claimLocked is the claim of that name, nil for none. One that was not made for
// the pod's ephemeral volume is an error (component-helpers, storage/ephemeral).
func (s *Store) claimLocked(p *v1.Pod, v *v1.Volume, name string) (*v1.PersistentVolumeClaim, error) {
	e, at := s.entries[claimKey(p.Namespace, name)], -1
	if e.object == nil {
		at = slices.IndexFunc(s.claims.made, func(c claims.Claim) bool { return c.Namespace == p.Namespace && c.Name == name })
	}
	switch {
	case v.Ephemeral != nil && (e.object != nil || at >= 0 && s.claims.made[at].Owner != p.UID):
		return nil, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", p.Namespace, name, p.Namespace, p.Name)
	case e.object != nil:
		return e.object.Claim, nil
	case at >= 0:
		return s.claims.made[at].PersistentVolumeClaim, nil
	}
	return nil, nil
}

// errInUse is upstream's (operationexecutor).
var errInUse = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// Use says that the pod is about to use what Claim returned, and returns once that
// binding is on disk. A volume that only one pod may use is refused while another
// has it, which left says is no longer so once it has nothing on the node any more.
// It may block for as long as the disk does.
func (s *Store) Use(b pod.BoundVolume, uid pod.UID, left func(pod.UID) bool) error {
	name := b.Volume.Name
	s.mu.Lock()
	holder, held := s.claims.holders[name]
	s.mu.Unlock()
	gone := held && holder != uid && left(holder)
	s.mu.Lock()
	if now, still := s.claims.holders[name]; b.SinglePod() && (!still || now != uid) {
		if still && !(gone && now == holder) {
			s.mu.Unlock()
			return errInUse
		}
		s.claims.holders[name] = uid
		s.claims.version++
	}
	s.mu.Unlock()
	return s.saveClaims()
}

// Bindings is what became of each volume and each claim, those of ephemeral volumes
// too. Nobody may change it.
func (s *Store) Bindings() claims.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims.now
}

// MadeClaim is the claim of a registered pod's ephemeral volume, and who names it.
type MadeClaim struct {
	*v1.PersistentVolumeClaim
	// Users are namespace/names.
	Users []string
}

// MadeClaims are the claims of ephemeral volumes, by namespace and name.
func (s *Store) MadeClaims() []MadeClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []MadeClaim
	for _, c := range s.claims.made {
		all = append(all, MadeClaim{c.PersistentVolumeClaim, []string{s.pods[c.Owner].name}})
	}
	slices.SortFunc(all, func(a, b MadeClaim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

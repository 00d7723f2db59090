package claims

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Key is a claim's name.
type Key struct{ Namespace, Name string }

// Ref is who a volume is bound to.
type Ref struct {
	Key
	// Owner is the pod for whose ephemeral volume the claim is; empty for the claim
	// of a document.
	Owner pod.UID
}

// Claim is a claim and, if it is one of an ephemeral volume, its pod.
type Claim struct {
	*v1.PersistentVolumeClaim
	Owner pod.UID
}

func (c Claim) ref() Ref { return Ref{Key{c.Namespace, c.Name}, c.Owner} }

// Input is everything that bindings depend on. Bind changes nothing of it.
type Input struct {
	// Volumes and Claims have one entry for each name, in any order.
	Volumes []*v1.PersistentVolume
	Claims  []Claim
	// Bound is who had which volume, by its name.
	Bound map[string]Ref
	// Unseen are volumes of Bound that may still come: nobody has said yet what
	// there is.
	Unseen map[string]bool
	// Node has the labels of the node; nil takes any volume for one of the node.
	Node map[string]string
}

// Result is what Bind makes of it.
type Result struct {
	// Bound is the next Input.Bound.
	Bound map[string]Ref
	// Claims has an entry for each claim, Volumes for each volume.
	Claims  map[Key]ClaimState
	Volumes map[string]VolumeState
}

// ClaimState is what became of a claim.
type ClaimState struct {
	Phase v1.PersistentVolumeClaimPhase
	// VolumeName is what a claim is bound to that is Bound or Lost; Volume is nil
	// where that is not there.
	VolumeName string
	Volume     *v1.PersistentVolume
	// Message says why the claim is not bound, or why its volume is of no use here;
	// else empty.
	Message string
	// Elsewhere says that the volume is bound and cannot be reached from this node.
	Elsewhere bool
}

// VolumeState is what became of a volume.
type VolumeState struct {
	Phase v1.PersistentVolumePhase
	// Ref is who has it, unless it is Available.
	Ref Ref
}

// Bind binds claims and volumes.
func Bind(in Input) Result {
	b := binder{
		in: in, volumes: make(map[string]*v1.PersistentVolume, len(in.Volumes)), claims: make(map[Key]Claim, len(in.Claims)),
		Result: Result{Bound: map[string]Ref{}, Claims: make(map[Key]ClaimState, len(in.Claims)), Volumes: make(map[string]VolumeState, len(in.Volumes))},
	}
	for _, v := range in.Volumes {
		b.volumes[v.Name] = v
	}
	for _, c := range in.Claims {
		b.claims[c.ref().Key] = c
	}
	b.keep()
	order := slices.SortedFunc(maps.Keys(b.claims), func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	b.each(order, b.named)
	b.each(order, b.reserved)
	b.each(order, b.best)
	for _, v := range in.Volumes {
		b.Volumes[v.Name] = b.stateOf(v)
	}
	return b.Result
}

type binder struct {
	in      Input
	volumes map[string]*v1.PersistentVolume
	claims  map[Key]Claim
	sorted  []*v1.PersistentVolume // see candidates
	Result
}

// keep takes over what was bound.
func (b *binder) keep() {
	for _, name := range slices.Sorted(maps.Keys(b.in.Bound)) {
		ref := b.in.Bound[name]
		volume, claim := b.volumes[name], b.claims[ref.Key]
		wanted := claim.PersistentVolumeClaim != nil && claim.Owner == ref.Owner
		switch {
		case volume == nil && !wanted && !b.in.Unseen[name]:
			continue // both are gone
		case volume != nil && volume.Spec.ClaimRef != nil && !reservedFor(volume, ref.Key):
			continue // who owns the volume gives it to another
		}
		b.Bound[name] = ref
		if _, twice := b.Claims[ref.Key]; !wanted || twice {
			continue
		}
		if volume == nil {
			b.Claims[ref.Key] = ClaimState{Phase: v1.ClaimLost, VolumeName: name, Message: notFound(name) + ", and the claim is bound to it: add it again, or remove the claim to have it bound anew"}
			continue
		}
		b.bind(claim, volume)
	}
}

// each looks for a volume for each claim that has none.
func (b *binder) each(order []Key, look func(Claim) (*v1.PersistentVolume, string)) {
	for _, key := range order {
		if state, said := b.Claims[key]; said && state.Phase != v1.ClaimPending {
			continue
		}
		volume, why := look(b.claims[key])
		switch {
		case volume != nil:
			b.bind(b.claims[key], volume)
		case why != "":
			b.Claims[key] = ClaimState{Phase: v1.ClaimPending, Message: why}
		}
	}
}

func (b *binder) bind(c Claim, v *v1.PersistentVolume) {
	state := ClaimState{Phase: v1.ClaimBound, VolumeName: v.Name, Volume: v}
	if err := checkNode(v, b.in.Node); err != nil {
		state.Elsewhere, state.Message = true, err.Error()
	}
	b.Claims[c.ref().Key], b.Bound[v.Name] = state, c.ref()
}

func (b *binder) stateOf(v *v1.PersistentVolume) VolumeState {
	ref, taken := b.Bound[v.Name]
	if !taken {
		return VolumeState{Phase: v1.VolumeAvailable}
	}
	if claim := b.claims[ref.Key]; claim.PersistentVolumeClaim != nil && claim.Owner == ref.Owner {
		return VolumeState{Phase: v1.VolumeBound, Ref: ref}
	}
	return VolumeState{Phase: v1.VolumeReleased, Ref: ref}
}

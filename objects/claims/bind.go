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

// Ref refers to the claim that a volume is bound to.
type Ref struct {
	Key
	// Owner is the pod if the claim belongs to an ephemeral volume; empty for a claim from
	// a manifest.
	Owner pod.UID
}

// Claim is a claim and, for an ephemeral volume's, the pod that owns it.
type Claim struct {
	*v1.PersistentVolumeClaim
	Owner pod.UID
}

func (c Claim) ref() Ref { return Ref{Key{c.Namespace, c.Name}, c.Owner} }

// Input is everything that bindings depend on. Bind does not modify it.
type Input struct {
	// Volumes and Claims have unique names, in any order.
	Volumes []*v1.PersistentVolume
	Claims  []Claim
	// Bound has the current bindings, by name of the volume.
	Bound map[string]Ref
	// Unseen are volumes of Bound that may still appear, because not all sources have
	// been read.
	Unseen map[string]bool
	// NodeLabels has the labels of the node; with nil, every volume matches.
	NodeLabels map[string]string
}

// Result is the result of Bind.
type Result struct {
	// Bound is the next Input.Bound.
	Bound map[string]Ref
	// Claims has an entry for each claim, Volumes for each volume.
	Claims  map[Key]ClaimState
	Volumes map[string]VolumeState
}

// ClaimState is the state of a claim.
type ClaimState struct {
	Phase v1.PersistentVolumeClaimPhase
	// VolumeName is the volume of a claim that is Bound or Lost; Volume is nil if it does
	// not exist.
	VolumeName string
	Volume     *v1.PersistentVolume
	// Message says why the claim is not bound, or why its volume cannot be used on this
	// node; empty otherwise.
	Message string
	// NodeMismatch says that the claim is bound to a volume that this node cannot access.
	NodeMismatch bool
}

// VolumeState is the state of a volume.
type VolumeState struct {
	Phase v1.PersistentVolumePhase
	// Ref is the claim that it is bound to, unless it is Available.
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
	b.retainBindings()
	order := slices.SortedFunc(maps.Keys(b.claims), func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	b.bindEach(order, b.findNamed)
	b.bindEach(order, b.findReserved)
	b.bindEach(order, b.findBest)
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

// retainBindings keeps the existing bindings.
func (b *binder) retainBindings() {
	for _, name := range slices.Sorted(maps.Keys(b.in.Bound)) {
		ref := b.in.Bound[name]
		volume, claim := b.volumes[name], b.claims[ref.Key]
		wanted := claim.PersistentVolumeClaim != nil && claim.Owner == ref.Owner
		switch {
		case volume == nil && !wanted && !b.in.Unseen[name]:
			continue // both were removed
		case volume != nil && volume.Spec.ClaimRef != nil && !reservedFor(volume, ref.Key):
			continue // the volume's claimRef names another claim
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

// bindEach calls look for each claim that is not bound, and binds it to the volume found.
func (b *binder) bindEach(order []Key, look func(Claim) (*v1.PersistentVolume, string)) {
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
	if err := CheckNode(v, b.in.NodeLabels); err != nil {
		state.NodeMismatch, state.Message = true, err.Error()
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

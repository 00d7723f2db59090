package file

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/objects/claims"
	"podd/podconfig/manifest"
)

// unboundClaims returns a warning for each claim that no volume can satisfy on any node: pods that
// name it would wait. Unless content is whole, the volume may be elsewhere, and this is no
// warning.
func unboundClaims(c manifest.Content, whole bool, now time.Time) []pod.Problem {
	in, at := claimsOf(c)
	taken := func(name string) bool {
		return slices.ContainsFunc(in.Volumes, func(v *v1.PersistentVolume) bool { return v.Name == name })
	}
	var out []pod.Problem
	for key, state := range claims.Bind(in).Claims {
		o := at[key]
		if state.Phase == v1.ClaimBound {
			continue
		}
		p := pod.Problem{Origin: o.Origin, Line: o.Line, Object: o.Key().String(), Warning: whole, Since: now,
			Message: "the claim has no volume, and pods that name it would wait: " + state.Message,
			Hint:    "write a PersistentVolume that is large enough and has its storageClassName and accessModes"}
		if !whole {
			p.Message = "needs: a PersistentVolume for the " + o.Key().String()
		}
		if v := manifest.ExampleVolume(o.Claim, taken); v != nil && binds(o.Claim, v) {
			p.Hint, p.Example = "write one, with the directory that you want:", manifest.ExampleManifest(v, nil)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b pod.Problem) int { return cmp.Compare(a.Object, b.Object) })
	return out
}

// claimsOf returns the volumes and claims of content, the first of each name, and their
// locations.
func claimsOf(c manifest.Content) (in claims.Input, at map[claims.Key]*pod.Object) {
	at = map[claims.Key]*pod.Object{}
	for _, o := range c.Objects {
		switch {
		case o.Volume != nil:
			in.Volumes = append(in.Volumes, o.Volume)
		case o.Claim != nil && at[claims.Key{Namespace: o.Claim.Namespace, Name: o.Claim.Name}] == nil:
			at[claims.Key{Namespace: o.Claim.Namespace, Name: o.Claim.Name}] = o
			in.Claims = append(in.Claims, claims.Claim{PersistentVolumeClaim: o.Claim})
		}
	}
	return in, at
}

// binds reports whether a claim would bind to that volume.
func binds(c *v1.PersistentVolumeClaim, v *v1.PersistentVolume) bool {
	r := claims.Bind(claims.Input{Volumes: []*v1.PersistentVolume{v}, Claims: []claims.Claim{{PersistentVolumeClaim: c}}})
	return r.Claims[claims.Key{Namespace: c.Namespace, Name: c.Name}].Phase == v1.ClaimBound
}

// dedupeExamples keeps one example for each file: the example for one claim helps with the others.
func dedupeExamples(problems []pod.Problem) {
	first := map[string]int{}
	for i := range problems {
		p := &problems[i]
		if p.Example == "" {
			continue
		}
		if j, shown := first[p.Origin]; shown {
			p.Hint, p.Example = "as for "+problems[j].Location(), ""
			continue
		}
		first[p.Origin] = i
	}
}

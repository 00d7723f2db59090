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

// unbound returns a warning for each claim that none of the volumes can satisfy,
// whichever node it is: pods that name it would wait.
func unbound(c manifest.Content, now time.Time) []pod.Problem {
	var in claims.Input
	at := map[claims.Key]*pod.Object{}
	for _, o := range c.Objects {
		switch {
		case o.Volume != nil:
			in.Volumes = append(in.Volumes, o.Volume)
		case o.Claim != nil && at[claims.Key{Namespace: o.Claim.Namespace, Name: o.Claim.Name}] == nil:
			at[claims.Key{Namespace: o.Claim.Namespace, Name: o.Claim.Name}] = o
			in.Claims = append(in.Claims, claims.Claim{PersistentVolumeClaim: o.Claim})
		}
	}
	var out []pod.Problem
	for key, state := range claims.Bind(in).Claims {
		if o := at[key]; state.Phase != v1.ClaimBound {
			out = append(out, pod.Problem{Origin: o.Origin, Line: o.Line, Object: o.Key().String(), Warning: true, Since: now,
				Message: "the claim has no volume, and pods that name it would wait: " + state.Message,
				Hint:    "write a PersistentVolume that is large enough and has its storageClassName and accessModes"})
		}
	}
	slices.SortFunc(out, func(a, b pod.Problem) int { return cmp.Compare(a.Object, b.Object) })
	return out
}

package volumes

import (
	"path"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Tokens returns the service account tokens of projections. The error for a token that is
// not there yet says why; Changed is called for the pod when it is. It must not block.
type Tokens interface {
	Token(p *v1.Pod, s *v1.ServiceAccountTokenProjection) (string, error)
}

// NoTokens makes a volume that asks for a token fail: the node has no apiserver.
var NoTokens Tokens

// addToken adds a service account token. If the pod's containers have one user in common, only
// that user and the members of an fsGroup may read it; without either, everybody in the
// containers may (KEP-1205, file permission).
func (f files) addToken(t target, s *v1.ServiceAccountTokenProjection, mode *int32) error {
	if t.sources.tokens == NoTokens {
		return noAPIServer("serviceAccountToken", "issues tokens")
	}
	token, err := t.sources.tokens.Token(t.pod, s)
	if err != nil {
		return err
	}
	f.putPrivate(t, s.Path, []byte(token), mode, s.User)
	return nil
}

// putPrivate adds a file of a projected volume. Only its user may read it: the one that the
// source or the volume names, or else the common user of the pod's containers. With an fsGroup,
// the group may read it, too. Without a user and an fsGroup, everybody may.
func (f files) putPrivate(t target, name string, data []byte, mode *int32, user *int64) {
	owner, owned := commonUser(t.pod)
	if t.sources.users {
		for _, u := range []*int64{t.volume.Projected.DefaultUser, user} {
			if u != nil {
				owner, owned = *u, true
			}
		}
	}
	if owned || fsGroup(t.pod) != nil {
		owners := int32(0o600)
		mode = &owners
	}
	f.put(name, data, mode)
	if owned {
		each := f[path.Clean(name)]
		each.UID = owner
		f[path.Clean(name)] = each
	}
}

// commonUser returns the user that all of a pod's containers run as, if the pod says so.
func commonUser(p *v1.Pod) (uid int64, common bool) {
	first := true
	for c := range pod.ContainerSpecs(&p.Spec) {
		var of *int64
		if s := p.Spec.SecurityContext; s != nil {
			of = s.RunAsUser
		}
		if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
			of = s.RunAsUser
		}
		if of == nil || !first && *of != uid {
			return 0, false
		}
		uid, first = *of, false
	}
	return uid, !first
}

package manifest

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/features"
	"podd/internal/pod"
)

// unsupportedField is a field that is valid Kubernetes but that podd does not implement.
// Ignoring it in silence would run another pod than the one that was written,
// so it is rejected: kinds of volume that podd will not have, and what it does not
// have yet, until its row goes.
type unsupportedField struct{ path, message, hint string }

const resourceClaimsHint = "a scheduler allocates resource claims, so they need a cluster (docs/devices.md); remove the field"

// containerFields are the unsupported fields of a container: where, what to call
// it, and whether the container uses it; path is relative to the container.
var containerFields = []struct {
	path, what string
	used       func(*v1.Container) bool
}{
	{"resources.claims", "resource claims in a manifest", func(c *v1.Container) bool { return len(c.Resources.Claims) > 0 }},
}

// unsupportedFields returns the fields of a defaulted pod that podd does not support with these
// feature gates.
func unsupportedFields(p *v1.Pod, gates features.Set) []unsupportedField {
	var out []unsupportedField
	refuse := func(path, what, hint string) {
		out = append(out, unsupportedField{path, "podd does not support " + what, hint})
	}
	for path, c := range pod.ContainerPaths(&p.Spec) {
		for _, f := range containerFields {
			if f.used(c) {
				refuse(path+"."+f.path, f.what, resourceClaimsHint)
			}
		}
	}
	if len(p.Spec.ResourceClaims) > 0 {
		refuse("spec.resourceClaims", "resource claims in a manifest", resourceClaimsHint)
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		path := fmt.Sprintf("spec.volumes[%d]", i)
		switch {
		case v.EmptyDir != nil && v.EmptyDir.Medium != "" && v.EmptyDir.Medium != v1.StorageMediumMemory && !strings.HasPrefix(string(v.EmptyDir.Medium), string(v1.StorageMediumHugePages)):
			refuse(path+".emptyDir.medium", fmt.Sprintf("emptyDir on %s", v.EmptyDir.Medium), `use medium: Memory, or leave it out for the node's disk`)
		case !supportsVolume(&v.VolumeSource):
			kind := volumeKind(&v.VolumeSource)
			out = append(out, unsupportedField{path + "." + kind, "podd has no " + kind + " volumes", volumeAlternative(kind)})
		}
	}
	for _, f := range Alpha(&p.Spec, gates) {
		refuse(f.Path, f.What, f.Hint())
	}
	return out
}

// supportsVolume says that podd has volumes of this kind.
func supportsVolume(s *v1.VolumeSource) bool {
	return s.HostPath != nil || s.EmptyDir != nil || s.ConfigMap != nil || s.Secret != nil || s.DownwardAPI != nil || s.Projected != nil ||
		s.Image != nil || s.NFS != nil || s.PersistentVolumeClaim != nil || s.Ephemeral != nil || s.CSI != nil
}

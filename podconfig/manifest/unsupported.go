package manifest

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

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

// unsupportedFields returns the fields of a defaulted pod that podd does not support.
func unsupportedFields(p *v1.Pod) []unsupportedField {
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
		alphaOfContainer(path, c, refuse)
	}
	if len(p.Spec.ResourceClaims) > 0 {
		refuse("spec.resourceClaims", "resource claims in a manifest", resourceClaimsHint)
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		path := fmt.Sprintf("spec.volumes[%d]", i)
		alphaOfVolume(path, &v.VolumeSource, refuse)
		switch {
		case v.EmptyDir != nil && v.EmptyDir.Medium != "" && v.EmptyDir.Medium != v1.StorageMediumMemory && !strings.HasPrefix(string(v.EmptyDir.Medium), string(v1.StorageMediumHugePages)):
			refuse(path+".emptyDir.medium", fmt.Sprintf("emptyDir on %s", v.EmptyDir.Medium), `use medium: Memory, or leave it out for the node's disk`)
		case !supportsVolume(&v.VolumeSource):
			kind := volumeKind(&v.VolumeSource)
			out = append(out, unsupportedField{path + "." + kind, "podd has no " + kind + " volumes", volumeAlternative(kind)})
		}
	}
	return out
}

// removeHint is the hint at a field of Kubernetes that is alpha: a kubelet ignores it, too,
// unless a feature gate is set.
const removeHint = "remove the field"

// alphaOfContainer refuses the fields of a container that are alpha in Kubernetes 1.37.
func alphaOfContainer(path string, c *v1.Container, refuse func(path, what, hint string)) {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].BindMountOptions != nil {
			refuse(fmt.Sprintf("%s.volumeMounts[%d].bindMountOptions", path, i), "options of bind mounts", removeHint)
		}
	}
	http := func(path string, get *v1.HTTPGetAction) {
		if get != nil && get.Protocol != nil && *get.Protocol != v1.HTTPProtocolHTTP1 {
			refuse(path+".httpGet.protocol", "requests over "+string(*get.Protocol), removeHint)
		}
	}
	probe := func(path string, p *v1.Probe) {
		if p == nil {
			return
		}
		http(path, p.HTTPGet)
		if g := p.GRPC; g != nil && g.Mode != nil && *g.Mode != v1.GRPCProbeModePlaintext {
			refuse(path+".grpc.mode", "gRPC probes over "+string(*g.Mode), removeHint)
		}
	}
	probe(path+".livenessProbe", c.LivenessProbe)
	probe(path+".readinessProbe", c.ReadinessProbe)
	probe(path+".startupProbe", c.StartupProbe)
	if l := c.Lifecycle; l != nil {
		if l.PostStart != nil {
			http(path+".lifecycle.postStart", l.PostStart.HTTPGet)
		}
		if l.PreStop != nil {
			http(path+".lifecycle.preStop", l.PreStop.HTTPGet)
		}
	}
}

// alphaOfVolume refuses the fields of a volume that are alpha in Kubernetes 1.37.
func alphaOfVolume(path string, v *v1.VolumeSource, refuse func(path, what, hint string)) {
	if v.EmptyDir != nil && v.EmptyDir.Mode != nil {
		refuse(path+".emptyDir.mode", "a mode of emptyDir volumes", removeHint)
	}
	user := func(path, field string, id *int64) {
		if id != nil {
			refuse(path+"."+field, "owners of files", removeHint)
		}
	}
	keys := func(path string, items []v1.KeyToPath) {
		for i := range items {
			user(fmt.Sprintf("%s.items[%d]", path, i), "user", items[i].User)
		}
	}
	fields := func(path string, items []v1.DownwardAPIVolumeFile) {
		for i := range items {
			user(fmt.Sprintf("%s.items[%d]", path, i), "user", items[i].User)
		}
	}
	switch {
	case v.ConfigMap != nil:
		user(path+".configMap", "defaultUser", v.ConfigMap.DefaultUser)
		keys(path+".configMap", v.ConfigMap.Items)
	case v.Secret != nil:
		user(path+".secret", "defaultUser", v.Secret.DefaultUser)
		keys(path+".secret", v.Secret.Items)
	case v.DownwardAPI != nil:
		user(path+".downwardAPI", "defaultUser", v.DownwardAPI.DefaultUser)
		fields(path+".downwardAPI", v.DownwardAPI.Items)
	case v.Projected != nil:
		user(path+".projected", "defaultUser", v.Projected.DefaultUser)
		for i := range v.Projected.Sources {
			path, s := fmt.Sprintf("%s.projected.sources[%d]", path, i), &v.Projected.Sources[i]
			switch {
			case s.ConfigMap != nil:
				keys(path+".configMap", s.ConfigMap.Items)
			case s.Secret != nil:
				keys(path+".secret", s.Secret.Items)
			case s.DownwardAPI != nil:
				fields(path+".downwardAPI", s.DownwardAPI.Items)
			}
		}
	}
}

// supportsVolume says that podd has volumes of this kind.
func supportsVolume(s *v1.VolumeSource) bool {
	return s.HostPath != nil || s.EmptyDir != nil || s.ConfigMap != nil || s.Secret != nil || s.DownwardAPI != nil || s.Projected != nil ||
		s.Image != nil || s.NFS != nil || s.PersistentVolumeClaim != nil || s.Ephemeral != nil || s.CSI != nil
}

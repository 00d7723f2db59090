package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podd/internal/features"
	"podd/internal/pod"
)

// AlphaField is a field of a pod that is alpha in Kubernetes and that podd does not honour,
// because its gate is off or because podd does not have the feature.
type AlphaField struct {
	// Path is the field's path, such as spec.volumes[0].emptyDir.mode. What names the feature
	// that it asks for.
	Path, What string
	// Gate is Kubernetes' feature gate.
	Gate features.Gate
}

// Hint says what to do about the field.
func (f AlphaField) Hint() string {
	if features.IsHad(f.Gate) {
		return fmt.Sprintf("switch on the feature gate %s (featureGates in the configuration, or --feature-gates), or remove the field", f.Gate)
	}
	return "remove the field"
}

// Alpha returns the alpha fields of a pod that podd does not honour with these gates. Upstream's
// validation accepts them in a static pod, because only an apiserver's strategy drops them. The
// kubelet ignores them.
func Alpha(spec *v1.PodSpec, gates features.Set) []AlphaField {
	w := &alphaWalk{gates: gates}
	for path, c := range pod.ContainerPaths(spec) {
		w.container(path, c)
	}
	for i := range spec.Volumes {
		w.volume(fmt.Sprintf("spec.volumes[%d]", i), &spec.Volumes[i].VolumeSource)
	}
	return w.found
}

type alphaWalk struct {
	gates features.Set
	found []AlphaField
}

// add adds a field that is set, unless podd honours it.
func (w *alphaWalk) add(path, what string, gate features.Gate) {
	if !features.IsHad(gate) || !w.gates.Enabled(gate) {
		w.found = append(w.found, AlphaField{path, what, gate})
	}
}

func (w *alphaWalk) container(path string, c *v1.Container) {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].BindMountOptions != nil {
			w.add(fmt.Sprintf("%s.volumeMounts[%d].bindMountOptions", path, i), "options of bind mounts", features.VolumeBindMountOptions)
		}
	}
	w.probe(path+".livenessProbe", c.LivenessProbe)
	w.probe(path+".readinessProbe", c.ReadinessProbe)
	w.probe(path+".startupProbe", c.StartupProbe)
	if l := c.Lifecycle; l != nil {
		if l.PostStart != nil {
			w.http(path+".lifecycle.postStart", l.PostStart.HTTPGet, probesOnly)
		}
		if l.PreStop != nil {
			w.http(path+".lifecycle.preStop", l.PreStop.HTTPGet, probesOnly)
		}
	}
}

func (w *alphaWalk) probe(path string, p *v1.Probe) {
	if p == nil {
		return
	}
	w.http(path, p.HTTPGet, features.H2CContainerProbe)
	if g := p.GRPC; g != nil && g.Mode != nil && *g.Mode != v1.GRPCProbeModePlaintext {
		w.add(path+".grpc.mode", "gRPC probes over "+string(*g.Mode), features.GRPCContainerProbeTLS)
	}
}

// probesOnly stands for no gate: Kubernetes has the field for probes only, and hooks use HTTP/1.1.
const probesOnly features.Gate = ""

func (w *alphaWalk) http(path string, get *v1.HTTPGetAction, gate features.Gate) {
	if get != nil && get.Protocol != nil && *get.Protocol != v1.HTTPProtocolHTTP1 {
		w.add(path+".httpGet.protocol", "requests over "+string(*get.Protocol), gate)
	}
}

func (w *alphaWalk) volume(path string, v *v1.VolumeSource) {
	if v.EmptyDir != nil && v.EmptyDir.Mode != nil {
		w.add(path+".emptyDir.mode", "a mode of emptyDir volumes", features.EmptyDirVolumeMode)
	}
	switch {
	case v.ConfigMap != nil:
		w.user(path+".configMap.defaultUser", v.ConfigMap.DefaultUser)
		w.keys(path+".configMap", v.ConfigMap.Items)
	case v.Secret != nil:
		w.user(path+".secret.defaultUser", v.Secret.DefaultUser)
		w.keys(path+".secret", v.Secret.Items)
	case v.DownwardAPI != nil:
		w.user(path+".downwardAPI.defaultUser", v.DownwardAPI.DefaultUser)
		w.fields(path+".downwardAPI", v.DownwardAPI.Items)
	case v.Projected != nil:
		w.user(path+".projected.defaultUser", v.Projected.DefaultUser)
		for i := range v.Projected.Sources {
			w.projected(fmt.Sprintf("%s.projected.sources[%d]", path, i), &v.Projected.Sources[i])
		}
	}
}

func (w *alphaWalk) projected(path string, s *v1.VolumeProjection) {
	switch {
	case s.ConfigMap != nil:
		w.keys(path+".configMap", s.ConfigMap.Items)
	case s.Secret != nil:
		w.keys(path+".secret", s.Secret.Items)
	case s.DownwardAPI != nil:
		w.fields(path+".downwardAPI", s.DownwardAPI.Items)
	case s.ServiceAccountToken != nil:
		w.user(path+".serviceAccountToken.user", s.ServiceAccountToken.User)
	case s.ClusterTrustBundle != nil:
		w.user(path+".clusterTrustBundle.user", s.ClusterTrustBundle.User)
	case s.PodCertificate != nil:
		w.user(path+".podCertificate.user", s.PodCertificate.User)
	}
}

func (w *alphaWalk) user(path string, id *int64) {
	if id != nil {
		w.add(path, "owners of files", features.AtomicWriteVolumeUserFields)
	}
}

func (w *alphaWalk) keys(path string, items []v1.KeyToPath) {
	for i := range items {
		w.user(fmt.Sprintf("%s.items[%d].user", path, i), items[i].User)
	}
}

func (w *alphaWalk) fields(path string, items []v1.DownwardAPIVolumeFile) {
	for i := range items {
		w.user(fmt.Sprintf("%s.items[%d].user", path, i), items[i].User)
	}
}

package pod

import (
	"iter"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Reference is one place in a pod that names an object, or a key of one.
type Reference struct {
	Object ObjectKey
	// Key is the key of the object that the pod needs, "" for the object as a whole.
	Key string
	// Optional says that the pod can do without the object, or the key.
	Optional bool
	// Path is the field with the object's name, KeyPath the one with Key ("" without
	// one): spec.volumes[0].secret.secretName.
	Path, KeyPath string
	// Volume is the name of the volume that has the field, Container that of the container;
	// "" for a field of the whole pod.
	Volume, Container string
	// ImagePull says that the pod's images are pulled with the object, and without it if it is
	// missing.
	ImagePull bool
	// Generated says that nobody writes the object, since it is made for the pod (ephemeral
	// volumes).
	Generated bool

	// remove removes the reference from the walked pod.
	remove func()
}

// References yields each place in a pod that names an object: first its image pulls, then
// its volumes, then its containers' variables, each in the order of the spec. An object may
// be named many times. A claim, not a pod, names a PersistentVolume. Only pods of an
// apiserver name a RuntimeClass: in other pods, it is the name of a handler.
func References(p *v1.Pod) iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		w := referenceWalk{namespace: p.Namespace, cluster: FromCluster(p), yield: yield}
		w.pulls(&p.Spec)
		for i := range p.Spec.Volumes {
			w.volume(p, &p.Spec.Volumes[i], index("spec.volumes", i))
		}
		for path, c := range ContainerPaths(&p.Spec) {
			w.variables(c, path)
		}
		if name := p.Spec.RuntimeClassName; w.cluster && name != nil {
			w.add(Reference{Path: "spec.runtimeClassName", remove: func() { p.Spec.RuntimeClassName = nil }}, KindRuntimeClass, *name, nil)
		}
	}
}

// WithoutReferences returns a copy of the pod that names no object. Volumes that named one
// become empty directories.
func WithoutReferences(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	for r := range References(p) {
		r.remove()
	}
	return p
}

// referenceWalk is one walk over a pod.
type referenceWalk struct {
	namespace string
	cluster   bool
	yield     func(Reference) bool
	ended     bool // the caller wants no more
}

// add yields a reference, unless it names nothing.
func (w *referenceWalk) add(r Reference, kind, name string, optional *bool) {
	if name == "" || w.ended {
		return
	}
	r.Object = ObjectKey{Kind: kind, Namespace: w.namespace, Name: name, Cluster: w.cluster}
	if !Namespaced(kind) {
		r.Object.Namespace = ""
	}
	r.Optional = optional != nil && *optional
	w.ended = !w.yield(r)
}

// addItems yields a reference for each key that items name, or one for the whole object. The
// field items is next to the field with the object's name.
func (w *referenceWalk) addItems(r Reference, kind, name string, optional *bool, items []v1.KeyToPath) {
	at := r.Path[:strings.LastIndexByte(r.Path, '.')]
	if len(items) == 0 {
		w.add(r, kind, name, optional)
	}
	for i := range items {
		r.Key, r.KeyPath = items[i].Key, index(at+".items", i)+".key"
		w.add(r, kind, name, optional)
	}
}

func (w *referenceWalk) pulls(spec *v1.PodSpec) {
	for i := range spec.ImagePullSecrets {
		w.add(Reference{Path: index("spec.imagePullSecrets", i) + ".name", ImagePull: true, remove: func() { spec.ImagePullSecrets[i].Name = "" }},
			KindSecret, spec.ImagePullSecrets[i].Name, nil)
	}
}

func (w *referenceWalk) volume(p *v1.Pod, v *v1.Volume, at string) {
	r := Reference{Volume: v.Name, remove: func() { v.VolumeSource = v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}} }}
	in := func(path string) Reference { r.Path = at + path; return r }
	switch s := v.VolumeSource; {
	case s.ConfigMap != nil:
		w.addItems(in(".configMap.name"), KindConfigMap, s.ConfigMap.Name, s.ConfigMap.Optional, s.ConfigMap.Items)
	case s.Secret != nil:
		w.addItems(in(".secret.secretName"), KindSecret, s.Secret.SecretName, s.Secret.Optional, s.Secret.Items)
	case s.CSI != nil:
		w.add(in(".csi.driver"), KindCSIDriver, s.CSI.Driver, nil)
		if ref := s.CSI.NodePublishSecretRef; ref != nil {
			w.add(in(".csi.nodePublishSecretRef.name"), KindSecret, ref.Name, nil)
		}
	case s.PersistentVolumeClaim != nil:
		w.add(in(".persistentVolumeClaim.claimName"), KindPersistentVolumeClaim, ClaimName(p, v), nil)
	case s.Ephemeral != nil:
		r.Generated = true
		w.add(in(".ephemeral"), KindPersistentVolumeClaim, ClaimName(p, v), nil)
	case s.Projected != nil:
		for i := range s.Projected.Sources {
			w.projection(v, &s.Projected.Sources[i], index(at+".projected.sources", i))
		}
	}
}

// projection is volume for one source of a projected volume.
func (w *referenceWalk) projection(v *v1.Volume, s *v1.VolumeProjection, at string) {
	r := Reference{Volume: v.Name, remove: func() { *s = v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{}} }}
	in := func(path string) Reference { r.Path = at + path; return r }
	if from := s.ConfigMap; from != nil {
		w.addItems(in(".configMap.name"), KindConfigMap, from.Name, from.Optional, from.Items)
	}
	if from := s.Secret; from != nil {
		w.addItems(in(".secret.name"), KindSecret, from.Name, from.Optional, from.Items)
	}
	switch from := s.ClusterTrustBundle; {
	case from == nil || !w.cluster: // what only an apiserver has
	case from.Name != nil:
		w.add(in(".clusterTrustBundle.name"), KindClusterTrustBundle, *from.Name, from.Optional)
	case from.SignerName != nil:
		w.add(in(".clusterTrustBundle.signerName"), KindSignerTrustBundles, *from.SignerName, from.Optional)
	}
}

func (w *referenceWalk) variables(c *v1.Container, at string) {
	for i := range c.EnvFrom {
		from, at := &c.EnvFrom[i], index(at+".envFrom", i)
		if ref := from.ConfigMapRef; ref != nil {
			w.add(Reference{Path: at + ".configMapRef.name", Container: c.Name, remove: func() { from.ConfigMapRef = nil }}, KindConfigMap, ref.Name, ref.Optional)
		}
		if ref := from.SecretRef; ref != nil {
			w.add(Reference{Path: at + ".secretRef.name", Container: c.Name, remove: func() { from.SecretRef = nil }}, KindSecret, ref.Name, ref.Optional)
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil || from.ConfigMapKeyRef == nil && from.SecretKeyRef == nil {
			continue
		}
		at := index(at+".env", i) + ".valueFrom"
		if ref := from.ConfigMapKeyRef; ref != nil {
			w.add(Reference{Path: at + ".configMapKeyRef.name", Key: ref.Key, KeyPath: at + ".configMapKeyRef.key", Container: c.Name,
				remove: func() { from.ConfigMapKeyRef = nil }}, KindConfigMap, ref.Name, ref.Optional)
		}
		if ref := from.SecretKeyRef; ref != nil {
			w.add(Reference{Path: at + ".secretKeyRef.name", Key: ref.Key, KeyPath: at + ".secretKeyRef.key", Container: c.Name,
				remove: func() { from.SecretKeyRef = nil }}, KindSecret, ref.Name, ref.Optional)
		}
	}
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// ReferencedObjects returns the objects that a pod names, including optional ones, each once, in
// the order in which it names them (References).
func ReferencedObjects(p *v1.Pod) []ObjectKey {
	var keys []ObjectKey
	seen := map[ObjectKey]bool{}
	for r := range References(p) {
		if !seen[r.Object] {
			seen[r.Object] = true
			keys = append(keys, r.Object)
		}
	}
	return keys
}

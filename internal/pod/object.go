package pod

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectKey names an object that pods refer to.
type ObjectKey struct {
	// Kind is one of the constants below.
	Kind string
	// Namespace is empty for a PersistentVolume, CSIDriver or RuntimeClass, which belongs to
	// none.
	Namespace, Name string
	// Cluster: it is an apiserver's, which pods of that apiserver refer to, and not one of
	// the manifests.
	Cluster bool
}

// String is the key as people see it: ConfigMap default/settings.
func (k ObjectKey) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// The kinds of ObjectKeys.
const (
	KindConfigMap             = "ConfigMap"
	KindSecret                = "Secret"
	KindPersistentVolume      = "PersistentVolume"
	KindPersistentVolumeClaim = "PersistentVolumeClaim"
	KindCSIDriver             = "CSIDriver"
	KindRuntimeClass          = "RuntimeClass"
	KindClusterTrustBundle    = "ClusterTrustBundle"
	// KindTrustBundlesOf are all ClusterTrustBundles of the signer that is the key's name.
	KindTrustBundlesOf = "ClusterTrustBundles of"
)

// ObjectKinds are the kinds of Objects that manifests may have; the others are an
// apiserver's only.
var ObjectKinds = []string{KindConfigMap, KindSecret, KindPersistentVolume, KindPersistentVolumeClaim, KindCSIDriver}

// Namespaced says whether objects of a kind belong to a namespace.
func Namespaced(kind string) bool {
	switch kind {
	case KindPersistentVolume, KindCSIDriver, KindRuntimeClass, KindClusterTrustBundle, KindTrustBundlesOf:
		return false
	}
	return true
}

// APIVersion is the group and version of objects of a kind.
func APIVersion(kind string) string {
	if kind == KindCSIDriver {
		return "storage.k8s.io/v1"
	}
	return "v1"
}

// Object is an object that pods refer to, as its source has it: defaulted and
// validated, with its namespace. It is immutable once sent.
type Object struct {
	// One of these is set.
	ConfigMap *v1.ConfigMap
	Secret    *v1.Secret
	Volume    *v1.PersistentVolume
	Claim     *v1.PersistentVolumeClaim
	Driver    *storagev1.CSIDriver
	Class     *nodev1.RuntimeClass
	// Bundles are those that a key of ClusterTrustBundles means: an apiserver's.
	Bundles []TrustBundle
	Source  Source
	// Origin is where a person finds the document: a file's path or a URL.
	Origin string
	// Line is where it begins there, from 1; 0 where unknown.
	Line int
	// Seen is when the source first noticed this version.
	Seen time.Time
}

// TrustBundle is a ClusterTrustBundle, read-only.
type TrustBundle struct {
	Labels map[string]string
	// PEM has the certificates of authorities, as somebody wrote them.
	PEM string
}

// meta is the object's metadata, and what it is.
func (o *Object) meta() (kind string, m *metav1.ObjectMeta) {
	switch {
	case o.Secret != nil:
		return KindSecret, &o.Secret.ObjectMeta
	case o.Volume != nil:
		return KindPersistentVolume, &o.Volume.ObjectMeta
	case o.Claim != nil:
		return KindPersistentVolumeClaim, &o.Claim.ObjectMeta
	case o.Driver != nil:
		return KindCSIDriver, &o.Driver.ObjectMeta
	case o.Class != nil:
		return KindRuntimeClass, &o.Class.ObjectMeta
	}
	return KindConfigMap, &o.ConfigMap.ObjectMeta
}

// Key is the object's name among all objects that manifests may have.
func (o *Object) Key() ObjectKey {
	kind, m := o.meta()
	return ObjectKey{Kind: kind, Namespace: m.Namespace, Name: m.Name}
}

// ObjectsOf are the objects that a pod names, each once, in the order in which it
// names them: those of its variables, of its volumes and of its image pulls,
// optional ones among them. A PersistentVolume is named by a claim, not by a pod, and a
// RuntimeClass by pods of an apiserver only: elsewhere, its name is that of a handler.
func ObjectsOf(p *v1.Pod) []ObjectKey {
	n := namedObjects{namespace: p.Namespace, cluster: FromCluster(p), seen: map[ObjectKey]bool{}}
	for i := range p.Spec.ImagePullSecrets {
		n.add(KindSecret, p.Spec.ImagePullSecrets[i].Name)
	}
	for i := range p.Spec.Volumes {
		n.volume(&p.Spec.Volumes[i])
		n.add(KindPersistentVolumeClaim, ClaimName(p, &p.Spec.Volumes[i]))
	}
	for c := range ContainerSpecs(&p.Spec) {
		n.variables(c)
	}
	if name := p.Spec.RuntimeClassName; n.cluster && name != nil {
		n.add(KindRuntimeClass, *name)
	}
	return n.keys
}

type namedObjects struct {
	namespace string
	cluster   bool
	seen      map[ObjectKey]bool
	keys      []ObjectKey
}

func (n *namedObjects) add(kind, name string) {
	key := ObjectKey{Kind: kind, Namespace: n.namespace, Name: name, Cluster: n.cluster}
	if !Namespaced(kind) {
		key.Namespace = ""
	}
	if name != "" && !n.seen[key] {
		n.seen[key] = true
		n.keys = append(n.keys, key)
	}
}

func (n *namedObjects) volume(v *v1.Volume) {
	switch {
	case v.ConfigMap != nil:
		n.add(KindConfigMap, v.ConfigMap.Name)
	case v.Secret != nil:
		n.add(KindSecret, v.Secret.SecretName)
	case v.CSI != nil:
		n.add(KindCSIDriver, v.CSI.Driver)
		if ref := v.CSI.NodePublishSecretRef; ref != nil {
			n.add(KindSecret, ref.Name)
		}
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			source := &v.Projected.Sources[i]
			if source.ConfigMap != nil {
				n.add(KindConfigMap, source.ConfigMap.Name)
			}
			if source.Secret != nil {
				n.add(KindSecret, source.Secret.Name)
			}
			n.trustBundle(source.ClusterTrustBundle)
		}
	}
}

// trustBundle adds what only an apiserver has.
func (n *namedObjects) trustBundle(s *v1.ClusterTrustBundleProjection) {
	switch {
	case s == nil || !n.cluster:
	case s.Name != nil:
		n.add(KindClusterTrustBundle, *s.Name)
	case s.SignerName != nil:
		n.add(KindTrustBundlesOf, *s.SignerName)
	}
}

func (n *namedObjects) variables(c *v1.Container) {
	for i := range c.EnvFrom {
		if ref := c.EnvFrom[i].ConfigMapRef; ref != nil {
			n.add(KindConfigMap, ref.Name)
		}
		if ref := c.EnvFrom[i].SecretRef; ref != nil {
			n.add(KindSecret, ref.Name)
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from != nil && from.ConfigMapKeyRef != nil {
			n.add(KindConfigMap, from.ConfigMapKeyRef.Name)
		}
		if from != nil && from.SecretKeyRef != nil {
			n.add(KindSecret, from.SecretKeyRef.Name)
		}
	}
}

// AnnotationRestartOnChange has a pod's containers restarted when a ConfigMap or
// Secret that they or their volumes name changes its content: "true" or "false".
const AnnotationRestartOnChange = "podd/restart-on-change"

// RestartOnChange reads the annotation; a bad value is an error, and counts as not
// said.
func RestartOnChange(p *v1.Pod) (bool, error) {
	switch value := p.Annotations[AnnotationRestartOnChange]; value {
	case "true":
		return true, nil
	case "false", "":
		return false, nil
	default:
		return false, fmt.Errorf("annotation %s: %q is neither true nor false", AnnotationRestartOnChange, value)
	}
}

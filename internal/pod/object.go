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
	// Namespace is empty for a PersistentVolume, CSIDriver or RuntimeClass, which belong to
	// none.
	Namespace, Name string
	// Cluster says that the object comes from an apiserver and not from the manifests. Pods
	// of that apiserver refer to it.
	Cluster bool
}

// String returns the key as people see it: ConfigMap default/settings.
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
	// KindSignerTrustBundles means all ClusterTrustBundles of a signer. The key's name is the
	// signer's.
	KindSignerTrustBundles = "ClusterTrustBundles of"
)

// ObjectKinds are the kinds of Objects that manifests may have; only an apiserver has the
// others.
var ObjectKinds = []string{KindConfigMap, KindSecret, KindPersistentVolume, KindPersistentVolumeClaim, KindCSIDriver}

// Namespaced says whether objects of a kind belong to a namespace.
func Namespaced(kind string) bool {
	switch kind {
	case KindPersistentVolume, KindCSIDriver, KindRuntimeClass, KindClusterTrustBundle, KindSignerTrustBundles:
		return false
	}
	return true
}

// APIVersion returns the group and version of objects of a kind.
func APIVersion(kind string) string {
	if kind == KindCSIDriver {
		return "storage.k8s.io/v1"
	}
	return "v1"
}

// Object is an object that pods refer to, as its source has it: defaulted and validated,
// with its namespace. It is immutable once sent.
type Object struct {
	// One of these is set.
	ConfigMap *v1.ConfigMap
	Secret    *v1.Secret
	Volume    *v1.PersistentVolume
	Claim     *v1.PersistentVolumeClaim
	Driver    *storagev1.CSIDriver
	Class     *nodev1.RuntimeClass
	// Bundles are the ones that a key of ClusterTrustBundles selects, from an apiserver.
	Bundles []TrustBundle
	Source  Source
	// Origin says where users find the document: a file's path or a URL.
	Origin string
	// Line is the document's first line there, from 1; 0 if unknown.
	Line int
	// Seen is when the source first noticed this version.
	Seen time.Time
}

// TrustBundle is a ClusterTrustBundle, read-only.
type TrustBundle struct {
	Labels map[string]string
	// PEM has the certificates of authorities, exactly as they were written.
	PEM string
}

// meta returns the object's kind and metadata.
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

// Key returns the object's name among all objects that manifests may have.
func (o *Object) Key() ObjectKey {
	kind, m := o.meta()
	return ObjectKey{Kind: kind, Namespace: m.Namespace, Name: m.Name}
}

// AnnotationRestartOnChange says whether a pod's containers are restarted when the content
// of a ConfigMap or Secret changes that they or their volumes name: "true" or "false".
const AnnotationRestartOnChange = "podd/restart-on-change"

// RestartOnChange reads the annotation. A bad value is an error, and counts as not set.
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

package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// UID identifies one generation of a pod. A static pod's UID is derived from
// the node, the source and the manifest's content, so an edited manifest is
// another pod with another UID.
type UID = types.UID

// Source names where a pod comes from. The values are the kubelet's own, as
// found in the annotation kubernetes.io/config.source.
type Source string

const (
	SourceFile      Source = "file"
	SourceHTTP      Source = "http"
	SourceAPIServer Source = "api"
)

// Annotations and labels that podd writes on sandboxes and containers beyond
// the kubelet's own.
const (
	// AnnotationSource carries the Source; the kubelet's own key.
	AnnotationSource = "kubernetes.io/config.source"
	// AnnotationHash carries the static pod's UID; the kubelet's own key.
	AnnotationHash = "kubernetes.io/config.hash"
	// AnnotationSeen carries the time at which the source first saw the pod
	// (RFC 3339 with nanoseconds); the kubelet's own key.
	AnnotationSeen = "kubernetes.io/config.seen"
	// AnnotationStartTime is podd's own, on sandboxes: the pod's start time
	// (RFC 3339 with nanoseconds), so that it survives a restart of podd and
	// a new sandbox.
	AnnotationStartTime = "podd/start-time"
	// AnnotationInstance is podd's own, on sandboxes and containers: the identity
	// of the podd that made them, one of several that may share a runtime.
	AnnotationInstance = "podd/instance"
	// AnnotationKept is podd's own, on containers: the name of the file in the
	// container's directory that has its preStop hook, where that is too long for
	// an annotation.
	AnnotationKept = "podd/kept"
	// AnnotationImageVolumes is podd's own, on containers: the runtime's IDs of the
	// images that it mounts as volumes, separated by commas. A tag may have moved on
	// since.
	AnnotationImageVolumes = "podd/image-volumes"
	// AnnotationSidecar is podd's own, on the containers of sidecars ("true"): a
	// pod whose manifest is gone ends in order, too.
	AnnotationSidecar = "podd/sidecar"
)

// Desired is one pod as its source wants it: defaulted, validated, with its
// final name, namespace and UID. It is immutable once sent.
type Desired struct {
	Pod    *v1.Pod
	Source Source
	// Origin is where a person finds the manifest: a file's path or a URL.
	Origin string
	// Line is where the pod begins in its manifest, from 1; 0 where unknown.
	Line int
	// Seen is when the source first noticed this generation of the pod.
	Seen time.Time
}

// UID is the pod's identity.
func (d *Desired) UID() UID { return d.Pod.UID }

// Name is the pod's namespace/name, which one running pod at a time may have.
func (d *Desired) Name() string { return d.Pod.Namespace + "/" + d.Pod.Name }

// Op is what an Update asks for; the words are the kubelet's.
type Op string

const (
	// OpAdd brings pods that the source did not name before. An OpAdd without
	// pods says that the source is ready and has nothing.
	OpAdd Op = "ADD"
	// OpUpdate brings a new spec for known UIDs (never from static sources).
	OpUpdate Op = "UPDATE"
	// OpReconcile says that another's view of a pod's status differs from ours.
	OpReconcile Op = "RECONCILE"
	// OpDelete asks for a graceful end, the pod still being listed by its source.
	OpDelete Op = "DELETE"
	// OpRemove says that the source no longer names these pods.
	OpRemove Op = "REMOVE"
)

// Update is one change of the desired set, of one source.
type Update struct {
	Op     Op
	Source Source
	Pods   []*Desired
}

// Problem is something wrong with a manifest, in the words a person needs to
// mend it.
type Problem struct {
	// Origin is the file's path or the URL.
	Origin string `json:"origin"`
	// Document counts the documents of a file from 1; 0 where it does not apply.
	Document int `json:"document,omitempty"`
	// Line counts from 1; 0 where it is not known.
	Line int `json:"line,omitempty"`
	// Field is the path of the field (spec.containers[0].image), if any.
	Field string `json:"field,omitempty"`
	// Pod is namespace/name of the pod concerned, where it is known.
	Pod string `json:"pod,omitempty"`
	// Object is the ConfigMap or Secret concerned, where it is known: its
	// ObjectKey as people see it.
	Object string `json:"object,omitempty"`
	// Message says what is wrong: the apiserver's verdict to the word, where
	// it is one.
	Message string `json:"message"`
	// Hint says what to do about it, if more can be said than Message does.
	Hint string `json:"hint,omitempty"`
	// KeptRunning says that the last good version of the pod goes on running, or
	// that that of the object goes on being used.
	KeptRunning bool `json:"keptRunning,omitempty"`
	// Warning says that the pod runs as its manifest says, which is probably not
	// what its writer meant.
	Warning bool `json:"warning,omitempty"`
	// Since is when the problem was first seen.
	Since time.Time `json:"since"`
}

package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// UID identifies one generation of a pod. A static pod's UID is derived from the node, the
// source and the manifest's content, so an edited manifest makes another pod with another
// UID.
type UID = types.UID

// Source says where a pod comes from. The values are the kubelet's own, as in the
// annotation kubernetes.io/config.source.
type Source string

const (
	SourceFile      Source = "file"
	SourceHTTP      Source = "http"
	SourceAPIServer Source = "api"
)

// The annotations and labels that podd sets on sandboxes and containers, in addition to the
// kubelet's own.
const (
	// AnnotationSource is the Source; the kubelet's own key.
	AnnotationSource = "kubernetes.io/config.source"
	// AnnotationHash is the static pod's UID; the kubelet's own key.
	AnnotationHash = "kubernetes.io/config.hash"
	// AnnotationSeen is the time at which the source first saw the pod (RFC 3339 with
	// nanoseconds); the kubelet's own key.
	AnnotationSeen = "kubernetes.io/config.seen"
	// AnnotationStartTime is podd's own, on sandboxes: the pod's start time
	// (RFC 3339 with nanoseconds), so that it survives a restart of podd and
	// a new sandbox.
	AnnotationStartTime = "podd/start-time"
	// AnnotationInstance is podd's own, on sandboxes and containers: the ID of the podd
	// that created them, because several podds may share a runtime.
	AnnotationInstance = "podd/instance"
	// AnnotationImageVolumes is podd's own, on containers: the runtime's IDs of the images
	// that it mounts as volumes, separated by commas. A tag may have moved since.
	AnnotationImageVolumes = "podd/image-volumes"
	// AnnotationObjects is podd's own, on containers of pods that are restarted when their
	// objects change: the ContentHashes when the containers were made.
	AnnotationObjects = "podd/objects"
	// AnnotationConfidential is podd's own, on containers: the names of their variables
	// with a Secret's value, in the format of Environment.ConfidentialNames.
	AnnotationConfidential = "podd/confidential-variables"
	// AnnotationSidecar is podd's own, on the containers of sidecars ("true"), so that a
	// pod terminates in order even after its manifest is gone.
	AnnotationSidecar = "podd/sidecar"
)

// FromCluster says that a pod comes from an apiserver, by the annotation that its source
// sets.
func FromCluster(p *v1.Pod) bool { return p.Annotations[AnnotationSource] == string(SourceAPIServer) }

// Desired is a pod as its source desires it: defaulted, validated, with its final
// name, namespace and UID. It is immutable once sent.
type Desired struct {
	Pod    *v1.Pod
	Source Source
	// Origin is where users find the manifest: a file's path or a URL.
	Origin string
	// Line is the first line of the pod in its manifest, from 1; 0 if unknown.
	Line int
	// Seen is when the source first saw this generation of the pod.
	Seen time.Time
}

// UID returns the UID of the pod.
func (d *Desired) UID() UID { return d.Pod.UID }

// Name returns the pod's namespace/name, which is unique among running pods.
func (d *Desired) Name() string { return d.Pod.Namespace + "/" + d.Pod.Name }

// Op is the operation of an Update, in the kubelet's words.
type Op string

const (
	// OpAdd adds new pods of the source. Without pods it says that the source is ready and
	// has none.
	OpAdd Op = "ADD"
	// OpUpdate has new specs for known UIDs (never from static sources).
	OpUpdate Op = "UPDATE"
	// OpReconcile says that the apiserver's view of a pod's status differs from
	// podd's.
	OpReconcile Op = "RECONCILE"
	// OpDelete requests graceful deletion; the source still lists the pod.
	OpDelete Op = "DELETE"
	// OpRemove says that the source no longer lists these pods.
	OpRemove Op = "REMOVE"
)

// Update is one change of the desired set of one source.
type Update struct {
	Op     Op
	Source Source
	Pods   []*Desired
	// Provisional says that the source does not know its whole set yet: it is not ready,
	// and may still desire a pod that it has not named.
	Provisional bool
}

// Problem is a problem of a manifest, described for the users who fix it.
type Problem struct {
	// Origin is the file's path or the URL.
	Origin string `json:"origin"`
	// Document is the number of the document in its file, from 1; 0 if that does not
	// apply.
	Document int `json:"document,omitempty"`
	// Line is from 1; 0 if unknown.
	Line int `json:"line,omitempty"`
	// Field is the path of the field (spec.containers[0].image), if any.
	Field string `json:"field,omitempty"`
	// Pod is the namespace/name of the pod concerned, if known.
	Pod string `json:"pod,omitempty"`
	// Object is the ConfigMap or Secret concerned, if known: its ObjectKey as people
	// see it.
	Object string `json:"object,omitempty"`
	// Message says what is wrong: the apiserver's message to the letter, if it has one.
	Message string `json:"message"`
	// Hint says what to do, if that is not obvious from Message.
	Hint string `json:"hint,omitempty"`
	// Example is a text that Hint tells users to write into a manifest, of several lines.
	Example string `json:"example,omitempty"`
	// LastGoodInUse says that the last good version of the pod continues to run, or that the
	// object's last good version stays in use.
	LastGoodInUse bool `json:"keptRunning,omitempty"`
	// Warning says that the pod runs as its manifest says, but that this is probably not
	// intended.
	Warning bool `json:"warning,omitempty"`
	// Since is when the problem was first seen.
	Since time.Time `json:"since"`
}

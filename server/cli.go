package server

import (
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// Listing is the response of /podd/v1/pods: everything that podd ps shows.
type Listing struct {
	Pods     []PodInfo     `json:"pods"`
	Problems []pod.Problem `json:"problems"`
}

// PodInfo is a pod and the origin of its manifest.
type PodInfo struct {
	Pod    *v1.Pod `json:"pod"`
	Origin string  `json:"origin,omitempty"`
	// Causes are Config.Causes.
	Causes map[string]string `json:"causes,omitempty"`
}

// ObjectInfo is what podd shows of an object that pods refer to.
type ObjectInfo struct {
	// Kind is one of pod.ObjectKinds.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Type is a Secret's.
	Type      string `json:"type,omitempty"`
	Immutable *bool  `json:"immutable,omitempty"`
	// Keys are the keys of a ConfigMap or Secret, sorted. podd shows nobody their values.
	Keys []string `json:"keys"`
	// Storage is set for a PersistentVolume and a PersistentVolumeClaim.
	Storage *StorageInfo `json:"storage,omitempty"`
	// UsedBy lists the pods that use the object as namespace/name, sorted.
	UsedBy []string `json:"usedBy"`
	// Origin is the path or URL of the object's document. Line is the line where it begins, or
	// 0 if unknown.
	Origin string `json:"origin,omitempty"`
	Line   int    `json:"line,omitempty"`
	// Seen is when this podd first saw the object. An edit does not change it.
	Seen time.Time `json:"seen"`
}

// StorageInfo describes a PersistentVolume or a claim.
type StorageInfo struct {
	// Status is upstream's phase: Available, Bound, Released; Pending, Bound, Lost.
	Status string `json:"status"`
	// Reason says why a claim is not bound, or why its volume cannot be used.
	Reason string `json:"reason,omitempty"`
	// Capacity is the volume's capacity; for a claim, that of the volume it is bound to.
	Capacity      string   `json:"capacity,omitempty"`
	AccessModes   []string `json:"accessModes,omitempty"`
	ReclaimPolicy string   `json:"reclaimPolicy,omitempty"`
	StorageClass  string   `json:"storageClassName,omitempty"`
	VolumeMode    string   `json:"volumeMode,omitempty"`
	// Claim is the namespace/name of a volume's claim. Volume is the name of a claim's volume.
	Claim  string `json:"claim,omitempty"`
	Volume string `json:"volume,omitempty"`
}

func (s *Server) problems() []pod.Problem {
	if s.config.Problems == nil {
		return []pod.Problem{}
	}
	return append([]pod.Problem{}, s.config.Problems()...)
}

func (s *Server) listing() Listing {
	l := Listing{Pods: []PodInfo{}, Problems: s.problems()}
	for _, p := range s.config.Pods.Pods() {
		info := PodInfo{Pod: p, Origin: s.config.Pods.Origin(p.UID)}
		if s.config.Causes != nil {
			info.Causes = s.config.Causes(p)
		}
		l.Pods = append(l.Pods, info)
	}
	return l
}

// events responds with the events of ?namespace and ?name. The name may be the one in the
// manifest, without the node's name that podd appends for static pods.
func (s *Server) events(r *http.Request) any {
	list := v1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: []v1.Event{}}
	if s.config.Events == nil {
		return list
	}
	namespace, name := r.URL.Query().Get("namespace"), r.URL.Query().Get("name")
	found := s.config.Events(namespace, name)
	if len(found) == 0 && name != "" && s.config.NodeName != "" {
		found = s.config.Events(namespace, name+"-"+s.config.NodeName)
	}
	for _, e := range found {
		list.Items = append(list.Items, *e)
	}
	return list
}

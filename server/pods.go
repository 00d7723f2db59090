package server

import (
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// podList is the kubelet's GET /pods. Its items have no kind.
func podList(pods []*v1.Pod) *v1.PodList {
	list := &v1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		Items:    make([]v1.Pod, 0, len(pods)),
	}
	for _, p := range pods {
		item := *p
		item.TypeMeta = metav1.TypeMeta{}
		list.Items = append(list.Items, item)
	}
	return list
}

// withoutStatus returns copies of the pods without status, which is not part of an allocation.
func withoutStatus(pods []*v1.Pod) []*v1.Pod {
	all := make([]*v1.Pod, len(pods))
	for i, p := range pods {
		one := *p
		one.Status = v1.PodStatus{}
		all[i] = &one
	}
	return all
}

// allocatedPod is the kubelet's GET /allocatedPods/{namespace}/{pod}[/{uid}].
func (s *Server) allocatedPod(w http.ResponseWriter, r *http.Request) {
	for _, p := range s.config.Kubelet.AllocatedPods() {
		uid := r.PathValue("uid")
		if p.Namespace != r.PathValue("namespace") || p.Name != r.PathValue("pod") || uid != "" && uid != string(p.UID) {
			continue
		}
		one := *withoutStatus([]*v1.Pod{p})[0]
		one.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		s.serveJSON(func(*http.Request) any { return &one }).ServeHTTP(w, r)
		return
	}
	http.Error(w, "pod not found", http.StatusNotFound)
}

// runningPods is the kubelet's GET /runningpods: pods with a running container, with
// names and images only.
func runningPods(pods []*v1.Pod) *v1.PodList {
	list := podList(nil)
	for _, p := range pods {
		item := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID}}
		for cs := range pod.ContainerStatuses(&p.Status) {
			if cs.State.Running != nil {
				item.Spec.Containers = append(item.Spec.Containers, v1.Container{Name: cs.Name, Image: cs.Image})
			}
		}
		if len(item.Spec.Containers) > 0 {
			list.Items = append(list.Items, item)
		}
	}
	return list
}

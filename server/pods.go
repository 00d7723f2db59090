package server

import (
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

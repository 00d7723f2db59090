package podresources

import (
	"context"

	v1 "k8s.io/api/core/v1"
	alpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"podd/internal/pod"
)

// alphaVersion is the version of the first API, which some agents still use.
const alphaVersion = "v1alpha1"

// alphaServer serves the first API from a Server's data.
type alphaServer struct {
	alpha.UnimplementedPodResourcesListerServer
	s *Server
}

// List returns the pods that have not ended, with the devices of their containers. Like
// upstream's, it omits sidecars.
func (a alphaServer) List(context.Context, *alpha.ListPodResourcesRequest) (*alpha.ListPodResourcesResponse, error) {
	a.s.metrics.total.WithLabelValues(alphaVersion).Inc()
	r := &alpha.ListPodResourcesResponse{}
	for _, p := range a.s.pods() {
		r.PodResources = append(r.PodResources, a.podResources(p))
	}
	return r, nil
}

func (a alphaServer) podResources(p *v1.Pod) *alpha.PodResources {
	r := &alpha.PodResources{Name: p.Name, Namespace: p.Namespace}
	for i := range p.Spec.Containers {
		c := &alpha.ContainerResources{Name: p.Spec.Containers[i].Name}
		for _, d := range a.s.cfg.Devices.ContainerDevices(pod.UID(p.UID), c.Name) {
			c.Devices = append(c.Devices, &alpha.ContainerDevices{ResourceName: d.ResourceName, DeviceIds: d.DeviceIds})
		}
		r.Containers = append(r.Containers, c)
	}
	return r
}

package server

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podd/internal/mask"
)

// maskedPods is podList for the ports. It masks the confidential parts of manifests, which only
// root may read: values of environment variables, and of the headers and queries of probes and
// hooks. Each item is still a valid Pod.
func maskedPods(pods []*v1.Pod) *v1.PodList {
	list := podList(pods)
	for i := range list.Items {
		maskPod(&list.Items[i])
	}
	return list
}

// maskPod changes p, but nothing that p shares with other pods.
func maskPod(p *v1.Pod) {
	// kubectl stores the whole manifest here.
	if _, ok := p.Annotations[v1.LastAppliedConfigAnnotation]; ok {
		p.Annotations = maps.Clone(p.Annotations)
		p.Annotations[v1.LastAppliedConfigAnnotation] = mask.Value
	}
	p.Spec.InitContainers = slices.Clone(p.Spec.InitContainers)
	p.Spec.Containers = slices.Clone(p.Spec.Containers)
	p.Spec.EphemeralContainers = slices.Clone(p.Spec.EphemeralContainers)
	for i := range p.Spec.InitContainers {
		maskContainer(&p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		maskContainer(&p.Spec.Containers[i])
	}
	for i := range p.Spec.EphemeralContainers {
		maskContainer((*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

func maskContainer(c *v1.Container) {
	c.Env = slices.Clone(c.Env)
	for i := range c.Env {
		hide(&c.Env[i].Value)
	}
	c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = maskProbe(c.LivenessProbe), maskProbe(c.ReadinessProbe), maskProbe(c.StartupProbe)
	if c.Lifecycle != nil {
		l := *c.Lifecycle
		l.PostStart, l.PreStop = maskHandler(l.PostStart), maskHandler(l.PreStop)
		c.Lifecycle = &l
	}
}

func maskProbe(p *v1.Probe) *v1.Probe {
	if p == nil || p.HTTPGet == nil {
		return p
	}
	out := *p
	out.HTTPGet = maskGet(p.HTTPGet)
	return &out
}

func maskHandler(h *v1.LifecycleHandler) *v1.LifecycleHandler {
	if h == nil || h.HTTPGet == nil {
		return h
	}
	out := *h
	out.HTTPGet = maskGet(h.HTTPGet)
	return &out
}

func maskGet(g *v1.HTTPGetAction) *v1.HTTPGetAction {
	out := *g
	out.Path = mask.URL(g.Path)
	out.HTTPHeaders = slices.Clone(g.HTTPHeaders)
	for i := range out.HTTPHeaders {
		hide(&out.HTTPHeaders[i].Value)
	}
	return &out
}

// hide masks a value, unless it is empty.
func hide(value *string) {
	if *value != "" {
		*value = mask.Value
	}
}

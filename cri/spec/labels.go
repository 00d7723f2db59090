package spec

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// The kubelet's own keys. An observer reads them back (k8s.io/kubelet/pkg/types,
// pkg/kubelet/kuberuntime/labels.go).
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	AnnotationHash              = "io.kubernetes.container.hash"
	AnnotationRestartCount      = "io.kubernetes.container.restartCount"
	AnnotationMessagePath       = "io.kubernetes.container.terminationMessagePath"
	AnnotationMessagePolicy     = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStop           = "io.kubernetes.container.preStopHandler"
	AnnotationPorts             = "io.kubernetes.container.ports"
	AnnotationDeletionGrace     = "io.kubernetes.pod.deletionGracePeriod"
	AnnotationTerminationPeriod = "io.kubernetes.pod.terminationGracePeriod"
)

func podLabels(p *v1.Pod) map[string]string {
	l := make(map[string]string, len(p.Labels)+3)
	maps.Copy(l, p.Labels)
	l[LabelPodName] = p.Name
	l[LabelPodNamespace] = p.Namespace
	l[LabelPodUID] = string(p.UID)
	return l
}

// podAnnotations returns the pod's own annotations, plus its source, podd's start time,
// which also marks the sandbox as podd's, and the identity of that podd.
func podAnnotations(p *v1.Pod, instance string, source pod.Source, start time.Time) map[string]string {
	a := make(map[string]string, len(p.Annotations)+3)
	maps.Copy(a, p.Annotations)
	setInstance(a, instance)
	if source != "" {
		a[pod.AnnotationSource] = string(source)
	}
	a[pod.AnnotationStartTime] = start.Format(time.RFC3339Nano)
	return a
}

// setInstance records in the annotations which podd made the object, whatever the pod's own
// annotations say.
func setInstance(annotations map[string]string, instance string) {
	delete(annotations, pod.AnnotationInstance)
	if instance != "" {
		annotations[pod.AnnotationInstance] = instance
	}
}

func containerLabels(p *v1.Pod, c *v1.Container) map[string]string {
	return map[string]string{
		LabelPodName:       p.Name,
		LabelPodNamespace:  p.Namespace,
		LabelPodUID:        string(p.UID),
		LabelContainerName: c.Name,
	}
}

// pluginAnnotations returns the annotations of device plugins, without those by which podd
// recognises its own objects.
func pluginAnnotations(annotations map[string]string) map[string]string {
	a := map[string]string{}
	for key, value := range annotations {
		if !strings.HasPrefix(key, "podd/") && !strings.HasPrefix(key, "io.kubernetes.") && !strings.HasPrefix(key, "kubernetes.io/config.") {
			a[key] = value
		}
	}
	return a
}

// containerAnnotations returns the kubelet's annotations, and the sandbox's own source and
// start time: a container that was still being made when its sandbox went is podd's
// nevertheless.
func containerAnnotations(o Options, req pod.ContainerRequest) (map[string]string, error) {
	p, c := req.Pod, req.Container
	a := pluginAnnotations(req.Annotations)
	maps.Copy(a, map[string]string{
		pod.AnnotationStartTime: req.StartTime.Format(time.RFC3339Nano),
		AnnotationHash:          pod.ContainerHash(c),
		AnnotationRestartCount:  strconv.Itoa(int(req.RestartCount)),
		AnnotationMessagePath:   c.TerminationMessagePath,
		AnnotationMessagePolicy: string(c.TerminationMessagePolicy),
	})
	setInstance(a, o.Instance)
	preStop, ports, err := hookAnnotations(c)
	if err != nil {
		return nil, err
	}
	volumes := strings.Join(slices.Sorted(maps.Values(req.Image.Volumes)), ",")
	for key, value := range map[string]string{
		pod.AnnotationSource: string(req.Source), AnnotationPreStop: preStop, AnnotationPorts: ports,
		pod.AnnotationImageVolumes: volumes, pod.AnnotationObjects: req.ContentHashes.Text(),
		pod.AnnotationConfidential: req.Inputs.Env.ConfidentialNames(),
	} {
		if value != "" {
			a[key] = value
		}
	}
	if s := p.DeletionGracePeriodSeconds; s != nil {
		a[AnnotationDeletionGrace] = strconv.FormatInt(*s, 10)
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		a[AnnotationTerminationPeriod] = strconv.FormatInt(*s, 10)
	}
	if _, kind := pod.ContainerSpec(&p.Spec, c.Name); kind == pod.SidecarContainer {
		a[pod.AnnotationSidecar] = "true"
	}
	return a, nil
}

package cri

import (
	"maps"
	"path/filepath"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// The kubelet's own keys (k8s.io/kubelet/pkg/types, pkg/kubelet/kuberuntime/labels.go).
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"

	annotationHash              = "io.kubernetes.container.hash"
	annotationRestartCount      = "io.kubernetes.container.restartCount"
	annotationMessagePath       = "io.kubernetes.container.terminationMessagePath"
	annotationMessagePolicy     = "io.kubernetes.container.terminationMessagePolicy"
	annotationPreStop           = "io.kubernetes.container.preStopHandler"
	annotationPorts             = "io.kubernetes.container.ports"
	annotationDeletionGrace     = "io.kubernetes.pod.deletionGracePeriod"
	annotationTerminationPeriod = "io.kubernetes.pod.terminationGracePeriod"
)

func podLabels(p *v1.Pod) map[string]string {
	l := make(map[string]string, len(p.Labels)+3)
	maps.Copy(l, p.Labels)
	l[labelPodName] = p.Name
	l[labelPodNamespace] = p.Namespace
	l[labelPodUID] = string(p.UID)
	return l
}

// podAnnotations are the pod's own, its source, podd's start time, which also
// marks the sandbox as podd's, and which podd's.
func podAnnotations(p *v1.Pod, instance string, source pod.Source, start time.Time) map[string]string {
	a := make(map[string]string, len(p.Annotations)+3)
	maps.Copy(a, p.Annotations)
	sign(a, instance)
	if source != "" {
		a[pod.AnnotationSource] = string(source)
	}
	a[pod.AnnotationStartTime] = start.Format(time.RFC3339Nano)
	return a
}

// sign says who made what carries the annotations, whatever the pod's own say.
func sign(annotations map[string]string, instance string) {
	delete(annotations, pod.AnnotationInstance)
	if instance != "" {
		annotations[pod.AnnotationInstance] = instance
	}
}

func containerLabels(p *v1.Pod, c *v1.Container) map[string]string {
	return map[string]string{
		labelPodName:       p.Name,
		labelPodNamespace:  p.Namespace,
		labelPodUID:        string(p.UID),
		labelContainerName: c.Name,
	}
}

// containerAnnotations are the kubelet's, and the sandbox's own source and start
// time: a container whose making outlived its sandbox is podd's nevertheless.
func containerAnnotations(p *v1.Pod, c *v1.Container, instance string, source pod.Source, start time.Time, restarts int32) map[string]string {
	a := map[string]string{
		pod.AnnotationStartTime: start.Format(time.RFC3339Nano),
		annotationHash:          pod.ContainerHash(c),
		annotationRestartCount:  strconv.Itoa(int(restarts)),
		annotationMessagePath:   c.TerminationMessagePath,
		annotationMessagePolicy: string(c.TerminationMessagePolicy),
	}
	sign(a, instance)
	if source != "" {
		a[pod.AnnotationSource] = string(source)
	}
	if s := p.DeletionGracePeriodSeconds; s != nil {
		a[annotationDeletionGrace] = strconv.FormatInt(*s, 10)
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		a[annotationTerminationPeriod] = strconv.FormatInt(*s, 10)
	}
	if _, kind := pod.ContainerSpec(&p.Spec, c.Name); kind == pod.SidecarContainer {
		a[pod.AnnotationSidecar] = "true"
	}
	return a
}

// podLogDir is <root>/<namespace>_<name>_<uid>.
func podLogDir(root, namespace, name string, uid pod.UID) string {
	return filepath.Join(root, namespace+"_"+name+"_"+string(uid))
}

// containerLogPath is relative to the pod's log directory.
func containerLogPath(name string, restarts int32) string {
	return filepath.Join(name, strconv.Itoa(int(restarts))+".log")
}

// portMappings are the ports of the main containers, as the kubelet has it: not
// of sidecars. The runtime's CNI maps those with a host port.
func portMappings(p *v1.Pod) []*runtimeapi.PortMapping {
	type key struct {
		protocol v1.Protocol
		ip       string
		host     int32
		port     int32
	}
	var out []*runtimeapi.PortMapping
	for i := range p.Spec.Containers {
		seen := map[key]bool{}
		for _, cp := range p.Spec.Containers[i].Ports {
			k := key{cp.Protocol, cp.HostIP, cp.HostPort, cp.ContainerPort}
			if seen[k] {
				continue
			}
			seen[k] = true
			out = append(out, &runtimeapi.PortMapping{
				Protocol:      protocol(cp.Protocol),
				ContainerPort: cp.ContainerPort,
				HostPort:      cp.HostPort,
				HostIp:        cp.HostIP,
			})
		}
	}
	return out
}

func protocol(p v1.Protocol) runtimeapi.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case v1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}

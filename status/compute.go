package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// Options are the facts about the node that a status shows.
type Options struct {
	// RuntimeName is what container IDs are prefixed with: the name that the
	// runtime gives itself in CRI's Version. Empty means containerd.
	RuntimeName string
	// HostIPs are the node's addresses, primary first, at most one of each
	// family. With none, hostIP stays empty, as in a standalone kubelet.
	HostIPs []string
	// RecursiveReadOnly says that the runtime can make the mounts below a
	// read-only mount read-only too.
	RecursiveReadOnly bool
}

// Compute returns the API status of the pod in r. previous is the last status computed for
// the same UID, or the zero value: after a restart of podd, or for a new pod. Compute
// changes neither argument, and the result shares no memory with previous. For a report
// without a desired pod it returns a copy of previous.
//
// It implements the rules of the kubelet's generateAPIPodStatus and of its
// status manager.
func (o Options) Compute(r pod.Report, previous v1.PodStatus) v1.PodStatus {
	if r.Desired == nil {
		return *previous.DeepCopy()
	}
	c := computation{options: o, report: r, pod: r.Desired.Pod, previous: previous.DeepCopy()}
	if r.NotObserved {
		return c.unseen()
	}
	if c.rejected() {
		return c.rejection()
	}
	s := v1.PodStatus{
		ObservedGeneration:          max(c.pod.Generation, c.previous.ObservedGeneration),
		QOSClass:                    pod.QOSClass(c.pod),
		StartTime:                   c.startTime(),
		ResourceClaimStatuses:       c.previous.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: c.previous.ExtendedResourceClaimStatus,
		Resize:                      c.previous.Resize,
		NominatedNodeName:           c.previous.NominatedNodeName,
	}
	c.addresses(&s)
	allocated := withAllocated(c.pod, r.Allocated, r.AllocatedPod)
	s.AllocatedResources, s.Resources = podResources(allocated)
	s.InitContainerStatuses = c.containerStatuses(c.pod.Spec.InitContainers, c.previous.InitContainerStatuses, kindInit)
	s.ContainerStatuses = c.containerStatuses(c.pod.Spec.Containers, c.previous.ContainerStatuses, kindRegular)
	s.EphemeralContainerStatuses = c.containerStatuses(ephemeral(c.pod), c.previous.EphemeralContainerStatuses, kindEphemeral)
	if r.Phase >= pod.PhaseTerminated {
		c.terminateContainers(&s)
	}
	c.setProbeResults(&s)
	c.phase(&s)
	if pod.IsPhaseTerminal(s.Phase) {
		c.terminateContainers(&s)
	}
	if r.Desired.Source == pod.SourceAPIServer {
		switch {
		case s.Phase == v1.PodRunning:
			s.Resources = runningResources(allocated, s.Resources, r.ActuatedPod)
		case pod.IsPhaseTerminal(s.Phase) && c.previous.Resources != nil:
			s.Resources = c.previous.Resources // an ended pod keeps what it showed last, as on a kubelet
		}
	}
	c.limitMessages(&s)
	c.setConditions(&s)
	return s
}

// unseen is the status of a pod that podd knows nothing about yet, as the kubelet shows a
// static pod until it has looked: no condition says what may not be so, and nobody can
// tell since when.
func (c *computation) unseen() v1.PodStatus {
	return v1.PodStatus{
		ObservedGeneration:    c.pod.Generation,
		Phase:                 v1.PodPending,
		QOSClass:              pod.QOSClass(c.pod),
		InitContainerStatuses: c.containerStatuses(c.pod.Spec.InitContainers, nil, kindInit),
		ContainerStatuses:     c.containerStatuses(c.pod.Spec.Containers, nil, kindRegular),
	}
}

// computation is the state of one Compute: its arguments, under short names.
type computation struct {
	options  Options
	report   pod.Report
	pod      *v1.Pod
	previous *v1.PodStatus
}

// rejected says that the node never took the pod up. It may have been shown as
// waiting before: for the runtime, or for room.
func (c *computation) rejected() bool {
	return c.report.Failed && c.report.Observed.Empty() &&
		(len(c.previous.ContainerStatuses) == 0 || c.report.Phase == pod.PhasePending && c.noContainerCreated())
}

// noContainerCreated says that the previous status shows no container that had been made.
func (c *computation) noContainerCreated() bool {
	for _, all := range [][]v1.ContainerStatus{c.previous.InitContainerStatuses, c.previous.ContainerStatuses} {
		for _, cs := range all {
			if cs.State.Waiting == nil || cs.LastTerminationState.Terminated != nil || cs.RestartCount > 0 || cs.ContainerID != "" {
				return false
			}
		}
	}
	return true
}

// rejection is the status of such a pod: it has no containers to speak of, and the
// kubelet gives it no conditions either (pkg/kubelet, rejectPod).
func (c *computation) rejection() v1.PodStatus {
	return v1.PodStatus{
		ObservedGeneration: max(c.pod.Generation, c.previous.ObservedGeneration),
		Phase:              v1.PodFailed,
		Reason:             c.report.Reason,
		Message:            c.report.Message,
		QOSClass:           pod.QOSClass(c.pod),
		StartTime:          c.startTime(),
	}
}

// ending says that no part of the pod starts any more: it is being stopped, or the node
// ended it.
func (c *computation) ending() bool {
	return c.report.Phase >= pod.PhaseTerminating || c.report.Failed
}

// static says that the pod comes from a source without an API object: its manifest, not
// its end, decides about it. The kubelet writes no terminal phase for static pods that
// are merely stopped.
func (c *computation) static() bool { return c.report.Desired.Source != pod.SourceAPIServer }

// startTime never changes once it was published.
func (c *computation) startTime() *metav1.Time {
	if t := c.previous.StartTime; t != nil && !t.IsZero() {
		return t.DeepCopy()
	}
	t := seconds(c.report.StartTime)
	if t.IsZero() {
		t = seconds(c.report.At)
	}
	return &t
}

// addresses sets hostIP(s) and podIP(s). A pod keeps its addresses when its sandbox is
// gone: the API wants them of completed pods too.
func (c *computation) addresses(s *v1.PodStatus) {
	for _, ip := range c.options.HostIPs {
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	if len(s.HostIPs) > 0 {
		s.HostIP = s.HostIPs[0].IP
	}
	var ips []string
	switch {
	case c.pod.Spec.HostNetwork:
		ips = c.options.HostIPs
	case len(c.report.Observed.Sandboxes) > 0:
		ips = pod.PodIPs(c.report.Observed.Sandboxes[0].IPs, c.options.HostIPs)
	}
	if len(ips) == 0 {
		s.PodIP, s.PodIPs = c.previous.PodIP, c.previous.PodIPs
		return
	}
	for _, ip := range ips {
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
	s.PodIP = ips[0]
}

// updateAddresses updates a pod's status with the node's addresses. A pod on the node's
// network has them as its own.
func (o Options) updateAddresses(p *v1.Pod) {
	s := &p.Status
	if len(o.HostIPs) == 0 || s.HostIP == "" {
		return // the next report sets the first ones
	}
	s.HostIP, s.HostIPs = o.HostIPs[0], nil
	for _, ip := range o.HostIPs {
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	if !p.Spec.HostNetwork || s.PodIP == "" {
		return
	}
	s.PodIP, s.PodIPs = o.HostIPs[0], nil
	for _, ip := range o.HostIPs {
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
}

// seconds is the precision of API times. Comparing finer times would find a change in a
// status that reads the same.
func seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func ephemeral(p *v1.Pod) []v1.Container {
	var all []v1.Container
	for _, e := range p.Spec.EphemeralContainers {
		all = append(all, v1.Container(e.EphemeralContainerCommon))
	}
	return all
}

package main

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestContradictionsWithinOneSideAreFound(t *testing.T) {
	at := func(second int64) metav1.Time { return metav1.Time{Time: time.Unix(second, 0)} }
	status := func(change func(p *v1.Pod)) *v1.Pod {
		p := &v1.Pod{Status: v1.PodStatus{PodIP: "10.100.0.7", ContainerStatuses: []v1.ContainerStatus{{
			Name: "app", Image: "busybox:1", ImageID: "sha256:1",
			LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{StartedAt: at(5), FinishedAt: at(5)}},
		}}}}
		change(p)
		return p
	}
	for what, c := range map[string]struct {
		change func(p *v1.Pod)
		want   []string
	}{
		"nothing":            {func(*v1.Pod) {}, nil},
		"no address":         {func(p *v1.Pod) { p.Status.PodIP = "" }, nil},
		"the host's network": {func(p *v1.Pod) { p.Spec.HostNetwork, p.Status.PodIP = true, "192.0.2.1" }, nil},
		"another network":    {func(p *v1.Pod) { p.Status.PodIP = "10.101.0.7" }, []string{"podIP is no address of the pods' network"}},
		"no start": {func(p *v1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated.StartedAt = metav1.Time{}
		}, nil},
		"an end before the start": {func(p *v1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated.StartedAt = at(6)
		}, []string{"app finished before it started"}},
		"another image ID": {func(p *v1.Pod) { p.Status.ContainerStatuses[0].ImageID = "sha256:2" }, []string{"app: the ID of busybox:1 is another one than before"}},
		"another image": {func(p *v1.Pod) {
			p.Status.ContainerStatuses[0].Image, p.Status.ContainerStatuses[0].ImageID = "web", "x"
		}, nil},
		"an image ID that's due": {func(p *v1.Pod) { p.Status.ContainerStatuses[0].ImageID = "" }, nil},
	} {
		s := &sanity{network: netip.MustParsePrefix("10.100.0.0/16"), images: map[string]string{"busybox:1": "sha256:1"}}
		if got := s.contradictions(status(c.change)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
}

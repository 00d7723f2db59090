package main

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// sanity knows what a status of one side cannot say, whatever the other side shows: times,
// addresses and IDs are set aside when the sides are compared.
type sanity struct {
	network netip.Prefix      // of the side's pods
	images  map[string]string // the ID of each image that was seen
}

// contradictions are what a pod's status says that cannot be; of nobody's, nothing.
func (s *sanity) contradictions(p *v1.Pod) (all []string) {
	if s == nil {
		return nil
	}
	if p.Status.PodIP != "" && !p.Spec.HostNetwork {
		if ip, err := netip.ParseAddr(p.Status.PodIP); err != nil || !s.network.Contains(ip) {
			all = append(all, "podIP is no address of the pods' network")
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses) {
		for _, end := range []*v1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if end != nil && end.StartedAt.Unix() > 0 && end.FinishedAt.Before(&end.StartedAt) {
				all = append(all, c.Name+" finished before it started")
			}
		}
		if c.ImageID == "" {
			continue
		}
		if before := s.images[c.Image]; before != "" && before != c.ImageID {
			all = append(all, fmt.Sprintf("%s: the ID of %s is another one than before", c.Name, c.Image))
		}
		s.images[c.Image] = c.ImageID
	}
	return all
}

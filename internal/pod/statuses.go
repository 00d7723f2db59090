package pod

import (
	"iter"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ContainerStatuses yields the statuses of all containers: init, regular, ephemeral. The
// pointers point into the status.
func ContainerStatuses(s *v1.PodStatus) iter.Seq[*v1.ContainerStatus] {
	return func(yield func(*v1.ContainerStatus) bool) {
		for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// ContainerStatus returns the status of the container of that name, as a pointer into the
// pod's; nil if there is none.
func ContainerStatus(s *v1.PodStatus, name string) *v1.ContainerStatus {
	for c := range ContainerStatuses(s) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// FindContainerStatus is ContainerStatus for one of the lists.
func FindContainerStatus(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// RuntimeID returns a container's ID as the runtime has it, from the ID in a status:
// runtime://id. Any other text is returned as it is.
func RuntimeID(shown string) string {
	if _, id, ok := strings.Cut(shown, "://"); ok {
		return id
	}
	return shown
}

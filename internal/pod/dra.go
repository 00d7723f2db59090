package pod

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// IsDRAExtendedResource says that a container's request for an extended resource was met by a
// ResourceClaim that the scheduler made for the pod (KEP-5004). Neither device plugins nor
// the node's own sums count it. Resources of other kinds never are claimed, whatever the
// pod's status says (upstream's IsDRAExtendedResourceName).
func IsDRAExtendedResource(p *v1.Pod, container string, name v1.ResourceName) bool {
	s := p.Status.ExtendedResourceClaimStatus
	if s == nil || !isDRAExtendedResourceName(string(name)) {
		return false
	}
	return slices.ContainsFunc(s.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.ResourceName == string(name)
	})
}

func isDRAExtendedResourceName(name string) bool {
	return strings.HasPrefix(name, resourcev1.ResourceDeviceClassPrefix) ||
		strings.Contains(name, "/") && !strings.Contains(name, v1.ResourceDefaultNamespacePrefix) && !strings.HasPrefix(name, v1.DefaultResourceRequestsPrefix)
}

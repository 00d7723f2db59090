package podenv

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

// Downward has the values of the downward API in volumes, which offers less than
// variables do: metadata, and the resources of a named container.
type Downward struct {
	// Allocatable is the node's.
	Allocatable v1.ResourceList
}

// Field is a fieldRef's value.
func (d Downward) Field(p *v1.Pod, path string) (string, error) {
	if strings.HasPrefix(path, "metadata.") {
		if value, ok := pod.FieldPathValue(p, path); ok {
			return value, nil
		}
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", path)
}

// Resource is a resourceFieldRef's value. A limit that is not set is the node's
// allocatable amount. Unlike in variables, that is so for an init container, too, and
// whatever the pod's own limits are (pkg/api/v1/resource, MergeContainerResourceLimits).
func (d Downward) Resource(p *v1.Pod, ref *v1.ResourceFieldSelector) (string, error) {
	c, kind := pod.ContainerSpec(&p.Spec, ref.ContainerName)
	if c == nil || kind == pod.EphemeralContainer {
		return "", fmt.Errorf("container %s not found", ref.ContainerName)
	}
	limit, name, err := resourceOf(ref)
	if err != nil {
		return "", err
	}
	var q resource.Quantity
	switch {
	case !limit:
		q = c.Resources.Requests[name]
	default:
		if q = c.Resources.Limits[name]; q.IsZero() && !isHugePages(name) {
			q = d.Allocatable[name]
		}
	}
	return inUnits(q, name, ref.Divisor), nil
}

package podenv

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

// environment is a container's variables in the order in which the pod declares them,
// those of whole objects first and those of Services last, with references expanded and
// sources resolved. A later variable may use an earlier one; a name declared twice keeps
// the last value at the first one's place.
func (r *Resolver) environment(p *v1.Pod, c *v1.Container, podIPs []string) (env pod.Environment, err error) {
	services, err := r.cfg.Services.variables(p)
	if err != nil {
		return env, err
	}
	objects := r.objectsFor(p)
	for _, from := range c.EnvFrom {
		if err := objects.addAllKeys(from, &env); err != nil {
			return env, err
		}
	}
	for i := range c.Env {
		e := &c.Env[i]
		var value string
		ok, confidential := true, false
		switch from := e.ValueFrom; {
		case e.Value != "" || from == nil:
			value = pod.Expand(e.Value, func(name string) (string, bool) {
				if v, own := env.Values[name]; own {
					confidential = confidential || env.Confidential[name]
					return v, true
				}
				v, ok := services.Values[name]
				return v, ok
			})
		case from.ConfigMapKeyRef != nil:
			value, ok, err = objects.configMapValue(from.ConfigMapKeyRef)
		case from.SecretKeyRef != nil:
			confidential = true
			value, ok, err = objects.secretValue(from.SecretKeyRef)
		default:
			confidential = from.FileKeyRef != nil
			if value, ok, err = r.nodeValue(p, c, from, podIPs); err != nil {
				err = fmt.Errorf("env %s: %w", e.Name, err)
			}
		}
		if err != nil {
			return env, err
		}
		switch {
		case ok && confidential:
			env.SetConfidential(e.Name, value)
		case ok:
			env.Set(e.Name, value)
		}
	}
	for _, name := range services.Names {
		if _, own := env.Values[name]; !own {
			env.Set(name, services.Values[name])
		}
	}
	return env, nil
}

// nodeValue is the value of a variable from a field or resource of the pod or the node;
// ok is false for an optional source that does not exist.
func (r *Resolver) nodeValue(p *v1.Pod, c *v1.Container, from *v1.EnvVarSource, podIPs []string) (value string, ok bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = r.fieldValue(p, from.FieldRef.FieldPath, podIPs)
	case from.ResourceFieldRef != nil:
		value, err = resourceValue(p, c, from.ResourceFieldRef, r.cfg.Allocatable)
	case from.FileKeyRef != nil:
		return r.fileValue(p, from.FileKeyRef)
	}
	return value, true, err
}

func isTrue(b *bool) bool { return b != nil && *b }

// fieldValue is a downward API field: the pod's own, or what is known of the
// node and the sandbox.
func (r *Resolver) fieldValue(p *v1.Pod, path string, podIPs []string) (string, error) {
	value, ok := pod.FieldPathValue(p, path)
	switch {
	case ok && value == "" && (path == "spec.nodeName" || path == "spec.host"):
		return r.cfg.NodeName, nil
	case ok:
		return value, nil
	case strings.HasSuffix(path, "']"):
		return "", fmt.Errorf("field label does not support subscript: %s", path)
	}
	switch path {
	case "status.hostIP":
		ips := r.nodeIPs()
		if len(ips) == 0 {
			return "", fmt.Errorf("the node's address is not known: set --node-ip")
		}
		return ips[0], nil
	case "status.hostIPs":
		ips := r.nodeIPs()
		if len(ips) == 0 {
			return "", fmt.Errorf("the node's address is not known: set --node-ip")
		}
		return strings.Join(ips, ","), nil
	case "status.podIP":
		if len(podIPs) == 0 {
			return "", nil
		}
		return podIPs[0], nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	}
	return "", fmt.Errorf("field label not supported: %s", path)
}

// resourceValue is a container's request or limit in units of the divisor,
// rounded up. A limit that is not set is the pod's own, or else the node's
// allocatable amount; but 0 for an init container that is named, as in the
// kubelet, which fills in the limits of ordinary containers and of the one that
// asks (pkg/kubelet, defaultPodLimitsForDownwardAPI).
func resourceValue(p *v1.Pod, c *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	namedInit := false
	if ref.ContainerName != "" {
		var kind pod.ContainerKind
		if c, kind = pod.ContainerSpec(&p.Spec, ref.ContainerName); c == nil || kind == pod.EphemeralContainer {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
		namedInit = kind != pod.RegularContainer
	}
	limit, res, err := resourceOf(ref)
	if err != nil {
		return "", err
	}
	var q resource.Quantity
	if limit {
		q = c.Resources.Limits[res]
		if q.IsZero() && !namedInit && !isHugePages(res) {
			q = allocatable[res]
			if r := p.Spec.Resources; r != nil && res != v1.ResourceEphemeralStorage && !r.Limits.Name(res, resource.DecimalSI).IsZero() {
				q = r.Limits[res]
			}
		}
	} else {
		q = c.Resources.Requests[res]
	}
	return inUnits(q, res, ref.Divisor), nil
}

// resourceOf says which resource is meant, and whether its limit or its request.
func resourceOf(ref *v1.ResourceFieldSelector) (limit bool, name v1.ResourceName, err error) {
	kind, of, _ := strings.Cut(ref.Resource, ".")
	name = v1.ResourceName(of)
	known := name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage || isHugePages(name)
	if !known || (kind != "limits" && kind != "requests") {
		return false, "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	return kind == "limits", name, nil
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// inUnits is a quantity in units of the divisor, rounded up.
func inUnits(q resource.Quantity, name v1.ResourceName, divisor resource.Quantity) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == v1.ResourceCPU {
		return ceilDiv(q.MilliValue(), divisor.MilliValue())
	}
	return ceilDiv(q.Value(), divisor.Value())
}

func ceilDiv(a, b int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(a)/float64(b))), 10)
}

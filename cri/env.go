package cri

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// envFacts are what a container's environment may refer to beyond the pod.
type envFacts struct {
	nodeName    string
	nodeIPs     []string
	podIPs      []string
	allocatable v1.ResourceList
	// volumePath is where a volume of the pod is on the node.
	volumePath func(p *v1.Pod, volume string) (string, error)
}

// environment is a container's variables in the order in which the pod
// declares them, with references expanded and sources resolved. A later
// variable may use an earlier one; a name declared twice keeps the last value
// at the first one's place.
func environment(p *v1.Pod, c *v1.Container, facts envFacts) ([]*runtimeapi.KeyValue, map[string]string, error) {
	values := map[string]string{}
	var order []string
	for _, from := range c.EnvFrom {
		if err := envFromMissing(p, from); err != nil {
			return nil, nil, err
		}
	}
	for i := range c.Env {
		e := &c.Env[i]
		value, ok, err := envValue(p, c, e, values, facts)
		if err != nil {
			return nil, nil, fmt.Errorf("env %s: %w", e.Name, err)
		}
		if !ok {
			continue
		}
		if _, seen := values[e.Name]; !seen {
			order = append(order, e.Name)
		}
		values[e.Name] = value
	}
	out := make([]*runtimeapi.KeyValue, 0, len(order))
	for _, name := range order {
		out = append(out, &runtimeapi.KeyValue{Key: name, Value: []byte(values[name])})
	}
	return out, values, nil
}

// envFromMissing: podd reads no ConfigMaps and Secrets yet; what is optional is
// left out, what is not is an error.
func envFromMissing(p *v1.Pod, from v1.EnvFromSource) error {
	switch {
	case from.ConfigMapRef != nil && !isTrue(from.ConfigMapRef.Optional):
		return fmt.Errorf("envFrom: couldn't get configMap %s/%s: podd has no source of ConfigMaps", p.Namespace, from.ConfigMapRef.Name)
	case from.SecretRef != nil && !isTrue(from.SecretRef.Optional):
		return fmt.Errorf("envFrom: couldn't get secret %s/%s: podd has no source of Secrets", p.Namespace, from.SecretRef.Name)
	}
	return nil
}

// envValue is one variable's value; ok is false for an optional source that is
// not there.
func envValue(p *v1.Pod, c *v1.Container, e *v1.EnvVar, before map[string]string, facts envFacts) (value string, ok bool, err error) {
	from := e.ValueFrom
	switch {
	case e.Value != "" || from == nil:
		return expand(e.Value, before), true, nil
	case from.FieldRef != nil:
		value, err = fieldValue(p, from.FieldRef.FieldPath, facts)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = resourceValue(p, c, from.ResourceFieldRef, facts.allocatable)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		if isTrue(from.ConfigMapKeyRef.Optional) {
			return "", false, nil
		}
		return "", false, fmt.Errorf("couldn't get configMap %s/%s: podd has no source of ConfigMaps", p.Namespace, from.ConfigMapKeyRef.Name)
	case from.SecretKeyRef != nil:
		if isTrue(from.SecretKeyRef.Optional) {
			return "", false, nil
		}
		return "", false, fmt.Errorf("couldn't get secret %s/%s: podd has no source of Secrets", p.Namespace, from.SecretKeyRef.Name)
	case from.FileKeyRef != nil:
		return fileValue(p, from.FileKeyRef, facts.volumePath)
	}
	return "", true, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

// fieldValue is a downward API field: the pod's own, or what is known of the
// node and the sandbox.
func fieldValue(p *v1.Pod, path string, facts envFacts) (string, error) {
	value, ok := pod.Field(p, path)
	switch {
	case ok && value == "" && (path == "spec.nodeName" || path == "spec.host"):
		return facts.nodeName, nil
	case ok:
		return value, nil
	case strings.HasSuffix(path, "']"):
		return "", fmt.Errorf("field label does not support subscript: %s", path)
	}
	switch path {
	case "status.hostIP":
		if len(facts.nodeIPs) == 0 {
			return "", fmt.Errorf("the node's address is not known: set --node-ip")
		}
		return facts.nodeIPs[0], nil
	case "status.hostIPs":
		if len(facts.nodeIPs) == 0 {
			return "", fmt.Errorf("the node's address is not known: set --node-ip")
		}
		return strings.Join(facts.nodeIPs, ","), nil
	case "status.podIP":
		if len(facts.podIPs) == 0 {
			return "", nil
		}
		return facts.podIPs[0], nil
	case "status.podIPs":
		return strings.Join(facts.podIPs, ","), nil
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
	kind, name, _ := strings.Cut(ref.Resource, ".")
	res := v1.ResourceName(name)
	known := res == v1.ResourceCPU || res == v1.ResourceMemory || res == v1.ResourceEphemeralStorage || strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	if !known || (kind != "limits" && kind != "requests") {
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	var q resource.Quantity
	if kind == "limits" {
		q = c.Resources.Limits[res]
		if q.IsZero() && !namedInit && !strings.HasPrefix(name, v1.ResourceHugePagesPrefix) {
			q = allocatable[res]
			if r := p.Spec.Resources; r != nil && res != v1.ResourceEphemeralStorage && !r.Limits.Name(res, resource.DecimalSI).IsZero() {
				q = r.Limits[res]
			}
		}
	} else {
		q = c.Resources.Requests[res]
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if res == v1.ResourceCPU {
		return ceilDiv(q.MilliValue(), divisor.MilliValue()), nil
	}
	return ceilDiv(q.Value(), divisor.Value()), nil
}

func ceilDiv(a, b int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(a)/float64(b))), 10)
}

// ephemeralNamed is the pod's ephemeral container of that name, or nil.
func ephemeralNamed(p *v1.Pod, name string) *v1.EphemeralContainer {
	for i := range p.Spec.EphemeralContainers {
		if e := &p.Spec.EphemeralContainers[i]; e.Name == name {
			return e
		}
	}
	return nil
}

func expand(in string, values map[string]string) string {
	return pod.Expand(in, func(name string) (string, bool) { v, ok := values[name]; return v, ok })
}

func expandAll(in []string, values map[string]string) []string {
	if len(in) == 0 {
		return nil
	}
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = expand(s, values)
	}
	return out
}

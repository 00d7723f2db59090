package cli

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

// writeEnvironment writes a container's variables as the manifest has them: literal values, and
// the sources of all others. It never reads a Secret.
func (d *description) writeEnvironment(s *sheet, c *v1.Container) {
	if len(c.EnvFrom) > 0 {
		s.line(2, "Environment Variables from:")
	}
	for _, from := range c.EnvFrom {
		kind, name, optional := "ConfigMap", "", false
		switch {
		case from.ConfigMapRef != nil:
			name, optional = from.ConfigMapRef.Name, isTrue(from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			kind, name, optional = "Secret", from.SecretRef.Name, isTrue(from.SecretRef.Optional)
		}
		if from.Prefix != "" {
			kind += " with prefix '" + from.Prefix + "'"
		}
		s.line(3, name, kind, optionality(optional))
	}
	s.heading(2, "Environment", len(c.Env) == 0)
	for i := range c.Env {
		e := &c.Env[i]
		if e.ValueFrom == nil {
			s.field(3, e.Name, e.Value)
			continue
		}
		value, note := d.valueFrom(c, e.ValueFrom)
		if note != "" {
			s.line(3, e.Name+":", value, note)
		} else {
			s.field(3, e.Name, value)
		}
	}
}

func optionality(optional bool) string { return fmt.Sprintf("Optional: %t", optional) }

func isTrue(b *bool) bool { return b != nil && *b }

// valueFrom returns the value if the pod itself has it, and its source otherwise. note says
// whether it is optional.
func (d *description) valueFrom(c *v1.Container, from *v1.EnvVarSource) (value, note string) {
	switch {
	case from.FieldRef != nil:
		return fmt.Sprintf("%s (%s:%s)", fieldRefValue(d.Pod, from.FieldRef.FieldPath), from.FieldRef.APIVersion, from.FieldRef.FieldPath), ""
	case from.ResourceFieldRef != nil:
		return fmt.Sprintf("%s (%s)", resourceFieldRefValue(d.Pod, c, from.ResourceFieldRef), from.ResourceFieldRef.Resource), ""
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		return fmt.Sprintf("<set to the key '%s' in secret '%s'>", ref.Key, ref.Name), optionality(isTrue(ref.Optional))
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		return fmt.Sprintf("<set to the key '%s' of config map '%s'>", ref.Key, ref.Name), optionality(isTrue(ref.Optional))
	case from.FileKeyRef != nil:
		ref := from.FileKeyRef
		return fmt.Sprintf("<set to the key '%s' in file '%s' of volume '%s'>", ref.Key, ref.Path, ref.VolumeName), optionality(isTrue(ref.Optional))
	}
	return "<unknown>", ""
}

// fieldRefValue resolves a field of the downward API: from the pod, or its newest status
// for addresses.
func fieldRefValue(p *v1.Pod, path string) string {
	if value, ok := pod.FieldPathValue(p, path); ok {
		return value
	}
	var all []string
	switch path {
	case "status.podIP":
		return p.Status.PodIP
	case "status.hostIP":
		return p.Status.HostIP
	case "status.podIPs":
		for _, ip := range p.Status.PodIPs {
			all = append(all, ip.IP)
		}
	case "status.hostIPs":
		for _, ip := range p.Status.HostIPs {
			all = append(all, ip.IP)
		}
	}
	return strings.Join(all, ",")
}

// resourceFieldRefValue returns a request or limit in units of the divisor, rounded up.
func resourceFieldRefValue(p *v1.Pod, c *v1.Container, ref *v1.ResourceFieldSelector) string {
	if ref.ContainerName != "" {
		if c, _ = pod.ContainerSpec(&p.Spec, ref.ContainerName); c == nil {
			return ""
		}
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := c.Resources.Requests
	if kind == "limits" {
		list = c.Resources.Limits
	}
	quantity, divisor := list[v1.ResourceName(name)], ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	value, unit := quantity.Value(), divisor.Value()
	if name == string(v1.ResourceCPU) {
		value, unit = quantity.MilliValue(), divisor.MilliValue()
	}
	if value == 0 && kind == "limits" {
		return "node allocatable"
	}
	return strconv.FormatInt((value+unit-1)/unit, 10)
}

package volumes

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// expand replaces $(NAME) by its value; $$ is a dollar sign. Unlike in command
// lines, a name without a value is an error, as upstream has it for subPathExpr.
func expand(expression string, env map[string]string) (string, error) {
	return substitute(expression, func(name string) (string, error) {
		value, ok := env[name]
		if !ok {
			return "", fmt.Errorf("missing value for %q", name)
		}
		return value, nil
	})
}

// substitute is Kubernetes' $(NAME) syntax: what is not of that form stays.
func substitute(text string, value func(string) (string, error)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteString("$")
			text = rest[1:]
		case strings.HasPrefix(rest, "(") && closed:
			v, err := value(name)
			if err != nil {
				return "", err
			}
			out.WriteString(v)
			text = after
		default:
			out.WriteString("$")
			text = rest
		}
	}
}

// environment is what subPathExpr may name.
func (m *Mounter) environment(p *v1.Pod, c *v1.Container) (map[string]string, error) {
	if m.options.Environment != nil {
		return m.options.Environment(p, c)
	}
	env := map[string]string{}
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			value, err := metadataValue(p, e.ValueFrom)
			if err != nil {
				continue // only an error if the expression names it
			}
			env[e.Name] = value
			continue
		}
		value, err := substitute(e.Value, func(name string) (string, error) {
			if v, ok := env[name]; ok {
				return v, nil
			}
			return "$(" + name + ")", nil
		})
		if err != nil {
			return nil, err
		}
		env[e.Name] = value
	}
	return env, nil
}

var errNotMetadata = errors.New("not a field of the pod's metadata or spec")

// metadataValue is the part of the downward API that needs no runtime.
func metadataValue(p *v1.Pod, from *v1.EnvVarSource) (string, error) {
	if from.FieldRef == nil {
		return "", errNotMetadata
	}
	field := from.FieldRef.FieldPath
	for prefix, values := range map[string]map[string]string{
		"metadata.labels['": p.Labels, "metadata.annotations['": p.Annotations,
	} {
		if key, ok := strings.CutPrefix(field, prefix); ok {
			return values[strings.TrimSuffix(key, "']")], nil
		}
	}
	switch field {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "spec.nodeName":
		return p.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	}
	return "", errNotMetadata
}

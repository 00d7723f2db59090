package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// FieldPathValue returns the value of a path of the downward API (fieldRef.fieldPath) in the pod's
// metadata and spec; ok is false for any other path, such as status.podIP. Upstream has the
// list in pkg/apis/core/pods/helpers.go.
func FieldPathValue(p *v1.Pod, path string) (value string, ok bool) {
	if base, key, subscripted := subscript(path); subscripted {
		switch base {
		case "metadata.labels":
			return p.Labels[key], true
		case "metadata.annotations":
			return p.Annotations[key], true
		}
		return "", false
	}
	switch path {
	case "metadata.name":
		return p.Name, true
	case "metadata.namespace":
		return p.Namespace, true
	case "metadata.uid":
		return string(p.UID), true
	case "metadata.labels":
		return formatMap(p.Labels), true
	case "metadata.annotations":
		return formatMap(p.Annotations), true
	case "spec.nodeName", "spec.host":
		return p.Spec.NodeName, true
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, true
	}
	return "", false
}

// subscript splits metadata.labels['key'].
func subscript(path string) (base, key string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "['")
}

// formatMap formats a map for the downward API: key="value", sorted.
func formatMap(m map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s=%q\n", k, m[k])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Expand replaces each $(NAME) with its value. $$ is a literal dollar. A name without a
// value (ok is false), and a dollar that starts nothing, stay. Values are not expanded
// again. Upstream defines it in third_party/forked/golang/expansion.
func Expand(text string, value func(name string) (v string, ok bool)) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		text = rest
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteString("$")
			text = rest[1:]
		case strings.HasPrefix(rest, "(") && closed:
			if v, ok := value(name); ok {
				out.WriteString(v)
			} else {
				out.WriteString("$(" + name + ")")
			}
			text = after
		default:
			out.WriteString("$")
		}
	}
}

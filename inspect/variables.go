package inspect

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/mask"
	"podd/internal/pod"
)

// compareVariables is the environment, in the runtime's order, and what it lacks.
func (x *comparison) compareVariables() {
	given := map[string]bool{}
	for _, entry := range x.process.Env {
		name, value, _ := strings.Cut(entry, "=")
		given[name] = true
		at := declared(x.Container, name)
		if at < 0 {
			x.row(name, x.from(), x.variable(name, value), false)
			continue
		}
		e := &x.Container.Env[at]
		differs := e.ValueFrom == nil && x.expansion(value, e.Value, at) == nil
		x.row(name, origin(e), x.variable(name, value), differs)
	}
	for i := range x.Container.Env {
		e := &x.Container.Env[i]
		if !given[e.Name] && declared(x.Container, e.Name) == i {
			x.row(e.Name, origin(e), "", !optional(e))
		}
	}
}

// declared is the index of the variable that holds, the last of its name; -1 for
// none.
func declared(c *v1.Container, name string) int {
	for i, e := range slices.Backward(c.Env) {
		if e.Name == name {
			return i
		}
	}
	return -1
}

// from says whence a variable may come that the manifest does not name.
func (x *comparison) from() string {
	if len(x.Container.EnvFrom) > 0 {
		return "(envFrom, or the image's)"
	}
	return "" // the image's, or the runtime's
}

// origin is what the manifest says of a variable.
func origin(e *v1.EnvVar) string {
	from := e.ValueFrom
	switch {
	case from == nil:
		return e.Value
	case from.SecretKeyRef != nil:
		return "secret " + from.SecretKeyRef.Name + ", key " + from.SecretKeyRef.Key
	case from.ConfigMapKeyRef != nil:
		return "configMap " + from.ConfigMapKeyRef.Name + ", key " + from.ConfigMapKeyRef.Key
	case from.FieldRef != nil:
		return "field " + from.FieldRef.FieldPath
	case from.ResourceFieldRef != nil:
		return "resource " + from.ResourceFieldRef.Resource
	case from.FileKeyRef != nil:
		return "file " + from.FileKeyRef.Path + " of volume " + from.FileKeyRef.VolumeName + ", key " + from.FileKeyRef.Key
	}
	return ""
}

// optional says that a variable may be missing.
func optional(e *v1.EnvVar) bool {
	from := e.ValueFrom
	switch {
	case from == nil:
		return false
	case from.SecretKeyRef != nil:
		return isSet(from.SecretKeyRef.Optional)
	case from.ConfigMapKeyRef != nil:
		return isSet(from.ConfigMapKeyRef.Optional)
	case from.FileKeyRef != nil:
		return isSet(from.FileKeyRef.Optional)
	}
	return false
}

// variable is a value as it may be shown.
func (x *comparison) variable(name, value string) string {
	if value == "" || x.literal(name, value) {
		return value
	}
	return mask.Value
}

// literal says that the manifest has this value of the variable itself, word for
// word: nothing can have been put into it.
func (x *comparison) literal(name, value string) bool {
	at := declared(x.Container, name)
	return at >= 0 && x.Container.Env[at].ValueFrom == nil && x.Container.Env[at].Value == value
}

// lookup is a variable's value, as pod.Expand asks for it.
type lookup func(name string) (value string, ok bool)

// expansion is by which values a text of the manifest becomes what the runtime was
// given; nil if it does by none. Variables count that the pod has, and not those of
// the image: which is which only the manifest knows, unless it takes whole objects.
// before is the index of the variable whose value the text is: it sees those before
// it.
func (x *comparison) expansion(given, text string, before int) lookup {
	declaredOnly := func(name string) (string, bool) {
		if at := declared(x.Container, name); at < 0 || at >= before {
			return "", false
		}
		return x.given(name)
	}
	with := []lookup{declaredOnly}
	if len(x.Container.EnvFrom) > 0 {
		with = append(with, func(name string) (string, bool) {
			if declared(x.Container, name) >= before {
				return "", false
			}
			return x.given(name)
		})
	}
	for _, l := range with {
		if pod.Expand(text, l) == given {
			return l
		}
	}
	return nil
}

// given is a variable's value in the runtime.
func (x *comparison) given(name string) (string, bool) {
	for _, entry := range slices.Backward(x.process.Env) {
		if n, value, _ := strings.Cut(entry, "="); n == name {
			return value, true
		}
	}
	return "", false
}

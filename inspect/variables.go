package inspect

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/mask"
	"podd/internal/pod"
)

// compareVariables compares the environment, in the runtime's order, and lists
// missing variables.
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

// declared returns the index of the effective variable, the last of its name; -1 if the
// container declares none.
func declared(c *v1.Container, name string) int {
	for i, e := range slices.Backward(c.Env) {
		if e.Name == name {
			return i
		}
	}
	return -1
}

// from says where a variable may come from if the manifest does not name it.
func (x *comparison) from() string {
	if len(x.Container.EnvFrom) > 0 {
		return "(envFrom, or the image's)"
	}
	return "" // the image's, or the runtime's
}

// origin describes the manifest's value or source of a variable.
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

// optional reports whether a variable may be missing.
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

// variable returns a value, masked unless it is literal.
func (x *comparison) variable(name, value string) string {
	if value == "" || x.literal(name, value) {
		return value
	}
	return mask.Value
}

// literal reports whether the manifest has exactly this value for the variable:
// nothing can have been expanded into it.
func (x *comparison) literal(name, value string) bool {
	at := declared(x.Container, name)
	return at >= 0 && x.Container.Env[at].ValueFrom == nil && x.Container.Env[at].Value == value
}

// lookup returns a variable's value, for pod.Expand.
type lookup func(name string) (value string, ok bool)

// expansion returns the lookup with which text, from the manifest, expands to given, the
// runtime's; nil if none does. It counts only the pod's variables, not the image's: only
// the manifest tells them apart, unless it has envFrom. before is the index of the
// variable that has text as its value: it sees only those before it.
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

// given returns a variable's value in the runtime.
func (x *comparison) given(name string) (string, bool) {
	for _, entry := range slices.Backward(x.process.Env) {
		if n, value, _ := strings.Cut(entry, "="); n == name {
			return value, true
		}
	}
	return "", false
}

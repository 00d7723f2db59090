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
		at := declaredIndex(x.Container, name)
		if at < 0 {
			x.row(name, x.undeclaredOrigin(), x.maskVariable(name, value), false)
			continue
		}
		e := &x.Container.Env[at]
		differs := e.ValueFrom == nil && x.findExpansion(value, e.Value, at) == nil
		x.row(name, variableOrigin(e), x.maskVariable(name, value), differs)
	}
	for i := range x.Container.Env {
		e := &x.Container.Env[i]
		if !given[e.Name] && declaredIndex(x.Container, e.Name) == i {
			x.row(e.Name, variableOrigin(e), "", !optional(e))
		}
	}
}

// declaredIndex returns the index of the effective variable, the last of its name; -1 if the
// container declares none.
func declaredIndex(c *v1.Container, name string) int {
	for i, e := range slices.Backward(c.Env) {
		if e.Name == name {
			return i
		}
	}
	return -1
}

// undeclaredOrigin says where a variable may come from if the manifest does not name it.
func (x *comparison) undeclaredOrigin() string {
	if len(x.Container.EnvFrom) > 0 {
		return "(envFrom, or the image's)"
	}
	return "" // the image's, or the runtime's
}

// variableOrigin describes the manifest's value or source of a variable.
func variableOrigin(e *v1.EnvVar) string {
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
		return isTrue(from.SecretKeyRef.Optional)
	case from.ConfigMapKeyRef != nil:
		return isTrue(from.ConfigMapKeyRef.Optional)
	case from.FileKeyRef != nil:
		return isTrue(from.FileKeyRef.Optional)
	}
	return false
}

// maskVariable returns a value, masked unless it is literal.
func (x *comparison) maskVariable(name, value string) string {
	if value == "" || x.literal(name, value) {
		return value
	}
	return mask.Value
}

// literal reports whether the manifest has exactly this value for the variable:
// nothing can have been expanded into it.
func (x *comparison) literal(name, value string) bool {
	at := declaredIndex(x.Container, name)
	return at >= 0 && x.Container.Env[at].ValueFrom == nil && x.Container.Env[at].Value == value
}

// lookup returns a variable's value, for pod.Expand.
type lookup func(name string) (value string, ok bool)

// findExpansion returns the lookup with which text, from the manifest, expands to given, the
// runtime's; nil if none does. It counts only the pod's variables, not the image's: only
// the manifest tells them apart, unless it has envFrom. before is the index of the
// variable that has text as its value: it sees only those before it.
func (x *comparison) findExpansion(given, text string, before int) lookup {
	declaredOnly := func(name string) (string, bool) {
		if at := declaredIndex(x.Container, name); at < 0 || at >= before {
			return "", false
		}
		return x.runtimeValue(name)
	}
	with := []lookup{declaredOnly}
	if len(x.Container.EnvFrom) > 0 {
		with = append(with, func(name string) (string, bool) {
			if declaredIndex(x.Container, name) >= before {
				return "", false
			}
			return x.runtimeValue(name)
		})
	}
	for _, l := range with {
		if pod.Expand(text, l) == given {
			return l
		}
	}
	return nil
}

// runtimeValue returns a variable's value in the runtime.
func (x *comparison) runtimeValue(name string) (string, bool) {
	for _, entry := range slices.Backward(x.process.Env) {
		if n, value, _ := strings.Cut(entry, "="); n == name {
			return value, true
		}
	}
	return "", false
}

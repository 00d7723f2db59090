package advice

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podd/internal/pod"
	"podd/internal/strictyaml"
	"podd/internal/suggest"
)

// corrected is the fault of one of the apiserver's errors with the change of the text that
// mends it, if that is known.
func (f Fault) corrected(e *field.Error, p *v1.Pod, root *yaml.Node) Fault {
	last := withoutIndexes(e.Field[strings.LastIndexByte(e.Field, '.')+1:])
	value := badValueText(e)
	switch {
	case last == "mode" || last == "defaultMode":
		return f.withValue(suggestMode(e.BadValue), root, e.Field)
	case e.Type == field.ErrorTypeNotSupported:
		return f.withValue(didYouMean(suggest.Closest(value, quoted(e.Detail))), root, e.Field)
	case e.Type == field.ErrorTypeNotFound && strings.Contains(e.Field, ".volumeMounts["):
		return f.withValue(didYouMean(suggest.Closest(value, volumeNames(p))), root, e.Field)
	case isNameError(e) && strings.HasPrefix(e.Field, "spec.volumes["):
		if m := suggestName(value); m.value != "" {
			f.Hint = fmt.Sprintf("for example %q, in its volumeMounts as well", m.value)
		}
		return f
	case isNameError(e):
		return f.withValue(suggestName(value), root, e.Field)
	case last == "image" && strings.Contains(e.Detail, "whitespace"):
		return f.withValue(suggestion{value: strings.TrimSpace(value), format: "remove the whitespace around the image name: %s"}, root, e.Field)
	case e.Type == field.ErrorTypeRequired && strings.HasSuffix(e.Field, ".containerPort"):
		return f.withPort(root, strings.TrimSuffix(e.Field, ".containerPort"))
	case e.Type == field.ErrorTypeRequired && withoutIndexes(e.Field) == "spec.volumes.name":
		return f.withName(NamelessVolumeName(p), root, strings.TrimSuffix(e.Field, ".name"))
	case strings.HasSuffix(e.Field, "resources.requests") && strings.Contains(e.Detail, "memory limit"):
		return f.withUnit(root, strings.TrimSuffix(e.Field, "requests")+"limits[memory]")
	case last == "procMount":
		return f.withoutProcMount(p, root, e.Field)
	}
	return f
}

// isNameError says that the error is about the name of an object or a part of one.
func isNameError(e *field.Error) bool {
	last := withoutIndexes(e.Field[strings.LastIndexByte(e.Field, '.')+1:])
	return e.Type == field.ErrorTypeInvalid && !strings.Contains(e.Field, ".env[") && (last == "name" || last == "namespace" || last == "hostname")
}

// suggestMode is for modes that were meant to be octal.
func suggestMode(bad any) suggestion {
	v := reflect.ValueOf(bad)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if !v.CanInt() {
		return suggestion{}
	}
	text := strconv.FormatInt(v.Int(), 10)
	if n, err := strconv.ParseInt(text, 8, 64); err != nil || n < 0 || n > 0o777 {
		return suggestion{}
	}
	return suggestion{value: "0" + text, format: "write it with a zero before it, as it is octal: %s", unquoted: true}
}

// suggestName proposes a valid name.
func suggestName(name string) suggestion {
	if isPlaceholder(name) {
		return suggestion{}
	}
	const longest = 63
	proposal := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name), "-")
	if len(proposal) > longest {
		proposal = strings.TrimRight(proposal[:20], "-")
	}
	if proposal == "" || proposal == name {
		return suggestion{}
	}
	return suggestion{value: proposal, format: `for example "%s"`}
}

// withPort is the fault of a port that has a hostPort only.
func (f Fault) withPort(root *yaml.Node, path string) Fault {
	_, object := strictyaml.LookupPath(root, path)
	key, port := strictyaml.LookupPath(root, path+".hostPort")
	if key == nil || port.Kind != yaml.ScalarNode {
		return f
	}
	return f.withEdit(insertBefore(object, key, "containerPort: "+port.Value, "write %s, the port that the program listens on"))
}

// withUnit is the fault of a request that exceeds a limit in thousandths of a byte.
func (f Fault) withUnit(root *yaml.Node, path string) Fault {
	_, n := strictyaml.LookupPath(root, path)
	if n == nil || n.Kind != yaml.ScalarNode {
		return f
	}
	number, milli := strings.CutSuffix(n.Value, "m")
	if !milli || strings.Trim(number, "0123456789") != "" {
		return f
	}
	f.Line = n.Line
	return f.withEdit(replace(n, number+"Mi", "the limit is in thousandths of a byte: did you mean %s?"))
}

// withName is the fault of a volume without a name that a container mounts.
func (f Fault) withName(name string, root *yaml.Node, path string) Fault {
	_, object := strictyaml.LookupPath(root, path)
	if name == "" || object == nil || object.Kind != yaml.MappingNode || len(object.Content) == 0 {
		return f
	}
	return f.withEdit(insertBefore(object, object.Content[0], "name: "+name, "write %s, by which a container mounts it"))
}

// NamelessVolumeName is the name by which containers mount the one volume without a name; ""
// unless one volume has no name, and one name no volume.
func NamelessVolumeName(p *v1.Pod) string {
	names := volumeNames(p)
	if len(names) != len(p.Spec.Volumes)-1 {
		return ""
	}
	var out string
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for i := range c.VolumeMounts {
			name := c.VolumeMounts[i].Name
			if slices.Contains(names, name) || name == out {
				continue
			}
			if out != "" {
				return ""
			}
			out = name
		}
	}
	return out
}

// withoutProcMount is the fault of procMount: Unmasked in a privileged container, as podman
// writes it.
func (f Fault) withoutProcMount(p *v1.Pod, root *yaml.Node, path string) Fault {
	privileged := false
	for at, c := range pod.ContainerPaths(&p.Spec) {
		if own := c.SecurityContext; own != nil && at+".securityContext.procMount" == path {
			privileged = own.Privileged != nil && *own.Privileged
		}
	}
	_, object := strictyaml.LookupPath(root, strings.TrimSuffix(path, ".procMount"))
	key, n := strictyaml.LookupPath(root, path)
	if !privileged || key == nil || n.Kind != yaml.ScalarNode {
		return f
	}
	return f.withEdit(withoutField(object, key, n, "remove procMount: a privileged container sees all of /proc without it"))
}

// withoutField is an edit that removes a field whose value is on its line.
func withoutField(object, key, n *yaml.Node, words string) Edit {
	e := Edit{Old: fmt.Sprintf("%s: %s", key.Value, replaceQuoted(n, "", "").Old), hintFormat: words}.at(key)
	if object.Style&yaml.FlowStyle == 0 || len(object.Content) == 2 {
		return e
	}
	if object.Content[0] == key {
		e.Old += ", "
		return e
	}
	e.Old, e.Column = ", "+e.Old, max(e.Column-len(", "), 0)
	return e
}

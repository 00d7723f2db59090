package manifest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/suggest"
)

// unknownHint says what an unknown field may have been meant to be: a
// misspelling of a neighbour, or a field of another object.
func unknownHint(name, path, kind string, known *fields) string {
	if n := suggest.Name(name, known.names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	if n := referenceHint(name, known); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	if name == "volumes" && slices.Contains(known.names, "volumeMounts") {
		return "a container says in volumeMounts where it sees a volume, by its name; what the volume is stands in spec.volumes"
	}
	if strings.Contains(name, "{{") {
		return "a template placeholder is left in the file; fill it in first"
	}
	if home := homeOf(name, withoutIndexes(path)); home != "" && (kind == "Pod" || strings.HasPrefix(home, "metadata")) {
		return fmt.Sprintf("%q is a field of %s; is the indentation right?", name, home)
	}
	for _, k := range known.names {
		if len(name) >= 4 && strings.HasPrefix(k, name) || len(k) >= 3 && strings.HasPrefix(name, k) {
			return fmt.Sprintf("did you mean %q?", k)
		}
	}
	const few = 14
	switch {
	case len(known.names) <= few:
		return "known fields: " + strings.Join(known.names, ", ")
	case path == "":
		return "a Pod has apiVersion, kind, metadata and spec"
	}
	return "there is no such field here, and none with a similar name; remove it"
}

// referenceHint is the field that names an object where people write one of those
// that do so elsewhere: it is another for nearly every kind of reference.
func referenceHint(name string, known *fields) string {
	names := []string{"name", "secretName", "configMapName", "claimName"}
	if !slices.Contains(names, name) {
		return ""
	}
	for _, n := range names {
		if slices.Contains(known.names, n) && len(known.names) < 6 {
			return n
		}
	}
	return ""
}

func withoutIndexes(path string) string {
	var b strings.Builder
	depth := 0
	for _, r := range path {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// homes maps each field of a Pod to the objects that have it, the shallowest
// first.
var homes = sync.OnceValue(func() map[string][]string {
	out := map[string][]string{}
	type level struct {
		t     reflect.Type
		path  string
		depth int
	}
	const deepest = 4
	queue := []level{{reflect.TypeFor[metav1.ObjectMeta](), "metadata", 0}, {reflect.TypeFor[v1.PodSpec](), "spec", 0}}
	for len(queue) > 0 {
		l := queue[0]
		queue = queue[1:]
		for _, name := range fieldsOf(l.t).names {
			out[name] = append(out[name], l.path)
			ft := l.t.FieldByIndex(fieldsOf(l.t).index[name]).Type
			at := l.path + "." + name
			for ft.Kind() == reflect.Pointer || ft.Kind() == reflect.Slice {
				if ft.Kind() == reflect.Slice {
					at += "[]"
				}
				ft = ft.Elem()
			}
			// Ordinary containers are what people write; the others have the
			// same fields.
			if l.depth < deepest && ft.Kind() == reflect.Struct && !reflect.PointerTo(ft).Implements(unmarshalerType) &&
				name != "initContainers" && name != "ephemeralContainers" && name != "managedFields" {
				queue = append(queue, level{ft, at, l.depth + 1})
			}
		}
	}
	return out
})

// homeOf returns the object that a field at a wrong place most likely belongs
// to: one within the object it was found in, a container, or the shallowest.
func homeOf(name, path string) string {
	all := homes()[name]
	within := func(h string) bool {
		return strings.HasPrefix(strings.ReplaceAll(h, "[]", ""), path+".")
	}
	container := func(h string) bool { return h == "spec.containers[]" }
	first, second := container, within
	if strings.HasPrefix(path, "spec.") {
		first, second = within, container
	}
	for _, fits := range []func(string) bool{first, second} {
		if i := slices.IndexFunc(all, fits); i >= 0 {
			return all[i]
		}
	}
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// entryHint helps those who write a list's entry as one text, as docker-compose
// has it.
func entryHint(value, path string) string {
	list := path[strings.LastIndexByte(path, '.')+1:]
	value = shorten(value)
	name, rest, cut := strings.Cut(value, "=")
	switch {
	case strings.HasPrefix(list, "env[") && cut:
		return fmt.Sprintf("write - {name: %s, value: %q}", name, rest)
	case strings.HasPrefix(list, "envFrom["):
		return fmt.Sprintf("write - configMapRef: {name: %s} or - secretRef: {name: %s}", value, value)
	case strings.HasPrefix(list, "items[") && strings.HasPrefix(path, "spec.volumes["):
		return fmt.Sprintf("write - {key: %s, path: %s}", value, value)
	case strings.HasPrefix(list, "imagePullSecrets["):
		return fmt.Sprintf("write - name: %s", value)
	case strings.HasPrefix(list, "ports["):
		if host, port, ok := strings.Cut(value, ":"); ok {
			return fmt.Sprintf("write - {containerPort: %s, hostPort: %s}", port, host)
		}
		return fmt.Sprintf("write - containerPort: %s", value)
	}
	return ""
}

// quantityHint looks for the usual slips in a quantity.
func quantityHint(s, otherwise string) string {
	number := strings.TrimRightFunc(s, func(r rune) bool { return unicode.IsLetter(r) || r == ' ' })
	unit := strings.TrimSpace(s[len(number):])
	units := []string{"Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "k", "M", "G", "T", "P", "E", "m"}
	if number == "" || strings.TrimFunc(number, func(r rune) bool { return unicode.IsDigit(r) || r == '.' }) != "" {
		return otherwise
	}
	meant, hint := "", "did you mean %s?"
	switch u := strings.ToLower(unit); {
	case slices.Contains(units, unit) && strings.Contains(s, " "):
		meant, hint = number+unit, "write it without the space: %s"
	case strings.HasPrefix(u, "k") && len(u) <= 3:
		meant = number + "Ki"
	case strings.HasPrefix(u, "m") && len(u) <= 3 && len(u) > 1, strings.HasPrefix(u, "g") && len(u) <= 3, strings.HasPrefix(u, "t") && len(u) <= 3:
		meant = number + strings.ToUpper(u[:1]) + "i"
	}
	if _, err := resource.ParseQuantity(meant); err != nil { // 1.2.3Mi is wrong before its unit
		return otherwise
	}
	return fmt.Sprintf(hint, meant)
}

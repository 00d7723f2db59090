package advice

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

	"podd/internal/strictyaml"
)

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

// fieldOwners maps each field name of a Pod to the objects that have it, the shallowest
// first.
var fieldOwners = sync.OnceValue(func() map[string][]string {
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
		for _, name := range strictyaml.FieldsOf(l.t).Names {
			out[name] = append(out[name], l.path)
			ft := l.t.FieldByIndex(strictyaml.FieldsOf(l.t).Index[name]).Type
			at := l.path + "." + name
			for ft.Kind() == reflect.Pointer || ft.Kind() == reflect.Slice {
				if ft.Kind() == reflect.Slice {
					at += "[]"
				}
				ft = ft.Elem()
			}
			// Regular containers are the usual case; the others have the same fields.
			if l.depth < deepest && ft.Kind() == reflect.Struct && !strictyaml.HasUnmarshaler(ft) &&
				name != "initContainers" && name != "ephemeralContainers" && name != "managedFields" {
				queue = append(queue, level{ft, at, l.depth + 1})
			}
		}
	}
	return out
})

// fieldOwner returns the object that a misplaced field most likely belongs to: one within
// the object where it was found, a container, or the shallowest.
func fieldOwner(name, path string) string {
	all := fieldOwners()[name]
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

// suggestEntry is for a list's entry that is written as one string, as in docker-compose.
func suggestEntry(value, path string) (m suggestion, hint string) {
	list := path[strings.LastIndexByte(path, '.')+1:]
	name, rest, cut := strings.Cut(value, "=")
	m.format, m.unquoted = "write %s", true
	switch {
	case strings.HasPrefix(list, "env[") && cut:
		m.value = fmt.Sprintf("{name: %s, value: %q}", name, rest)
	case strings.HasPrefix(list, "envFrom["):
		return suggestion{}, fmt.Sprintf("write - configMapRef: {name: %s} or - secretRef: {name: %s}", Shorten(value), Shorten(value))
	case strings.HasPrefix(list, "items[") && strings.HasPrefix(path, "spec.volumes["):
		m.value = fmt.Sprintf("{key: %s, path: %s}", value, value)
	case strings.HasPrefix(list, "imagePullSecrets["):
		m.value = "{name: " + value + "}"
	case strings.HasPrefix(list, "ports["):
		m.value = fmt.Sprintf("{containerPort: %s}", value)
		if host, port, ok := strings.Cut(value, ":"); ok {
			m.value = fmt.Sprintf("{containerPort: %s, hostPort: %s}", port, host)
		}
	default:
		return suggestion{}, ""
	}
	return m, ""
}

// suggestQuantity recognises the usual mistakes in a quantity; the zero value for others.
func suggestQuantity(s string) suggestion {
	number := strings.TrimRightFunc(s, func(r rune) bool { return unicode.IsLetter(r) || r == ' ' })
	unit := strings.TrimSpace(s[len(number):])
	units := []string{"Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "k", "M", "G", "T", "P", "E", "m"}
	if number == "" || strings.TrimFunc(number, func(r rune) bool { return unicode.IsDigit(r) || r == '.' }) != "" {
		return suggestion{}
	}
	m := suggestion{format: "did you mean %s?"}
	switch u := strings.ToLower(unit); {
	case slices.Contains(units, unit) && strings.Contains(s, " "):
		m = suggestion{value: number + unit, format: "write it without the space: %s"}
	case strings.HasPrefix(u, "k") && len(u) <= 3:
		m.value = number + "Ki"
	case strings.HasPrefix(u, "m") && len(u) <= 3 && len(u) > 1, strings.HasPrefix(u, "g") && len(u) <= 3, strings.HasPrefix(u, "t") && len(u) <= 3:
		m.value = number + strings.ToUpper(u[:1]) + "i"
	}
	if _, err := resource.ParseQuantity(m.value); err != nil { // 1.2.3Mi is wrong before its unit
		return suggestion{}
	}
	return m
}

package manifest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podd/internal/mask"
	"podd/internal/pod"
	"podd/internal/podapi"
)

// object decodes one ConfigMap or Secret. prefix is the path of a list's item,
// else "".
func (r *reader) object(n *yaml.Node, kind, prefix string) {
	if r.named++; r.named > MaxObjects {
		r.exceed(n, fmt.Sprintf("the manifest has more than %d ConfigMaps and Secrets", MaxObjects))
		return
	}
	o := &pod.Object{Source: r.opt.Source, Origin: r.opt.shown(), Line: n.Line + r.base, Seen: r.opt.Now}
	d := &filler{lines: map[string]int{"": n.Line}, kind: kind, validation: r.opt.Validation}
	if kind == pod.KindSecret {
		o.Secret = &v1.Secret{}
		d.fill(reflect.ValueOf(o.Secret).Elem(), n, "")
	} else {
		o.ConfigMap = &v1.ConfigMap{}
		d.fill(reflect.ValueOf(o.ConfigMap).Elem(), n, "")
	}
	if !r.afford(d, n) {
		return
	}
	faults := d.faults
	if len(faults) == 0 {
		faults = admitObject(o, d.lines)
	}
	of := failedObject(n, kind)
	if len(faults) > 0 {
		r.fail(within(prefix, faults), of)
		return
	}
	for _, f := range within(prefix, d.warnings) {
		r.warn(f, of)
	}
	r.Objects = append(r.Objects, o)
}

// admitObject completes a decoded object in place, as an apiserver would store
// it, and returns what upstream's validation has against it.
func admitObject(o *pod.Object, lines map[string]int) []fault {
	var errs field.ErrorList
	if s := o.Secret; s != nil {
		s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: pod.KindSecret}
		cleanObject(&s.ObjectMeta)
		podapi.DefaultSecret(s)
		errs = podapi.ValidateSecret(s)
	} else {
		c := o.ConfigMap
		c.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: pod.KindConfigMap}
		cleanObject(&c.ObjectMeta)
		errs = podapi.ValidateConfigMap(c)
	}
	// Upstream goes through maps.
	slices.SortFunc(errs, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(lineOf(lines, written(a.Field, lines)), lineOf(lines, written(b.Field, lines))),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Detail, b.Detail))
	})
	kind := o.Key().Kind
	var out []fault
	told := map[string]bool{}
	for i, e := range errs {
		at := written(e.Field, lines)
		if told[at] {
			continue // one sentence a field
		}
		told[at] = true
		if len(out) == maxProblems {
			return append(out, fault{line: lineOf(lines, at), message: fmt.Sprintf("and %d more problems in this %s", len(errs)-i, kind), hint: "fix the ones above first"})
		}
		f := fault{line: lineOf(lines, at), field: at, message: verdict(e), hint: adviseObject(e, kind)}
		if kind == pod.KindSecret {
			f.plain, f.plainHint = plainVerdict(e), f.hint
			f = hushed(f)
		}
		out = append(out, f)
	}
	return out
}

// SizeOf is how many bytes the keys and values of an object have.
func SizeOf(o *pod.Object) int {
	n := 0
	if s := o.Secret; s != nil {
		for key, value := range s.Data {
			n += len(key) + len(value)
		}
		return n
	}
	for key, value := range o.ConfigMap.Data {
		n += len(key) + len(value)
	}
	for key, value := range o.ConfigMap.BinaryData {
		n += len(key) + len(value)
	}
	return n
}

// written is the path of a value where the manifest is it: an apiserver knows
// what stringData held as data.
func written(path string, lines map[string]int) string {
	if _, ok := lines[path]; !ok && strings.HasPrefix(path, "data[") {
		if text := "stringData" + strings.TrimPrefix(path, "data"); lines[text] > 0 {
			return text
		}
	}
	return path
}

// lastApplied is where kubectl apply keeps the whole object, values too.
const lastApplied = v1.LastAppliedConfigAnnotation

// cleanObject drops what an apiserver or kubectl wrote.
func cleanObject(m *metav1.ObjectMeta) {
	cleanMeta(m)
	if delete(m.Annotations, lastApplied); len(m.Annotations) == 0 {
		m.Annotations = nil
	}
}

// plainVerdict is the apiserver's sentence on a Secret: with names, types and
// keys, and without any other value.
func plainVerdict(e *field.Error) string {
	key := strings.HasPrefix(e.Field, "data[") && "data["+badText(e)+"]" == e.Field
	if key || e.Field == "metadata.name" || e.Field == "metadata.namespace" {
		return verdict(e)
	}
	switch {
	case e.Type == field.ErrorTypeRequired, e.Type == field.ErrorTypeTooLong:
		return verdict(e) // which shows no value
	case strings.HasPrefix(e.Field, "data["):
		return e.Type.String() + ": it is not a JSON object" // upstream quotes the decoder, and that the value
	}
	text := e.Type.String() + ": " + mask.Value
	if bad := badText(e); bad != "" && !strings.Contains(e.Detail, bad) {
		text += ": " + e.Detail
	}
	return text
}

// hushed is a fault of a Secret without anything of its values.
func hushed(f fault) fault {
	if f.plain != "" {
		f.message, f.hint, f.plain = f.plain, f.plainHint, ""
	}
	odd := strings.IndexFunc(f.field, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./[]", r))
	})
	if odd >= 0 { // password:geheim
		name := strings.IndexByte(f.field[:odd], '.') + 1
		if key := strings.IndexByte(f.field[:odd], '['); key >= 0 {
			name = key + 1
		}
		f.field = f.field[:name] + mask.Value
		f.message = "this is not the name of a field or a key: such names have letters, digits, '-', '_' and '.' only"
		f.hint = `is a blank missing behind its colon? Write "name: value"`
	}
	return f
}

// adviseObject adds a remedy to an apiserver's verdict on an object; "" where
// that says it all.
func adviseObject(e *field.Error, kind string) string {
	key, value, inValues := strings.Cut(strings.TrimSuffix(e.Field, "]"), "[")
	inValues = inValues && (key == "data" || key == "binaryData")
	switch {
	case e.Type == field.ErrorTypeTooLong && (e.Field == "" || e.Field == "data"):
		return "all values of one " + kind + " have 1 MiB together; split it, or put large files on the node and use a hostPath volume"
	case e.Field == "metadata.name" && e.Type == field.ErrorTypeRequired:
		return "write metadata: name: settings"
	case e.Field == "metadata.name", e.Field == "metadata.namespace":
		return nameHint(badText(e))
	case inValues && e.Type == field.ErrorTypeRequired:
		return "a Secret of this type needs this key; without type: it may have any"
	case inValues && e.BadValue == redacted:
		return "write the whole of a docker config.json under stringData, or its base64 under data"
	case inValues && strings.HasPrefix(e.Detail, "duplicate of key"):
		return "remove one of the two"
	case inValues && strings.Contains(value, "/"):
		return "a key becomes the name of a file: write it without slashes, and give it its path with items of the volume that shows it"
	case inValues && strings.HasPrefix(value, "."):
		return "a key becomes the name of a file: choose one that does not lead elsewhere"
	case inValues && strings.Contains(e.Detail, "no more than"):
		return "use a shorter key; items of the volume that shows it give it another path"
	}
	return ""
}

// redacted is what upstream shows in place of a Secret's value.
const redacted = "<secret contents redacted>"

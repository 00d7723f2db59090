package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podd/internal/mask"
	"podd/internal/pod"
	"podd/internal/podapi"
)

// object decodes one object beside the pods. prefix is the path of a list's item,
// else "".
func (r *reader) object(n *yaml.Node, kind, prefix string) {
	if r.named++; r.named > MaxObjects {
		r.exceed(n, fmt.Sprintf("the manifest has more than %d ConfigMaps, Secrets and other objects", MaxObjects))
		return
	}
	o := &pod.Object{Source: r.opt.Source, Origin: r.opt.shown(), Line: n.Line + r.base, Seen: r.opt.Now}
	d := &decoding{kind: kind, validation: r.opt.Validation}
	d.decode(n, emptyObject(o, kind))
	if !r.afford(d, n) {
		return
	}
	faults := d.faults
	if len(faults) == 0 {
		faults = admitObject(o, n, d.lines)
	}
	of := failedObject(n, kind)
	if len(faults) > 0 {
		r.fail(within(prefix, faults), of)
		return
	}
	for _, f := range within(prefix, append(d.warnings, objectDoubts(o, d.lines)...)) {
		r.warn(f, of)
	}
	r.Objects = append(r.Objects, o)
}

// emptyObject gives o an object of a kind, to be decoded into.
func emptyObject(o *pod.Object, kind string) any {
	switch kind {
	case pod.KindSecret:
		o.Secret = &v1.Secret{}
		return o.Secret
	case pod.KindPersistentVolume:
		o.Volume = &v1.PersistentVolume{}
		return o.Volume
	case pod.KindPersistentVolumeClaim:
		o.Claim = &v1.PersistentVolumeClaim{}
		return o.Claim
	case pod.KindCSIDriver:
		o.Driver = &storagev1.CSIDriver{}
		return o.Driver
	}
	o.ConfigMap = &v1.ConfigMap{}
	return o.ConfigMap
}

// complete makes of a decoded object in place what an apiserver would store, and
// returns what upstream's validation has against it.
func complete(o *pod.Object) field.ErrorList {
	typed := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: pod.APIVersion(kind), Kind: kind}
	}
	switch {
	case o.Secret != nil:
		o.Secret.TypeMeta = typed(pod.KindSecret)
		cleanObject(&o.Secret.ObjectMeta)
		podapi.DefaultSecret(o.Secret)
		return podapi.ValidateSecret(o.Secret)
	case o.Volume != nil:
		o.Volume.TypeMeta = typed(pod.KindPersistentVolume)
		completeVolume(o.Volume)
		return podapi.ValidateVolume(o.Volume)
	case o.Claim != nil:
		o.Claim.TypeMeta = typed(pod.KindPersistentVolumeClaim)
		cleanObject(&o.Claim.ObjectMeta)
		o.Claim.Status = v1.PersistentVolumeClaimStatus{}
		podapi.DefaultClaim(o.Claim)
		return podapi.ValidateClaim(o.Claim)
	case o.Driver != nil:
		o.Driver.TypeMeta = typed(pod.KindCSIDriver)
		completeDriver(o.Driver)
		return podapi.ValidateCSIDriver(o.Driver)
	}
	o.ConfigMap.TypeMeta = typed(pod.KindConfigMap)
	cleanObject(&o.ConfigMap.ObjectMeta)
	return podapi.ValidateConfigMap(o.ConfigMap)
}

// admitObject completes a decoded object in place and returns what speaks against
// it: the apiserver's objections, and then what podd does not have.
func admitObject(o *pod.Object, content *yaml.Node, lines map[string]int) []fault {
	errs := complete(o)
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
		if e.Field == "metadata.name" || e.Field == "metadata.namespace" {
			f = f.instead(nameMeant(badText(e)), content, e.Field)
		}
		if kind == pod.KindSecret {
			f.plain, f.plainHint = plainVerdict(e), f.hint
			f = hushed(f)
		}
		out = append(out, f)
	}
	if o.Volume != nil && len(out) == 0 {
		out = unsupported(o.Volume, lines)
	}
	if o.Driver != nil && len(out) == 0 {
		out = unsupportedDriver(o.Driver, lines)
	}
	return out
}

// SizeOf is how many bytes the keys and values of an object have.
func SizeOf(o *pod.Object) int {
	n := 0
	switch {
	case o.Secret != nil:
		for key, value := range o.Secret.Data {
			n += len(key) + len(value)
		}
		return n
	case o.ConfigMap == nil:
		return 0 // it has no values
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
	case isNameError(e) && isPlaceholder(badText(e)):
		return fillHint
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

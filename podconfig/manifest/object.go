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

	"podd/internal/pod"
	"podd/internal/podapi"
	"podd/internal/strictyaml"
	"podd/podconfig/manifest/advice"
)

// decodeObject decodes one object beside the pods. prefix is the path of a list's item,
// else "".
func (r *reader) decodeObject(n *yaml.Node, kind, prefix string) {
	if r.objectCount++; r.objectCount > MaxObjects {
		r.setExceeded(n, fmt.Sprintf("the manifest has more than %d ConfigMaps, Secrets and other objects", MaxObjects))
		return
	}
	o := &pod.Object{Source: r.opt.Source, Origin: r.opt.displayOrigin(), Line: n.Line + r.lineOffset, Seen: r.opt.Now}
	d := &decoding{kind: kind, validation: r.opt.Validation}
	d.decode(n, emptyObject(o, kind))
	if !r.chargeMemory(d, n) {
		return
	}
	faults := d.faults
	if len(faults) == 0 {
		faults = admitObject(o, d.Decoded)
	}
	of := failedObject(n, kind)
	if len(faults) > 0 {
		r.fail(prefixFields(prefix, faults), of)
		return
	}
	for _, f := range prefixFields(prefix, append(d.warnings, objectWarnings(o, d.Decoded)...)) {
		r.warn(f, of)
	}
	r.Objects = append(r.Objects, o)
}

// emptyObject gives o an object of a kind, to be decoded into.
func emptyObject(o *pod.Object, kind string) any {
	typed := metav1.TypeMeta{APIVersion: pod.APIVersion(kind), Kind: kind}
	switch kind {
	case pod.KindSecret:
		o.Secret = &v1.Secret{TypeMeta: typed}
		return o.Secret
	case pod.KindPersistentVolume:
		o.Volume = &v1.PersistentVolume{TypeMeta: typed}
		return o.Volume
	case pod.KindPersistentVolumeClaim:
		o.Claim = &v1.PersistentVolumeClaim{TypeMeta: typed}
		return o.Claim
	case pod.KindCSIDriver:
		o.Driver = &storagev1.CSIDriver{TypeMeta: typed}
		return o.Driver
	}
	o.ConfigMap = &v1.ConfigMap{TypeMeta: typed}
	return o.ConfigMap
}

// defaultAndValidate makes of a decoded object in place what an apiserver would store, and
// returns what upstream's validation has against it.
func defaultAndValidate(o *pod.Object) field.ErrorList {
	switch {
	case o.Secret != nil:
		cleanObject(&o.Secret.ObjectMeta)
		podapi.DefaultSecret(o.Secret)
		return podapi.ValidateSecret(o.Secret)
	case o.Volume != nil:
		completeVolume(o.Volume)
		return podapi.ValidateVolume(o.Volume)
	case o.Claim != nil:
		cleanObject(&o.Claim.ObjectMeta)
		o.Claim.Status = v1.PersistentVolumeClaimStatus{}
		podapi.DefaultClaim(o.Claim)
		return podapi.ValidateClaim(o.Claim)
	case o.Driver != nil:
		completeDriver(o.Driver)
		return podapi.ValidateCSIDriver(o.Driver)
	}
	cleanObject(&o.ConfigMap.ObjectMeta)
	return podapi.ValidateConfigMap(o.ConfigMap)
}

// admitObject completes a decoded object in place and returns what speaks against
// it: the apiserver's objections, and then what podd does not have.
func admitObject(o *pod.Object, text *strictyaml.Decoded) []advice.Fault {
	errs := defaultAndValidate(o)
	// Upstream goes through maps.
	slices.SortFunc(errs, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(text.Line(written(a.Field, text)), text.Line(written(b.Field, text))),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Detail, b.Detail))
	})
	kind := o.Key().Kind
	var out []advice.Fault
	told := map[string]bool{}
	for i, e := range errs {
		at := written(e.Field, text)
		if told[at] {
			continue // one sentence a field
		}
		told[at] = true
		if len(out) == maxProblems {
			return append(out, advice.Fault{Line: text.Line(at), Message: fmt.Sprintf("and %d more problems in this %s", len(errs)-i, kind), Hint: "fix the ones above first"})
		}
		out = append(out, advice.ObjectValidationFault(e, kind, at, text))
	}
	if o.Volume != nil && len(out) == 0 {
		out = unsupportedVolume(o.Volume, text)
	}
	if o.Driver != nil && len(out) == 0 {
		out = unsupportedDriver(o.Driver, text)
	}
	return out
}

// SizeOf is how many bytes the keys and values of an object have.
func SizeOf(o *pod.Object) int {
	n := 0
	for key, size := range sizes(o) {
		n += len(key) + size
	}
	return n
}

// sizes are how many bytes the value of each key of an object has.
func sizes(o *pod.Object) map[string]int {
	out := map[string]int{}
	if o.Secret != nil {
		for key, value := range o.Secret.Data {
			out[key] = len(value)
		}
	}
	if o.ConfigMap != nil {
		for key, value := range o.ConfigMap.Data {
			out[key] = len(value)
		}
		for key, value := range o.ConfigMap.BinaryData {
			out[key] = len(value)
		}
	}
	return out
}

// written is the path of a value where the manifest is it: an apiserver knows
// what stringData held as data.
func written(path string, text *strictyaml.Decoded) string {
	if _, ok := text.Lines[path]; !ok && strings.HasPrefix(path, "data[") {
		if as := "stringData" + strings.TrimPrefix(path, "data"); text.Lines[as] > 0 {
			return as
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

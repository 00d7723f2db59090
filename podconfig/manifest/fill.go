package manifest

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podd/internal/pod"
)

// filler decodes nodes into Go values strictly and records the line of each field
// path. It agrees with upstream's strict JSON decoder on what is valid
// (TestStructureAgreesWithUpstreamsDecoder), but continues after a fault and knows its
// position.
type filler struct {
	lines map[string]int
	// kind is what is decoded: a Pod, an object that pods refer to, or a Secret, whose
	// faults show nothing but the names of fields, and those only if they are valid
	// names.
	kind       string
	validation Validation
	faults     []fault
	// warnings are faults that the pod may have, see Validation.
	warnings []fault
	// values is the approximate memory of the decoded form, in bytes.
	values int
}

func (d *filler) report(f fault) {
	to := &d.faults
	switch {
	case f.lenient && d.validation == Ignore:
		return
	case f.lenient && d.validation == Warn:
		to = &d.warnings
	}
	if len(*to) <= maxProblems {
		if d.kind == pod.KindSecret {
			f = hushed(f)
		}
		f.plain = "" // it is known what it is
		*to = append(*to, f)
	}
}

// wants says whether another lenient fault would be reported.
func (d *filler) wants() bool {
	return d.validation != Ignore && len(d.warnings) <= maxProblems
}

// done says that the rest of the pod need not be decoded.
func (d *filler) done() bool { return len(d.faults) > maxProblems || d.values > maxPodValues }

// spend counts memory that is about to be allocated and says whether it may be.
func (d *filler) spend(bytes int, n *yaml.Node, path string) bool {
	before := d.values
	if d.values += bytes; d.values <= maxPodValues {
		return true
	}
	if before <= maxPodValues {
		what, hint := "pod", "a Pod has a few dozen containers, variables and mounts; "
		if d.kind != "Pod" {
			what, hint = d.kind, "the values of a ConfigMap or Secret may have 1 MiB; "
		}
		d.report(fault{line: n.Line, field: path, message: "the " + what + " exceeds the limit of " + mebibytes(maxPodValues) + " of memory here",
			hint: hint + rightFile})
	}
	return false
}

func (d *filler) wrong(n *yaml.Node, path, want, hint string) {
	d.wrongly(n, path, want, hint, meant{})
}

// wrongly is wrong with the value that was meant, if that is known.
func (d *filler) wrongly(n *yaml.Node, path, want, hint string, m meant) {
	f := fault{line: n.Line, field: path, message: "got " + describe(n) + ", want " + want, hint: hint,
		plain: "got " + formOf(n) + ", want " + want, plainHint: hint}
	if n.Kind == yaml.ScalarNode {
		f.plainHint = "" // which may show it
		if isPlaceholder(n.Value) {
			f.hint, m = fillHint, meant{}
		}
		if m.words != "" {
			f = f.by(m.edit(n))
		}
	}
	d.report(f)
}

var (
	quantityType    = reflect.TypeFor[resource.Quantity]()
	intOrStringType = reflect.TypeFor[intstr.IntOrString]()
	bytesType       = reflect.TypeFor[[]byte]()
	fieldsType      = reflect.TypeFor[metav1.FieldsV1]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// fill sets v, which is addressable, from n.
func (d *filler) fill(v reflect.Value, n *yaml.Node, path string) {
	if d.done() {
		return
	}
	n = resolve(n)
	if _, ok := d.lines[path]; !ok {
		d.lines[path] = n.Line
	}
	if literalOf(n).kind == literalNull {
		return
	}
	switch v.Type() {
	case quantityType:
		d.quantity(v, n, path)
		return
	case intOrStringType:
		d.intOrString(v, n, path)
		return
	case bytesType:
		d.bytes(v, n, path)
		return
	case fieldsType: // managedFields: an exported Pod's book-keeping
		return
	}
	if v.Kind() != reflect.Pointer && v.Addr().Type().Implements(unmarshalerType) {
		d.custom(v, n, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !d.spend(int(v.Type().Elem().Size()), n, path) {
			return
		}
		p := reflect.New(v.Type().Elem())
		d.fill(p.Elem(), n, path)
		v.Set(p)
	case reflect.Struct:
		d.object(v, n, path)
	case reflect.Map:
		d.mapping(v, n, path)
	case reflect.Slice:
		d.list(v, n, path)
	case reflect.String:
		if s, ok := d.text(n, path); ok {
			v.SetString(s)
		}
	case reflect.Bool:
		d.boolean(v, n, path)
	case reflect.Int32, reflect.Int64:
		d.integer(v, n, path)
	default:
		// No Pod has such a field; a new API version that brings one must not
		// be decoded in silence.
		d.report(fault{line: n.Line, field: path, message: "podd cannot read a field of type " + v.Type().String()})
	}
}

func (d *filler) object(v reflect.Value, n *yaml.Node, path string) {
	if n.Kind != yaml.MappingNode {
		hint, entry := `write its fields below it, indented, each "name: value"`, meant{}
		if n.Kind == yaml.SequenceNode {
			hint = `remove the "- ": this field takes one object, not a list`
		} else if m, h := entryMeant(n.Value, path); m.words != "" || h != "" {
			hint, entry = h, m
		}
		d.wrongly(n, path, "an object", hint, entry)
		return
	}
	known := fieldsOf(v.Type())
	all := d.pairs(n, path)
	for _, p := range all {
		if d.done() {
			return
		}
		at := child(path, p.name)
		i, ok := known.index[p.name]
		if !ok {
			if d.wants() {
				u := unknownField{pair: p, path: path, kind: d.kind, object: v.Type(), written: namesOf(all)}
				d.report(u.fault())
			}
			continue
		}
		d.lines[at] = p.key.Line
		d.fill(v.FieldByIndex(i), p.value, at)
	}
}

func (d *filler) mapping(v reflect.Value, n *yaml.Node, path string) {
	if n.Kind != yaml.MappingNode {
		d.wrong(n, path, `an object`, `write one "name: value" a line below it, indented`)
		return
	}
	const entry = 100 // bytes of a map's entry beyond its value
	m := reflect.MakeMap(v.Type())
	for _, p := range pairs(n, func(f fault) { f.field = child(path, f.field); d.report(f) }) {
		if d.done() || !d.spend(entry+int(v.Type().Elem().Size()), p.key, path) {
			return
		}
		at := path + "[" + p.name + "]"
		d.lines[at] = p.key.Line
		if key := resolve(p.key); !isText(key) {
			f := fault{line: key.Line, field: at, message: "the key " + shorten(p.name) + " is " + whatItIs(key) + " to Kubernetes"}
			d.report(f.by(replace(key, strconv.Quote(p.name), "put it in quotes: %s")))
			continue
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.fill(e, p.value, at)
		m.SetMapIndex(reflect.ValueOf(p.name).Convert(v.Type().Key()), e)
	}
	v.Set(m)
}

// namesOf are those of some fields.
func namesOf(all []pair) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].name
	}
	return names
}

// isText says whether Kubernetes takes a field's name as it is written. An unquoted
// number is parsed and formatted again.
func isText(key *yaml.Node) bool {
	lit := literalOf(key)
	if lit.kind != literalNumber {
		return lit.kind == literalText
	}
	if _, err := strconv.ParseInt(lit.text, 10, 64); err == nil {
		return lit.text == key.Value
	}
	f, err := strconv.ParseFloat(key.Value, 64)
	const digits = 32 // bits, with which upstream writes it
	return err == nil && strconv.FormatFloat(f, 'g', -1, digits) == key.Value
}

// whatItIs describes an unquoted value.
func whatItIs(n *yaml.Node) string {
	switch lit := literalOf(n); lit.kind {
	case literalBool:
		return "a boolean"
	case literalNumber:
		return "the number " + lit.text
	case literalNull:
		return "null"
	}
	return "not a string"
}

func (d *filler) list(v reflect.Value, n *yaml.Node, path string) {
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, path, "a list", `begin each entry with "- ", also when there is only one`)
		return
	}
	const entry = 200 // bytes of the paths and lines that are kept of an entry, meanwhile
	if !d.spend(len(n.Content)*(entry+int(v.Type().Elem().Size())), n, path) {
		return
	}
	s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, e := range n.Content {
		d.fill(s.Index(i), e, path+"["+strconv.Itoa(i)+"]")
	}
	v.Set(s)
}

func child(path, name string) string {
	switch {
	case path == "":
		return name
	case name == "":
		return path
	}
	return path + "." + name
}

// fields are the JSON names of a struct's fields, in order, and their indexes,
// including those of inlined structs.
type fields struct {
	names []string
	index map[string][]int
}

var fieldCache sync.Map // reflect.Type → *fields

func fieldsOf(t reflect.Type) *fields {
	if f, ok := fieldCache.Load(t); ok {
		return f.(*fields)
	}
	f := &fields{index: map[string][]int{}}
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		switch {
		case name != "" && name != "-":
			f.names = append(f.names, name)
			f.index[name] = []int{i}
		case sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct:
			inner := fieldsOf(sf.Type)
			for _, n := range inner.names {
				f.names = append(f.names, n)
				f.index[n] = append([]int{i}, inner.index[n]...)
			}
		}
	}
	fieldCache.Store(t, f)
	return f
}

package manifest

import (
	"encoding/json"
	"fmt"
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

// filler decodes nodes into Go values strictly and remembers on which line each
// field path stands. It agrees with upstream's strict JSON decoder on what is
// valid (TestFillAgreesWithUpstreamsDecoder), but goes on after a fault and
// knows where it is.
type filler struct {
	lines  map[string]int
	faults []fault
}

func (d *filler) report(f fault) { d.faults = append(d.faults, f) }

func (d *filler) wrong(n *yaml.Node, path, want, hint string) {
	d.report(fault{line: n.Line, field: path, message: "got " + describe(n) + ", want " + want, hint: hint})
}

var (
	quantityType    = reflect.TypeFor[resource.Quantity]()
	intOrStringType = reflect.TypeFor[intstr.IntOrString]()
	fieldsType      = reflect.TypeFor[metav1.FieldsV1]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// fill sets v, which is addressable, from n.
func (d *filler) fill(v reflect.Value, n *yaml.Node, path string) {
	n = resolve(n)
	if _, ok := d.lines[path]; !ok {
		d.lines[path] = n.Line
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	switch v.Type() {
	case quantityType:
		d.quantity(v, n, path)
		return
	case intOrStringType:
		d.intOrString(v, n, path)
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
		hint := `write its fields below it, indented, each "name: value"`
		if n.Kind == yaml.SequenceNode {
			hint = `remove the "- ": this field takes one object, not a list`
		} else if h := entryHint(n.Value, path); h != "" {
			hint = h
		}
		d.wrong(n, path, "an object with fields", hint)
		return
	}
	known := fieldsOf(v.Type())
	for _, p := range pairs(n, func(f fault) { f.field = child(path, f.field); d.report(f) }) {
		at := child(path, p.name)
		i, ok := known.index[p.name]
		if !ok {
			d.report(fault{line: p.key.Line, field: at,
				message: fmt.Sprintf("unknown field %q", shorten(p.name)), hint: unknownHint(p.name, path, known)})
			continue
		}
		d.lines[at] = p.key.Line
		d.fill(v.FieldByIndex(i), p.value, at)
	}
}

func (d *filler) mapping(v reflect.Value, n *yaml.Node, path string) {
	if n.Kind != yaml.MappingNode {
		d.wrong(n, path, `an object with fields`, `write one "name: value" a line below it, indented`)
		return
	}
	m := reflect.MakeMap(v.Type())
	for _, p := range pairs(n, func(f fault) { f.field = child(path, f.field); d.report(f) }) {
		at := path + "[" + p.name + "]"
		d.lines[at] = p.key.Line
		key := resolve(p.key)
		if key.Tag == "!!bool" || isOldBoolean(key) {
			d.report(fault{line: key.Line, field: at, message: "the name " + p.name + " is a boolean to Kubernetes",
				hint: "put it in quotes: " + strconv.Quote(p.name)})
			continue
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.fill(e, p.value, at)
		m.SetMapIndex(reflect.ValueOf(p.name).Convert(v.Type().Key()), e)
	}
	v.Set(m)
}

func isOldBoolean(n *yaml.Node) bool {
	_, ok := oldBoolean(n)
	return ok
}

func (d *filler) list(v reflect.Value, n *yaml.Node, path string) {
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, path, "a list", `begin each entry with "- ", also when there is only one`)
		return
	}
	s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, e := range n.Content {
		d.fill(s.Index(i), e, path+"["+strconv.Itoa(i)+"]")
	}
	v.Set(s)
}

// text returns a string field's value. A number or boolean without quotes is
// refused, as the apiserver does: what the file shows (1.10, 0755, no) and what
// would arrive ("1.1", "493", "false") differ too often.
func (d *filler) text(n *yaml.Node, path string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		hint := ""
		switch {
		case n.Kind == yaml.SequenceNode:
			hint = `remove the "- ": this field takes one text, not a list`
		case n.Style&yaml.FlowStyle != 0:
			hint = "is a template placeholder such as {{ … }} left in the file? Fill it in first; a text that begins with { needs quotes"
		}
		d.wrong(n, path, "a text", hint)
		return "", false
	}
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
	case "!!int", "!!float", "!!bool":
		d.wrong(n, path, "a text", "put it in quotes: "+strconv.Quote(n.Value))
		return "", false
	default:
		d.report(fault{line: n.Line, field: path, message: "the YAML tag " + n.ShortTag() + " is not understood here", hint: "remove it and write a plain text"})
		return "", false
	}
	if _, ok := oldBoolean(n); ok {
		d.report(fault{line: n.Line, field: path, message: "got " + n.Value + ", which is a boolean to Kubernetes, want a text",
			hint: "put it in quotes: " + strconv.Quote(n.Value)})
		return "", false
	}
	return n.Value, true
}

func (d *filler) boolean(v reflect.Value, n *yaml.Node, path string) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" {
		v.SetBool(strings.EqualFold(n.Value, "true"))
		return
	}
	if b, ok := oldBoolean(n); ok {
		v.SetBool(b)
		return
	}
	hint := ""
	if n.Kind == yaml.ScalarNode {
		switch strings.ToLower(n.Value) {
		case "true", "yes", "on":
			hint = "remove the quotes: true"
		case "false", "no", "off":
			hint = "remove the quotes: false"
		}
	}
	d.wrong(n, path, "true or false", hint)
}

func (d *filler) integer(v reflect.Value, n *yaml.Node, path string) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		hint := ""
		if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
			if _, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
				hint = "remove the quotes: " + n.Value
			} else if s, found := strings.CutSuffix(n.Value, "s"); found {
				if _, err := strconv.ParseInt(s, 10, 64); err == nil {
					hint = "write the seconds as a number: " + s
				}
			}
		}
		if strings.HasSuffix(path, "Probe.periodSeconds") && n.ShortTag() == "!!float" {
			hint = "the annotation " + pod.AnnotationProbeUntilSuccess + ": 100ms makes startup and readiness probes run that often until their first success"
		}
		d.wrong(n, path, "a whole number", hint)
		return
	}
	i, err := wholeNumber(n.Value)
	if err != nil || v.OverflowInt(i) {
		bits := v.Type().Bits()
		d.wrong(n, path, fmt.Sprintf("a whole number between -2^%d and 2^%d-1", bits-1, bits-1), "")
		return
	}
	v.SetInt(i)
}

// wholeNumber reads an integer in the notations of YAML 1.1 (decimal, 0x, 0b,
// and octal with a leading 0, which file modes are written in).
func wholeNumber(s string) (int64, error) {
	return strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 0, 64)
}

func (d *filler) quantity(v reflect.Value, n *yaml.Node, path string) {
	const want = "a quantity"
	const hint = `a number with an optional unit: 500m or 0.5 for CPU, 128Mi or 2Gi for memory`
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!bool" {
		d.wrong(n, path, want, hint)
		return
	}
	q, err := resource.ParseQuantity(strings.TrimSpace(n.Value))
	if err != nil {
		d.wrong(n, path, want, quantityHint(n.Value, hint))
		return
	}
	v.Set(reflect.ValueOf(q))
}

func (d *filler) intOrString(v reflect.Value, n *yaml.Node, path string) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" {
		i, err := wholeNumber(n.Value)
		if err != nil || int64(int32(i)) != i {
			d.wrong(n, path, "a port's number or its name", "")
			return
		}
		v.Set(reflect.ValueOf(intstr.FromInt32(int32(i))))
		return
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		d.wrong(n, path, "a port's number or its name", "")
		return
	}
	v.Set(reflect.ValueOf(intstr.FromString(n.Value)))
}

// custom leaves a value to its type's own decoder (times).
func (d *filler) custom(v reflect.Value, n *yaml.Node, path string) {
	text, err := json.Marshal(plain(n))
	if err == nil {
		err = v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(text)
	}
	if err != nil {
		d.wrong(n, path, "a time such as 2006-01-02T15:04:05Z", "")
	}
}

// plain turns a node into what encoding/json would make of it.
func plain(n *yaml.Node) any {
	n = resolve(n)
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for _, p := range pairs(n, func(fault) {}) {
			m[p.name] = plain(p.value)
		}
		return m
	case yaml.SequenceNode:
		s := make([]any, len(n.Content))
		for i, c := range n.Content {
			s[i] = plain(c)
		}
		return s
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		if i, err := wholeNumber(n.Value); err == nil {
			return i
		}
		if f, err := strconv.ParseFloat(n.Value, 64); err == nil && f-f == 0 { // JSON has no Inf
			return f
		}
	}
	return n.Value
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

// fields is what JSON calls the fields of a struct, in their order, and where
// they are, those of inlined structs included.
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

package strictyaml

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// Options of Decode.
type Options struct {
	// Memory bounds the decoded form, in bytes, approximately; 0 for no bound.
	Memory int
	// Report takes each error, in the order of the text, and says whether to go on.
	Report func(*Error) bool
}

// Decoded is what Decode found besides the errors.
type Decoded struct {
	Root *yaml.Node
	// Lines has the line of each field path that the type has.
	Lines map[string]int
	// Memory is that of the decoded form, in bytes.
	Memory int
	// JSON is what sigs.k8s.io/json was given.
	JSON []byte
}

// Line is that of a path, or of its nearest parent that the text contains.
func (d *Decoded) Line(path string) int {
	for {
		if line, ok := d.Lines[path]; ok {
			return line
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return d.Lines[""]
		}
		path = path[:cut]
	}
}

// Decode decodes a document into the value that into points to. It leaves the value
// alone if any error but unknown and duplicate fields was reported.
func Decode(n *yaml.Node, into any, opt Options) *Decoded {
	root := Resolve(n)
	d := &decoder{opt: opt, Decoded: &Decoded{Root: root, Lines: map[string]int{"": root.Line}}}
	d.text = json.NewEncoder(&d.out)
	d.text.SetEscapeHTML(false)
	d.value(reflect.TypeOf(into).Elem(), n, "")
	d.JSON = d.out.Bytes()
	if !d.bad && !d.done {
		strict, err := kjson.UnmarshalStrict(d.JSON, into)
		if err = errors.Join(append(strict, err)...); err != nil { // the checks are at fault
			d.report(&Error{Kind: WrongType, Node: root, Type: reflect.TypeOf(into).Elem(), Err: err})
		}
	}
	return d.Decoded
}

// decoder checks nodes against types and writes them as JSON. It allows what the
// apiserver's decoder allows (podconfig/manifest,
// TestStructureAgreesWithUpstreamsDecoder).
type decoder struct {
	*Decoded
	opt Options
	out bytes.Buffer
	// text writes strings to out.
	text *json.Encoder
	// aliasDepth is how many aliases the current node is below. Texts below one take memory
	// of their own in the decoded form.
	aliasDepth int
	// bad: an error keeps the value from being decoded. done: Report wants no more.
	bad, done bool
}

func (d *decoder) report(e *Error) {
	d.bad = d.bad || !e.Lenient()
	d.done = !d.opt.Report(e) || d.done
}

// stopped says that the rest need not be decoded.
func (d *decoder) stopped() bool { return d.done || d.opt.Memory > 0 && d.Memory > d.opt.Memory }

// spend counts memory that the decoded form takes and says whether it may.
func (d *decoder) spend(bytes int, n *yaml.Node, path string) bool {
	before := d.Memory
	if d.Memory += bytes; d.opt.Memory == 0 || d.Memory <= d.opt.Memory {
		return true
	}
	if before <= d.opt.Memory {
		d.report(&Error{Kind: TooLarge, Path: path, Node: n, Limit: d.opt.Memory})
	}
	return false
}

var (
	bytesType       = reflect.TypeFor[[]byte]()
	fieldsType      = reflect.TypeFor[metav1.FieldsV1]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// HasUnmarshaler says that a type has a decoder of its own.
func HasUnmarshaler(t reflect.Type) bool { return reflect.PointerTo(t).Implements(unmarshalerType) }

// value checks a node against a type and writes it.
func (d *decoder) value(t reflect.Type, n *yaml.Node, path string) {
	if d.stopped() {
		return
	}
	if n.Kind == yaml.AliasNode {
		n = Resolve(n)
		d.aliasDepth++
		defer func() { d.aliasDepth-- }()
	}
	if _, ok := d.Lines[path]; !ok {
		d.Lines[path] = n.Line
	}
	lit := LiteralOf(n)
	for t.Kind() == reflect.Pointer && lit.Kind != Null {
		if t = t.Elem(); !d.spend(int(t.Size()), n, path) {
			return
		}
	}
	switch {
	case lit.Kind == Null, t == fieldsType: // managedFields: an exported Pod's book-keeping
		d.out.WriteString("null")
	case HasUnmarshaler(t):
		d.leaf(t, n, path, lit)
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		d.object(t, n, path)
	case t.Kind() == reflect.Map && n.Kind == yaml.MappingNode:
		d.mapping(t, n, path)
	case t.Kind() == reflect.Slice && t != bytesType && n.Kind == yaml.SequenceNode:
		d.list(t, n, path)
	default:
		d.leaf(t, n, path, lit)
	}
}

var errForm = errors.New("got a YAML tag, or a number that JSON does not have")

// leaf has the apiserver's decoder check a single value. A list or an object, which no
// leaf is, is an empty one to it.
func (d *decoder) leaf(t reflect.Type, n *yaml.Node, path string, lit Literal) {
	from, err := d.out.Len(), error(nil)
	switch {
	case n.Kind == yaml.MappingNode:
		d.out.WriteString("{}")
	case n.Kind == yaml.SequenceNode && t != bytesType: // which JSON also takes for bytes
		d.out.WriteString("[]")
	case lit.Kind == None:
		err = errForm
	case lit.Kind != Text:
		d.out.WriteString(lit.Text)
	case !d.spendText(t, n, path, lit.Text):
		return
	default:
		d.string(lit.Text)
	}
	if t.Kind() == reflect.String && lit.Kind == Text {
		return
	}
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(d.out.Bytes()[from:], reflect.New(t).Interface())
	}
	if err != nil {
		d.report(&Error{Kind: WrongType, Path: path, Node: n, Type: t, Err: err})
	}
}

// spendText is spend for a text: the bytes that it encodes, or its own where an alias
// repeats them.
func (d *decoder) spendText(t reflect.Type, n *yaml.Node, path, text string) bool {
	switch {
	case t == bytesType:
		return d.spend(base64.StdEncoding.DecodedLen(len(text)), n, path)
	case d.aliasDepth > 0:
		return d.spend(len(text), n, path)
	}
	return true
}

func (d *decoder) string(s string) {
	if err := d.text.Encode(s); err != nil {
		panic(err) // of a bytes.Buffer
	}
}

// name writes a field's name, after a comma unless it is the first.
func (d *decoder) name(first bool, name string) {
	if !first {
		d.out.WriteByte(',')
	}
	d.string(name)
	d.out.WriteByte(':')
}

func (d *decoder) object(t reflect.Type, n *yaml.Node, path string) {
	known, first := FieldsOf(t), true
	all := Pairs(n, func(e *Error) { d.report(e.within(path, t, n)) })
	d.out.WriteByte('{')
	for _, p := range all {
		if d.stopped() {
			return
		}
		at := child(path, p.Name)
		i, ok := known.Index[p.Name]
		if !ok {
			d.report((&Error{Kind: UnknownField, Path: p.Name, Node: p.Key, Value: Resolve(p.Value), Fields: all}).within(path, t, n))
			continue
		}
		d.Lines[at] = p.Key.Line
		d.name(first, p.Name)
		first = false
		d.value(t.FieldByIndex(i).Type, p.Value, at)
	}
	d.out.WriteByte('}')
}

func (d *decoder) mapping(t reflect.Type, n *yaml.Node, path string) {
	const entry = 100 // bytes of a map's entry beyond its value
	first := true
	d.out.WriteByte('{')
	for _, p := range Pairs(n, func(e *Error) { d.report(e.within(path, t, n)) }) {
		size := entry + int(t.Elem().Size())
		if d.aliasDepth > 0 {
			size += len(p.Name)
		}
		if d.stopped() || !d.spend(size, p.Key, path) {
			return
		}
		at := path + "[" + p.Name + "]"
		d.Lines[at] = p.Key.Line
		if key := Resolve(p.Key); !IsStringKey(key) {
			d.report(&Error{Kind: BadKey, Path: at, Node: key})
			continue
		}
		d.name(first, p.Name)
		first = false
		d.value(t.Elem(), p.Value, at)
	}
	d.out.WriteByte('}')
}

func (d *decoder) list(t reflect.Type, n *yaml.Node, path string) {
	const entry = 200 // bytes of the paths and lines that are kept of an entry, meanwhile
	if !d.spend(len(n.Content)*(entry+int(t.Elem().Size())), n, path) {
		return
	}
	d.out.WriteByte('[')
	for i, e := range n.Content {
		if i > 0 {
			d.out.WriteByte(',')
		}
		d.value(t.Elem(), e, path+"["+strconv.Itoa(i)+"]")
	}
	d.out.WriteByte(']')
}

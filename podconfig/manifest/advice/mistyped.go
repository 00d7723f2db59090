package advice

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podd/internal/pod"
	"podd/internal/strictyaml"
)

var (
	quantityType    = reflect.TypeFor[resource.Quantity]()
	intOrStringType = reflect.TypeFor[intstr.IntOrString]()
	bytesType       = reflect.TypeFor[[]byte]()
)

// mistyped is the fault of a value that its field does not take.
func mistyped(e *strictyaml.Error, kind string) Fault {
	w := mistypedValue{e.Node, e.Path, strictyaml.LiteralOf(e.Node)}
	switch t := e.Type; {
	case t == quantityType:
		return w.quantity()
	case t == intOrStringType:
		return w.fault("a port number or a port name", "", suggestion{})
	case t == bytesType:
		return w.bytes(kind, e.Err)
	case strictyaml.HasUnmarshaler(t):
		return w.fault("a time such as 2006-01-02T15:04:05Z", "", suggestion{})
	case t.Kind() == reflect.Struct && e.Node.Kind != yaml.MappingNode:
		return w.object()
	case t.Kind() == reflect.Map:
		return w.fault("an object", `write one "name: value" a line below it, indented`, suggestion{})
	case t.Kind() == reflect.Slice:
		return w.fault("a list", `begin each entry with "- ", also when there is only one`, suggestion{})
	case t.Kind() == reflect.String:
		return w.text(kind)
	case t.Kind() == reflect.Bool:
		return w.boolean()
	case t.Kind() == reflect.Int32, t.Kind() == reflect.Int64:
		return w.integer(t.Bits())
	}
	const unreadable = "podd cannot read this" // a new version of the API may bring such a field
	return Fault{Line: e.Node.Line, Field: e.Path, Message: unreadable + ": " + e.Err.Error(), MaskedMessage: unreadable}
}

// mistypedValue is a value that its field does not take.
type mistypedValue struct {
	node *yaml.Node
	path string
	lit  strictyaml.Literal
}

// fault says what the field takes; m is the value that was meant, if that is known.
func (w mistypedValue) fault(want, hint string, m suggestion) Fault {
	n := w.node
	f := Fault{Line: n.Line, Field: w.path, Message: "got " + Describe(n) + ", want " + want, Hint: hint,
		MaskedMessage: "got " + DescribeType(n) + ", want " + want, MaskedHint: hint}
	if n.Kind == yaml.ScalarNode {
		f.MaskedHint = "" // which may show it
		if isPlaceholder(n.Value) {
			f.Hint, m = fillHint, suggestion{}
		}
		if m.format != "" {
			f = f.withEdit(m.edit(n))
		}
	}
	return f
}

func (w mistypedValue) object() Fault {
	hint, entry := `write its fields below it, indented, each "name: value"`, suggestion{}
	if w.node.Kind == yaml.SequenceNode {
		hint = `remove the "- ": this field takes one object, not a list`
	} else if m, h := suggestEntry(w.node.Value, w.path); m.format != "" || h != "" {
		hint, entry = h, m
	}
	return w.fault("an object", hint, entry)
}

// text is the fault of a string field. An unquoted number or boolean is rejected, as
// by the apiserver: what the file shows (1.10, 0755, no) and the resulting string
// ("1.1", "493", "false") differ too often.
func (w mistypedValue) text(kind string) Fault {
	n, hint := w.node, ""
	if n.Kind != yaml.ScalarNode {
		switch {
		case n.Kind == yaml.SequenceNode:
			hint = `remove the "- ": this field takes one string, not a list`
		case n.Style&yaml.FlowStyle != 0:
			hint = "is a template placeholder such as {{ … }} left in the file? Fill it in first; a string that begins with { must be quoted"
		case kind != "Pod":
			hint = "a file's content is written below \"name: |\", indented"
		}
		return w.fault("a string", hint, suggestion{})
	}
	const quotes, plainText = "put it in quotes", "remove it and write a plain string"
	f := Fault{Line: n.Line, Field: w.path, MaskedHint: quotes,
		Message: "got " + Describe(n) + ", want a string", MaskedMessage: "got " + DescribeType(n) + ", want a string"}
	f = f.withEdit(replace(n, strconv.Quote(n.Value), quotes+": %s"))
	switch tag := n.ShortTag(); {
	case w.lit.Kind != strictyaml.None && oldBoolean(n):
		f.Message, f.MaskedMessage = "got "+n.Value+", which is a boolean to Kubernetes, want a string", "got a boolean, want a string"
	case w.lit.Kind == strictyaml.None && tag != "!!float":
		f.Message, f.MaskedMessage = "the YAML tag "+tag+" is not supported here", "a YAML tag (!name) is not supported here"
		f.Hint, f.MaskedHint, f.Edit = plainText, plainText, nil
	}
	return f
}

// bytes is the fault of a base64 value.
func (w mistypedValue) bytes(kind string, err error) Fault {
	hint := "binaryData takes base64 (base64 -w0 FILE); a string goes under data"
	if kind == pod.KindSecret {
		hint = "data takes base64 (base64 -w0 FILE); the value itself goes under stringData"
	}
	const want = ", want base64 in a string"
	f := Fault{Line: w.node.Line, Field: w.path, Hint: hint}
	switch w.lit.Kind {
	case strictyaml.Number:
		f.Message, f.MaskedMessage, f.MaskedHint = "got the number "+w.node.Value+want, "got a number"+want, hint
	case strictyaml.Bool:
		f.Message = "got a boolean" + want
	case strictyaml.Text:
		f.Message = err.Error()
	default:
		return w.text(kind)
	}
	return f
}

func (w mistypedValue) boolean() Fault {
	var m suggestion
	if w.node.Kind == yaml.ScalarNode {
		switch strings.ToLower(w.node.Value) {
		case "true", "yes", "on":
			m = suggestion{value: "true", format: "write %s", unquoted: true} // tRue
		case "false", "no", "off":
			m = suggestion{value: "false", format: "write %s", unquoted: true}
		}
	}
	return w.fault("true or false", "", w.unquoted(m))
}

func (w mistypedValue) integer(bits int) Fault {
	_, err := strconv.ParseInt(w.lit.Text, 10, 64)
	if w.lit.Kind == strictyaml.Number && (w.node.ShortTag() == "!!int" || errors.Is(err, strconv.ErrRange)) {
		return w.fault(fmt.Sprintf("an integer between -2^%d and 2^%d-1", bits-1, bits-1), "", suggestion{})
	}
	hint, m := w.integerHint()
	return w.fault("an integer", hint, w.unquoted(m))
}

// integerHint recognises the usual mistakes in an integer.
func (w mistypedValue) integerHint() (hint string, m suggestion) {
	switch w.lit.Kind {
	case strictyaml.Text:
		if _, err := strconv.ParseInt(w.lit.Text, 10, 64); err == nil {
			return "", suggestion{value: w.lit.Text, format: "write %s", unquoted: true}
		}
		if s, found := strings.CutSuffix(w.lit.Text, "s"); found {
			if _, err := strconv.ParseInt(s, 10, 64); err == nil {
				return "", suggestion{value: s, format: "write the seconds as a number: %s", unquoted: true}
			}
		}
	case strictyaml.Number:
		if strings.HasSuffix(w.path, "Probe.periodSeconds") {
			return "the annotation " + pod.AnnotationProbeUntilSuccess + ": 100ms makes startup and readiness probes run that often until their first success", suggestion{}
		}
	}
	return "", suggestion{}
}

// unquoted is what was meant by a value that may be in quotes, which go as well.
func (w mistypedValue) unquoted(m suggestion) suggestion {
	if m.format == "write %s" && w.node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		m.format = "remove the quotes: %s"
	}
	return m
}

func (w mistypedValue) quantity() Fault {
	var m suggestion
	if w.lit.Kind == strictyaml.Text || w.lit.Kind == strictyaml.Number {
		m = suggestQuantity(w.node.Value)
	}
	return w.fault("a quantity", `a number with an optional unit: 500m or 0.5 for CPU, 128Mi or 2Gi for memory`, m)
}

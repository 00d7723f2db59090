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
	w := wrong{e.Node, e.Path, strictyaml.LiteralOf(e.Node)}
	switch t := e.Type; {
	case t == quantityType:
		return w.quantity()
	case t == intOrStringType:
		return w.fault("a port number or a port name", "", meant{})
	case t == bytesType:
		return w.bytes(kind, e.Err)
	case strictyaml.IsCustom(t):
		return w.fault("a time such as 2006-01-02T15:04:05Z", "", meant{})
	case t.Kind() == reflect.Struct && e.Node.Kind != yaml.MappingNode:
		return w.object()
	case t.Kind() == reflect.Map:
		return w.fault("an object", `write one "name: value" a line below it, indented`, meant{})
	case t.Kind() == reflect.Slice:
		return w.fault("a list", `begin each entry with "- ", also when there is only one`, meant{})
	case t.Kind() == reflect.String:
		return w.text(kind)
	case t.Kind() == reflect.Bool:
		return w.boolean()
	case t.Kind() == reflect.Int32, t.Kind() == reflect.Int64:
		return w.integer(t.Bits())
	}
	const unreadable = "podd cannot read this" // a new version of the API may bring such a field
	return Fault{Line: e.Node.Line, Field: e.Path, Message: unreadable + ": " + e.Err.Error(), Plain: unreadable}
}

// wrong is a value that its field does not take.
type wrong struct {
	node *yaml.Node
	path string
	lit  strictyaml.Literal
}

// fault says what the field takes; m is the value that was meant, if that is known.
func (w wrong) fault(want, hint string, m meant) Fault {
	n := w.node
	f := Fault{Line: n.Line, Field: w.path, Message: "got " + Describe(n) + ", want " + want, Hint: hint,
		Plain: "got " + Form(n) + ", want " + want, PlainHint: hint}
	if n.Kind == yaml.ScalarNode {
		f.PlainHint = "" // which may show it
		if isPlaceholder(n.Value) {
			f.Hint, m = fillHint, meant{}
		}
		if m.words != "" {
			f = f.by(m.edit(n))
		}
	}
	return f
}

func (w wrong) object() Fault {
	hint, entry := `write its fields below it, indented, each "name: value"`, meant{}
	if w.node.Kind == yaml.SequenceNode {
		hint = `remove the "- ": this field takes one object, not a list`
	} else if m, h := entryMeant(w.node.Value, w.path); m.words != "" || h != "" {
		hint, entry = h, m
	}
	return w.fault("an object", hint, entry)
}

// text is the fault of a string field. An unquoted number or boolean is rejected, as
// by the apiserver: what the file shows (1.10, 0755, no) and the resulting string
// ("1.1", "493", "false") differ too often.
func (w wrong) text(kind string) Fault {
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
		return w.fault("a string", hint, meant{})
	}
	const quotes, plainText = "put it in quotes", "remove it and write a plain string"
	f := Fault{Line: n.Line, Field: w.path, PlainHint: quotes,
		Message: "got " + Describe(n) + ", want a string", Plain: "got " + Form(n) + ", want a string"}
	f = f.by(replace(n, strconv.Quote(n.Value), quotes+": %s"))
	switch tag := n.ShortTag(); {
	case w.lit.Kind != strictyaml.None && oldBoolean(n):
		f.Message, f.Plain = "got "+n.Value+", which is a boolean to Kubernetes, want a string", "got a boolean, want a string"
	case w.lit.Kind == strictyaml.None && tag != "!!float":
		f.Message, f.Plain = "the YAML tag "+tag+" is not supported here", "a YAML tag (!name) is not supported here"
		f.Hint, f.PlainHint, f.Edit = plainText, plainText, nil
	}
	return f
}

// bytes is the fault of a base64 value.
func (w wrong) bytes(kind string, err error) Fault {
	hint := "binaryData takes base64 (base64 -w0 FILE); a string goes under data"
	if kind == pod.KindSecret {
		hint = "data takes base64 (base64 -w0 FILE); the value itself goes under stringData"
	}
	const want = ", want base64 in a string"
	f := Fault{Line: w.node.Line, Field: w.path, Hint: hint}
	switch w.lit.Kind {
	case strictyaml.Number:
		f.Message, f.Plain, f.PlainHint = "got the number "+w.node.Value+want, "got a number"+want, hint
	case strictyaml.Bool:
		f.Message = "got a boolean" + want
	case strictyaml.Text:
		f.Message = err.Error()
	default:
		return w.text(kind)
	}
	return f
}

func (w wrong) boolean() Fault {
	var m meant
	if w.node.Kind == yaml.ScalarNode {
		switch strings.ToLower(w.node.Value) {
		case "true", "yes", "on":
			m = meant{value: "true", words: "write %s", bare: true} // tRue
		case "false", "no", "off":
			m = meant{value: "false", words: "write %s", bare: true}
		}
	}
	return w.fault("true or false", "", w.unquoted(m))
}

func (w wrong) integer(bits int) Fault {
	_, err := strconv.ParseInt(w.lit.Text, 10, 64)
	if w.lit.Kind == strictyaml.Number && (w.node.ShortTag() == "!!int" || errors.Is(err, strconv.ErrRange)) {
		return w.fault(fmt.Sprintf("an integer between -2^%d and 2^%d-1", bits-1, bits-1), "", meant{})
	}
	hint, m := w.integerHint()
	return w.fault("an integer", hint, w.unquoted(m))
}

// integerHint recognises the usual mistakes in an integer.
func (w wrong) integerHint() (hint string, m meant) {
	switch w.lit.Kind {
	case strictyaml.Text:
		if _, err := strconv.ParseInt(w.lit.Text, 10, 64); err == nil {
			return "", meant{value: w.lit.Text, words: "write %s", bare: true}
		}
		if s, found := strings.CutSuffix(w.lit.Text, "s"); found {
			if _, err := strconv.ParseInt(s, 10, 64); err == nil {
				return "", meant{value: s, words: "write the seconds as a number: %s", bare: true}
			}
		}
	case strictyaml.Number:
		if strings.HasSuffix(w.path, "Probe.periodSeconds") {
			return "the annotation " + pod.AnnotationProbeUntilSuccess + ": 100ms makes startup and readiness probes run that often until their first success", meant{}
		}
	}
	return "", meant{}
}

// unquoted is what was meant by a value that may be in quotes, which go as well.
func (w wrong) unquoted(m meant) meant {
	if m.words == "write %s" && w.node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		m.words = "remove the quotes: %s"
	}
	return m
}

func (w wrong) quantity() Fault {
	var m meant
	if w.lit.Kind == strictyaml.Text || w.lit.Kind == strictyaml.Number {
		m = quantityMeant(w.node.Value)
	}
	return w.fault("a quantity", `a number with an optional unit: 500m or 0.5 for CPU, 128Mi or 2Gi for memory`, m)
}

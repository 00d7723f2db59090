package manifest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podd/internal/pod"
)

// text returns a string field's value. An unquoted number or boolean is rejected, as
// by the apiserver: what the file shows (1.10, 0755, no) and the resulting string
// ("1.1", "493", "false") differ too often.
func (d *filler) text(n *yaml.Node, path string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		hint := ""
		switch {
		case n.Kind == yaml.SequenceNode:
			hint = `remove the "- ": this field takes one string, not a list`
		case n.Style&yaml.FlowStyle == 0 && d.kind != "Pod":
			hint = "a file's content is written below \"name: |\", indented"
		case n.Style&yaml.FlowStyle != 0:
			hint = "is a template placeholder such as {{ … }} left in the file? Fill it in first; a string that begins with { must be quoted"
		}
		d.wrong(n, path, "a string", hint)
		return "", false
	}
	lit := literalOf(n)
	if lit.kind == literalText {
		return lit.text, true
	}
	const quotes, plainText = "put it in quotes", "remove it and write a plain string"
	f := fault{line: n.Line, field: path, plainHint: quotes,
		message: "got " + describe(n) + ", want a string", plain: "got " + formOf(n) + ", want a string"}
	f = f.by(replace(n, strconv.Quote(n.Value), quotes+": %s"))
	switch tag := n.ShortTag(); {
	case lit.kind != literalNone && oldBoolean(n):
		f.message, f.plain = "got "+n.Value+", which is a boolean to Kubernetes, want a string", "got a boolean, want a string"
	case lit.kind == literalNone && tag != "!!float":
		f.message, f.plain = "the YAML tag "+tag+" is not supported here", "a YAML tag (!name) is not supported here"
		f.hint, f.plainHint, f.edit = plainText, plainText, nil
	}
	d.report(f)
	return "", false
}

// bytes decodes a base64 value.
func (d *filler) bytes(v reflect.Value, n *yaml.Node, path string) {
	hint := "binaryData takes base64 (base64 -w0 FILE); a string goes under data"
	if d.kind == pod.KindSecret {
		hint = "data takes base64 (base64 -w0 FILE); the value itself goes under stringData"
	}
	const want = ", want base64 in a string"
	switch lit := literalOf(n); lit.kind {
	case literalNumber:
		d.report(fault{line: n.Line, field: path, message: "got the number " + n.Value + want, hint: hint, plain: "got a number" + want, plainHint: hint})
		return
	case literalBool:
		d.report(fault{line: n.Line, field: path, message: "got a boolean" + want, hint: hint})
		return
	}
	text, ok := d.text(n, path)
	if !ok {
		return
	}
	size := base64.StdEncoding.DecodedLen(len(text))
	if !d.spend(size, n, path) {
		return
	}
	out := make([]byte, size)
	size, err := base64.StdEncoding.Decode(out, []byte(text))
	if err != nil {
		d.report(fault{line: n.Line, field: path, message: err.Error(), hint: hint})
		return
	}
	v.SetBytes(out[:size])
}

func (d *filler) boolean(v reflect.Value, n *yaml.Node, path string) {
	if lit := literalOf(n); lit.kind == literalBool {
		v.SetBool(lit.text == "true")
		return
	}
	var m meant
	if n.Kind == yaml.ScalarNode {
		switch strings.ToLower(n.Value) {
		case "true", "yes", "on":
			m = meant{value: "true", words: "write %s", bare: true} // tRue
		case "false", "no", "off":
			m = meant{value: "false", words: "write %s", bare: true}
		}
	}
	d.wrongly(n, path, "true or false", "", unquoted(n, m))
}

func (d *filler) integer(v reflect.Value, n *yaml.Node, path string) {
	lit := literalOf(n)
	i, err := strconv.ParseInt(lit.text, 10, 64)
	switch {
	case lit.kind == literalNumber && err == nil && !v.OverflowInt(i):
		v.SetInt(i)
	case lit.kind == literalNumber && (n.ShortTag() == "!!int" || errors.Is(err, strconv.ErrRange)):
		bits := v.Type().Bits()
		d.wrong(n, path, fmt.Sprintf("an integer between -2^%d and 2^%d-1", bits-1, bits-1), "")
	default:
		hint, m := integerHint(lit, path)
		d.wrongly(n, path, "an integer", hint, unquoted(n, m))
	}
}

// integerHint recognises the usual mistakes in an integer.
func integerHint(lit literal, path string) (hint string, m meant) {
	switch {
	case lit.kind == literalText:
		if _, err := strconv.ParseInt(lit.text, 10, 64); err == nil {
			return "", meant{value: lit.text, words: "write %s", bare: true}
		}
		if s, found := strings.CutSuffix(lit.text, "s"); found {
			if _, err := strconv.ParseInt(s, 10, 64); err == nil {
				return "", meant{value: s, words: "write the seconds as a number: %s", bare: true}
			}
		}
	case lit.kind == literalNumber && strings.HasSuffix(path, "Probe.periodSeconds"):
		return "the annotation " + pod.AnnotationProbeUntilSuccess + ": 100ms makes startup and readiness probes run that often until their first success", meant{}
	}
	return "", meant{}
}

// unquoted is what was meant by a value that may be in quotes, which go as well.
func unquoted(n *yaml.Node, m meant) meant {
	if m.words == "write %s" && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		m.words = "remove the quotes: %s"
	}
	return m
}

func (d *filler) quantity(v reflect.Value, n *yaml.Node, path string) {
	const want = "a quantity"
	const hint = `a number with an optional unit: 500m or 0.5 for CPU, 128Mi or 2Gi for memory`
	lit := literalOf(n)
	if lit.kind != literalText && lit.kind != literalNumber {
		d.wrong(n, path, want, hint)
		return
	}
	q, err := resource.ParseQuantity(strings.TrimSpace(lit.text))
	if err != nil {
		d.wrongly(n, path, want, hint, quantityMeant(n.Value))
		return
	}
	v.Set(reflect.ValueOf(q))
}

func (d *filler) intOrString(v reflect.Value, n *yaml.Node, path string) {
	lit := literalOf(n)
	switch i, err := strconv.ParseInt(lit.text, 10, 32); {
	case lit.kind == literalText:
		v.Set(reflect.ValueOf(intstr.FromString(lit.text)))
	case lit.kind == literalNumber && err == nil:
		v.Set(reflect.ValueOf(intstr.FromInt32(int32(i))))
	default:
		d.wrong(n, path, "a port number or a port name", "")
	}
}

// custom passes a string to its type's own decoder (times).
func (d *filler) custom(v reflect.Value, n *yaml.Node, path string) {
	lit := literalOf(n)
	text, err := json.Marshal(lit.text)
	if err == nil {
		err = v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(text)
	}
	if err != nil || lit.kind != literalText {
		d.wrong(n, path, "a time such as 2006-01-02T15:04:05Z", "")
	}
}

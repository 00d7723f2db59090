package advice

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"podd/internal/bytesize"
	"podd/internal/pod"
	"podd/internal/strictyaml"
)

// DecodeFault is the fault of a decoder's error in an object of that kind, "" if the kind is not
// known; without a message for one that only follows from another.
func DecodeFault(e *strictyaml.Error, kind string) Fault {
	f := fieldFault(e, kind)
	if kind == pod.KindSecret {
		f = redact(f)
	}
	if kind != "" {
		f.MaskedMessage = ""
	}
	return f
}

func fieldFault(e *strictyaml.Error, kind string) Fault {
	f := Fault{Line: e.Node.Line, Field: e.Path}
	switch e.Kind {
	case strictyaml.UnknownField:
		return (&unknownField{Error: e, name: strictyaml.Resolve(e.Node).Value, kind: kind}).fault(f)
	case strictyaml.DuplicateField:
		return f.duplicate(e)
	case strictyaml.WrongType:
		return mistyped(e, kind)
	case strictyaml.BadKey:
		f.Message = "the key " + Shorten(e.Node.Value) + " is " + whatItIs(e.Node) + " to Kubernetes"
		return f.withEdit(replace(e.Node, strconv.Quote(e.Node.Value), "put it in quotes: %s"))
	case strictyaml.BadName:
		f.Message = "a field name must be a string, not " + DescribeType(e.Value)
		f.Hint = `is a template placeholder such as {{ … }} left in the file? Put it into quotes or fill it in`
	case strictyaml.BadMerge:
		const want = "<< takes an object (or a list of them), not "
		f.Message, f.MaskedMessage = want+Describe(e.Value), want+DescribeType(e.Value)
	case strictyaml.TooLarge:
		what, hint := "pod", "a Pod has a few dozen containers, variables and mounts; "
		if kind != "Pod" {
			what, hint = kind, "the values of a ConfigMap or Secret may have 1 MiB; "
		}
		f.Message = "the " + what + " exceeds the limit of " + bytesize.Mebibytes(int64(e.Limit)) + " of memory here"
		f.Hint = hint + rightFile
	}
	return f
}

// whatItIs describes an unquoted value.
func whatItIs(n *yaml.Node) string {
	switch lit := strictyaml.LiteralOf(n); lit.Kind {
	case strictyaml.Bool:
		return "a boolean"
	case strictyaml.Number:
		return "the number " + lit.Text
	case strictyaml.Null:
		return "null"
	}
	return "not a string"
}

const dash = "- "

// duplicate is the fault of a field that is there twice. Where the dash of another entry
// of a list is missing, that is the fault, and the fields of that entry have none.
func (f Fault) duplicate(e *strictyaml.Error) Fault {
	key := strictyaml.Resolve(e.Node)
	begins := missingDashes(e)
	switch {
	case slices.Contains(begins, e.Node):
		f.OtherLine = e.Object.Content[0].Line
		f.Message = fmt.Sprintf("the field %q is here again: another entry of the list begins on this line, and its dash is missing", Shorten(key.Value))
		return f.withEdit(Edit{Line: key.Line, Column: key.Column - len(dash), Old: "  " + key.Value, New: dash + key.Value, hintFormat: `write "%s", with the dash two columns to the left`})
	case len(begins) > 0 && f.Line >= begins[0].Line:
		return Fault{}
	}
	f.Message, f.OtherLine = fmt.Sprintf("duplicate field %q", Shorten(key.Value)), e.First.Line
	f.Hint = "only one of them takes effect; remove the other"
	return f
}

// missingDashes returns the fields of a list's entry with which other entries begin, if it
// looks as if their dashes were missing: the entry's first field is there again, and what
// follows it makes another entry of the same kind.
func missingDashes(e *strictyaml.Error) (begins []*yaml.Node) {
	n := e.Object
	if n == nil || !strings.HasSuffix(e.ObjectPath, "]") || e.Type.Kind() != reflect.Struct || n.Style&yaml.FlowStyle != 0 || n.Content[0].Column <= len(dash) {
		return nil
	}
	var entries [][]string
	first := n.Content[0]
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Column != first.Column {
			return nil
		}
		if key.Value == first.Value {
			entries = append(entries, nil)
			if i > 0 {
				begins = append(begins, key)
			}
		}
		last := &entries[len(entries)-1]
		if slices.Contains(*last, key.Value) {
			return nil
		}
		*last = append(*last, key.Value)
	}
	for _, entry := range entries[1:] {
		if !alike(entries[0], entry) {
			return nil
		}
	}
	return begins
}

// alike says that two entries of a list, which begin with the same field, have what each
// needs: another field in common, no other, or those of a variable.
func alike(a, b []string) bool {
	variable := func(entry []string) bool {
		return slices.Contains(entry, "value") || slices.Contains(entry, "valueFrom")
	}
	common := slices.ContainsFunc(b[1:], func(name string) bool { return slices.Contains(a[1:], name) })
	return common || len(a) == 1 && len(b) == 1 || len(b) > 1 && variable(a) && variable(b)
}

package advice

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podd/internal/mask"
	"podd/internal/pod"
	"podd/internal/strictyaml"
)

// ValidationFault is one of the apiserver's errors about a pod, with its line and a remedy.
func ValidationFault(e *field.Error, p *v1.Pod, text *strictyaml.Decoded) Fault {
	if _, written := text.Lines[e.Field]; e.Field == "spec.nodeName" && e.Type == field.ErrorTypeForbidden && len(p.Spec.SchedulingGates) > 0 {
		const gates = "spec.schedulingGates"
		f := Fault{Line: text.Line(gates), Field: gates, Hint: "remove them",
			Message: "a pod that is assigned to its node may not have scheduling gates: there is no scheduler here that would wait for them"}
		if written {
			f.Message += ", nor is nodeName needed"
		}
		return f
	}
	f := Fault{Line: text.Line(exact(e, p)), Field: e.Field, Message: validationMessage(e), Hint: validationHint(e, p)}
	return f.corrected(e, p, text.Root)
}

// exact is the path of the label or annotation that an error about all of them is
// about, else the error's own.
func exact(e *field.Error, p *v1.Pod) string {
	texts := map[string]map[string]string{"metadata.labels": p.Labels, "metadata.annotations": p.Annotations, "spec.nodeSelector": p.Spec.NodeSelector}[e.Field]
	for k, v := range texts {
		if bad := BadText(e); bad != "" && (k == bad || v == bad) {
			return e.Field + "[" + k + "]"
		}
	}
	return e.Field
}

// ObjectValidationFault is one of the apiserver's errors about an object of that kind; at is
// the path of its field in the text.
func ObjectValidationFault(e *field.Error, kind, at string, text *strictyaml.Decoded) Fault {
	f := Fault{Line: text.Line(at), Field: at, Message: validationMessage(e), Hint: objectHint(e, kind)}
	if e.Field == "metadata.name" || e.Field == "metadata.namespace" {
		f = f.withValue(suggestName(BadText(e)), text.Root, e.Field)
	}
	if kind == pod.KindSecret {
		f.MaskedMessage, f.MaskedHint = maskedMessage(e), f.Hint
		f = redact(f)
	}
	return f
}

// validationMessage is the apiserver's message, without the dump of a whole object that some of
// them show as the invalid value, and of bounded length.
func validationMessage(e *field.Error) string {
	short := *e
	switch v := e.BadValue.(type) {
	case string:
		short.BadValue = Shorten(v)
		return short.ErrorBody()
	case nil, bool, int, int32, int64, float64:
		return e.ErrorBody()
	case fmt.Stringer: // quantities
		short.BadValue = Shorten(v.String())
		return short.ErrorBody()
	}
	if text := badValueText(e); text != "" && e.Type == field.ErrorTypeNotSupported {
		if short.BadValue = Shorten(text); len(e.Detail) > 500 {
			short.Detail = "" // of a list that long validationHint names the nearest
		}
		return short.ErrorBody()
	}
	switch e.Type {
	case field.ErrorTypeRequired, field.ErrorTypeForbidden, field.ErrorTypeTooLong, field.ErrorTypeInternal:
		return e.ErrorBody() // shows no value
	}
	if body := e.ErrorBody(); len(body) <= 200 {
		return body
	}
	return e.Type.String() + ": " + e.Detail
}

// maskedMessage is the apiserver's sentence on a Secret: with names, types and
// keys, and without any other value.
func maskedMessage(e *field.Error) string {
	key := strings.HasPrefix(e.Field, "data[") && "data["+BadText(e)+"]" == e.Field
	if key || e.Field == "metadata.name" || e.Field == "metadata.namespace" {
		return validationMessage(e)
	}
	switch {
	case e.Type == field.ErrorTypeRequired, e.Type == field.ErrorTypeTooLong:
		return validationMessage(e) // which shows no value
	case strings.HasPrefix(e.Field, "data["):
		return e.Type.String() + ": it is not a JSON object" // upstream quotes the decoder, and that the value
	}
	text := e.Type.String() + ": " + mask.Value
	if bad := BadText(e); bad != "" && !strings.Contains(e.Detail, bad) {
		text += ": " + e.Detail
	}
	return text
}

// redact returns a fault of a Secret without anything of its values.
func redact(f Fault) Fault {
	if f.MaskedMessage != "" {
		f.Message, f.Hint, f.MaskedMessage = f.MaskedMessage, f.MaskedHint, ""
	}
	odd := strings.IndexFunc(f.Field, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./[]", r))
	})
	if odd >= 0 { // password:geheim
		name := strings.IndexByte(f.Field[:odd], '.') + 1
		if key := strings.IndexByte(f.Field[:odd], '['); key >= 0 {
			name = key + 1
		}
		f.Field = f.Field[:name] + mask.Value
		f.Message = "this is not the name of a field or a key: such names have letters, digits, '-', '_' and '.' only"
		f.Hint = `is a blank missing behind its colon? Write "name: value"`
	}
	return f
}

// objectHint adds a remedy to an apiserver's error about an object; "" where
// that says it all.
func objectHint(e *field.Error, kind string) string {
	key, value, inValues := strings.Cut(strings.TrimSuffix(e.Field, "]"), "[")
	inValues = inValues && (key == "data" || key == "binaryData")
	switch {
	case e.Type == field.ErrorTypeTooLong && (e.Field == "" || e.Field == "data"):
		return "all values of one " + kind + " have 1 MiB together; split it, or put large files on the node and use a hostPath volume"
	case e.Field == "metadata.name" && e.Type == field.ErrorTypeRequired:
		return "write metadata: name: settings"
	case isNameError(e) && isPlaceholder(BadText(e)):
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

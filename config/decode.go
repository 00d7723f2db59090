package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/strictyaml"
	"podd/internal/suggest"
)

const (
	apiVersion = "kubelet.config.k8s.io/v1beta1"
	kindConfig = "KubeletConfiguration"
	// maxFileSize bounds what is read, in bytes; a configuration has a few KiB.
	maxFileSize = 1 << 20
)

// document is one configuration file, decoded.
type document struct {
	file string
	// tree is the file as it would be in JSON, for merging.
	tree map[string]any
	// lines says where each field was written.
	lines map[string]int
}

// readDocument reads and checks one file. Only its shape is judged here, its
// values later, when all files and flags are merged.
func readDocument(file string) (*document, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, &Error{[]Problem{{File: file, Message: "read the configuration: " + reasonOf(err)}}}
	}
	if !info.Mode().IsRegular() {
		return nil, &Error{[]Problem{{File: file, Message: fmt.Sprintf("is %s: name a regular file", describeMode(info.Mode()))}}}
	}
	if info.Size() > maxFileSize {
		return nil, &Error{[]Problem{{File: file, Message: fmt.Sprintf("is %d bytes long: a configuration has at most %d", info.Size(), maxFileSize)}}}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, &Error{[]Problem{{File: file, Message: "read the configuration: " + reasonOf(err)}}}
	}
	return parseDocument(file, data)
}

func reasonOf(err error) string {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

func describeMode(m os.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&os.ModeNamedPipe != 0:
		return "a named pipe"
	}
	return "not a regular file"
}

// bounds are far above what a file of maxFileSize needs, aliases aside.
var bounds = strictyaml.Bounds{Bytes: maxFileSize, Marks: maxFileSize, Nodes: maxFileSize, Text: 16 * maxFileSize, Depth: 1000}

func parseDocument(file string, data []byte) (*document, error) {
	fail := func(line int, field, format string, args ...any) error {
		return &Error{[]Problem{{File: file, Line: line, Field: field, Message: fmt.Sprintf(format, args...)}}}
	}
	data = bytes.TrimPrefix(data, []byte(strictyaml.ByteOrderMark))
	root, err := strictyaml.Parse(data, bounds)
	trailing, hasMore := errors.AsType[*strictyaml.TrailingError](err)
	switch {
	case hasMore && trailing.Rest != nil:
		return nil, fail(0, "", "contains more than one document: put only one %s in the file", kindConfig)
	case err != nil:
		return nil, fail(0, "", "is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	case root == nil && len(bytes.TrimSpace(data)) > 0:
		return nil, fail(0, "", "is not YAML: EOF")
	case root == nil:
		return nil, fail(0, "", "is empty: it needs at least apiVersion: %s and kind: %s", apiVersion, kindConfig)
	case root.Kind != yaml.MappingNode:
		return nil, fail(root.Line, "", "is not a mapping of fields: it needs at least apiVersion: %s and kind: %s", apiVersion, kindConfig)
	}
	var errs []*strictyaml.Error
	decoded := strictyaml.Decode(root, &kubeletv1beta1.KubeletConfiguration{}, strictyaml.Options{Report: func(e *strictyaml.Error) bool {
		errs = append(errs, e)
		return true
	}})
	problems := func(mistyped bool) error {
		var all []Problem
		for _, e := range errs {
			if p := (Problem{File: file, Line: e.Node.Line, Field: e.Path, Message: messageOf(e)}); mistyped == (e.Kind == strictyaml.WrongType) {
				if mistyped {
					p.Line = decoded.Lines[e.Path] // its name's
				}
				all = append(all, p)
			}
		}
		if len(all) == 0 {
			return nil
		}
		slices.SortStableFunc(all, func(a, b Problem) int { return a.Line - b.Line })
		return &Error{all}
	}
	if err := problems(false); err != nil {
		return nil, err
	}
	for field, want := range map[string]string{"apiVersion": apiVersion, "kind": kindConfig} {
		got := strictyaml.LiteralOf(strictyaml.Lookup(root, field))
		if got.Kind != strictyaml.Text {
			got.Text = ""
		}
		if got.Text != want {
			return nil, fail(decoded.Lines[field], field, "got %q, want %s: podd reads only the kubelet's configuration", got.Text, want)
		}
	}
	if err := problems(true); err != nil {
		return nil, err
	}
	d := &document{file: file, lines: decoded.Lines}
	maps.DeleteFunc(d.lines, func(path string, _ int) bool {
		// An entry of a list or map is found on the line of its field, but each gate has its own.
		entry := strings.HasSuffix(path, "]") && !strings.HasPrefix(path, gatesField)
		return path == "" || entry
	})
	return d, json.Unmarshal(decoded.JSON, &d.tree)
}

// decodeTree makes the typed configuration of a merged tree.
func decodeTree(tree map[string]any) (*kubeletv1beta1.KubeletConfiguration, error) {
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	kc := &kubeletv1beta1.KubeletConfiguration{}
	return kc, json.Unmarshal(data, kc)
}

// messageOf says what is wrong with a field.
func messageOf(e *strictyaml.Error) string {
	switch e.Kind {
	case strictyaml.DuplicateField:
		return fmt.Sprintf("is given twice, first in line %d: keep one", e.First.Line)
	case strictyaml.UnknownField:
		names := slices.Sorted(slices.Values(strictyaml.FieldsOf(e.Type).Names))
		if hint := suggest.Closest(e.Node.Value, names); hint != "" {
			return "is not a field of " + kindConfig + ": did you mean " + hint + "?"
		}
		return "is not a field of " + kindConfig
	case strictyaml.WrongType:
		if t, ok := errors.AsType[*json.UnmarshalTypeError](e.Err); ok {
			return fmt.Sprintf("got a %s, want %s", t.Value, typeName(t.Type))
		}
		if lit := strictyaml.LiteralOf(e.Node); lit.Kind == strictyaml.Text {
			return fmt.Sprintf("value %s: %v", compact(lit.Text), e.Err)
		}
		return e.Err.Error()
	}
	return e.Kind.String()
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int32, reflect.Int64, reflect.Int, reflect.Uint32:
		return "an integer"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a mapping"
	}
	return t.String()
}

func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil || len(b) > 60 {
		return "given"
	}
	return string(b)
}

// merge puts the fields of over into base, as RFC 7396 says: mappings are
// merged, everything else is replaced, null removes. The kubelet merges its
// drop-in files so.
func merge(base, over map[string]any) {
	for k, v := range over {
		inner, isMap := v.(map[string]any)
		have, wasMap := base[k].(map[string]any)
		switch {
		case v == nil:
			delete(base, k)
		case isMap && wasMap:
			merge(have, inner)
		default:
			base[k] = v
		}
	}
}

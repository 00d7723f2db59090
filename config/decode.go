package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

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

func parseDocument(file string, data []byte) (*document, error) {
	fail := func(line int, field, format string, args ...any) error {
		return &Error{[]Problem{{File: file, Line: line, Field: field, Message: fmt.Sprintf(format, args...)}}}
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var root yamlv3.Node
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&root); err != nil {
		if len(bytes.TrimSpace(data)) == 0 {
			return nil, fail(0, "", "is empty: it needs at least apiVersion: %s and kind: %s", apiVersion, kindConfig)
		}
		return nil, fail(0, "", "is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&yamlv3.Node{}); err == nil {
		return nil, fail(0, "", "contains more than one document: put only one %s in the file", kindConfig)
	}
	if len(root.Content) != 1 || root.Content[0].Kind != yamlv3.MappingNode {
		return nil, fail(root.Line, "", "is not a mapping of fields: it needs at least apiVersion: %s and kind: %s", apiVersion, kindConfig)
	}
	d := &document{file: file, lines: map[string]int{}}
	w := &walker{file: file, lines: d.lines}
	w.walk(root.Content[0], reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), "")
	if len(w.problems) > 0 {
		return nil, &Error{w.problems}
	}
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, fail(0, "", "is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := json.Unmarshal(asJSON, &d.tree); err != nil {
		return nil, fail(0, "", "is not a mapping of fields: %v", err)
	}
	for field, want := range map[string]string{"apiVersion": apiVersion, "kind": kindConfig} {
		if got, _ := d.tree[field].(string); got != want {
			return nil, fail(d.lines[field], field, "got %q, want %s: podd reads only the kubelet's configuration", got, want)
		}
	}
	if _, err := decodeTree(d.tree); err != nil {
		return nil, &Error{[]Problem{d.typeProblem(err)}}
	}
	return d, nil
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

// typeProblem says which field has a value of the wrong type. A decoder that is
// the field's own (durations) does not name the field: it is found by trying
// the fields one by one.
func (d *document) typeProblem(err error) Problem {
	p := Problem{File: d.file, Message: err.Error()}
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && t.Field != "" {
		p.Field, p.Line = t.Field, d.lines[t.Field]
		p.Message = fmt.Sprintf("got a %s, want %s", t.Value, typeName(t.Type))
		return p
	}
	for _, field := range sortedKeys(d.tree) {
		if _, err := decodeTree(map[string]any{field: d.tree[field]}); err != nil {
			p.Field, p.Line = field, d.lines[field]
			p.Message = fmt.Sprintf("value %s: %v", compact(d.tree[field]), err)
			return p
		}
	}
	return p
}

func typeName(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
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

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// walker compares the fields of a YAML tree with those of a Go type.
type walker struct {
	file     string
	lines    map[string]int
	problems []Problem
}

func (w *walker) walk(n *yamlv3.Node, t reflect.Type, path string) {
	for n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.Kind == yamlv3.SequenceNode && t.Kind() == reflect.Slice:
		for i, item := range n.Content {
			w.walk(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	case n.Kind == yamlv3.MappingNode && t.Kind() == reflect.Struct:
		w.fields(n, t, path)
	}
}

func (w *walker) fields(n *yamlv3.Node, t reflect.Type, path string) {
	known := jsonFields(t)
	if len(known) == 0 { // a struct with a text form of its own
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		problem := Problem{File: w.file, Line: key.Line, Field: at}
		if first, twice := seen[key.Value]; twice {
			problem.Message = fmt.Sprintf("is given twice, first in line %d: keep one", first)
			w.problems = append(w.problems, problem)
			continue
		}
		seen[key.Value] = key.Line
		field, ok := known[key.Value]
		if !ok {
			problem.Message = "is not a field of " + kindConfig
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			sort.Strings(names)
			if hint := suggest.Name(key.Value, names); hint != "" {
				problem.Message += fmt.Sprintf(": did you mean %s?", hint)
			}
			w.problems = append(w.problems, problem)
			continue
		}
		w.lines[at] = key.Line
		w.walk(value, field, at)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// jsonFields maps the JSON names of a struct's fields to their types; fields of
// inlined structs are its own.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
			if inner := f.Type; inner.Kind() == reflect.Struct {
				for k, v := range jsonFields(inner) {
					all[k] = v
				}
			}
		case name != "":
			all[name] = f.Type
		}
	}
	return all
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

package strictyaml

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// ErrorKind says what is wrong with a node.
type ErrorKind int

// The kinds of errors.
const (
	// UnknownField: the object has no field of that name. Node is the name, Value the value,
	// Fields all of the object.
	UnknownField ErrorKind = iota
	// DuplicateField: the name Node stands for the second time, after First.
	DuplicateField
	// WrongType: the value Node is not of Type, for the reason Err.
	WrongType
	// BadKey: Kubernetes takes the name Node of a map's entry for another one.
	BadKey
	// BadName: the field's name Node is no scalar. Value is what it is.
	BadName
	// BadMerge: the value Node of a merge key (<<) contains Value, which is no object.
	BadMerge
	// TooLarge: the decoded form exceeds Options.Memory, at Node.
	TooLarge
)

// Error is one error in a document.
type Error struct {
	Kind ErrorKind
	// Path is the field's, and ObjectPath that of its object.
	Path, ObjectPath string
	// Node is what is wrong; the error is on its line.
	Node, Value, First *yaml.Node
	// Object has the field, for all errors of names.
	Object *yaml.Node
	Fields []Pair
	// Type is that of the value, or that of the object for an error of a name.
	Type reflect.Type
	// Err may show the value.
	Err error
	// Limit is Options.Memory, for TooLarge.
	Limit int
}

func (k ErrorKind) String() string {
	return [...]string{"unknown field", "duplicate field", "wrong type", "the name is not a string to Kubernetes: put it in quotes", "the name is not a string", "<< takes an object", "too large"}[k]
}

// Error shows no value.
func (e *Error) Error() string { return fmt.Sprintf("line %d: %s: %s", e.Node.Line, e.Path, e.Kind) }

// Lenient says that a decoder that is not strict accepts it.
func (e *Error) Lenient() bool { return e.Kind == UnknownField || e.Kind == DuplicateField }

// within is the error of a name in the object at path.
func (e *Error) within(path string, t reflect.Type, object *yaml.Node) *Error {
	e.Path, e.ObjectPath, e.Type, e.Object = child(path, e.Path), path, t, object
	return e
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

// Fields are the JSON names of a struct's fields, in order, and their indexes,
// including those of inlined structs.
type Fields struct {
	Names []string
	Index map[string][]int
}

var fieldCache sync.Map // reflect.Type → *Fields

// FieldsOf returns the fields of a struct, which the caller does not change.
func FieldsOf(t reflect.Type) *Fields {
	if f, ok := fieldCache.Load(t); ok {
		return f.(*Fields)
	}
	f := &Fields{Index: map[string][]int{}}
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		switch {
		case name != "" && name != "-":
			f.Names = append(f.Names, name)
			f.Index[name] = []int{i}
		case sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct:
			inner := FieldsOf(sf.Type)
			for _, n := range inner.Names {
				f.Names = append(f.Names, n)
				f.Index[n] = append([]int{i}, inner.Index[n]...)
			}
		}
	}
	fieldCache.Store(t, f)
	return f
}

package advice

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"podd/internal/strictyaml"
	"podd/internal/suggest"
)

// unknownField is one that its object does not have.
type unknownField struct {
	*strictyaml.Error
	// name is the field's, and kind that of the document.
	name, kind string
}

// aliases are names that other tools, and other fields, have for a field.
var aliases = map[string]string{
	"cmd": "command", "entrypoint": "command", "environment": "env", "gracePeriod": "terminationGracePeriodSeconds",
	"gracePeriodSeconds": "terminationGracePeriodSeconds", "limit": "limits", "mounts": "volumeMounts", "pullPolicy": "imagePullPolicy",
	"pullSecrets": "imagePullSecrets", "request": "requests", "restart": "restartPolicy",
}

// fault is what is wrong, with the field that was meant: a sibling that was misspelt or
// that others call so, or a field of another object.
func (u *unknownField) fault(f Fault) Fault {
	f.Message = fmt.Sprintf("unknown field %q", Shorten(u.name))
	known, free := strictyaml.FieldsOf(u.Type), u.names(false)
	if name := u.similarField(free); name != "" {
		f = f.withEdit(replace(u.Node, name, didYouMean(name).format))
		if want, ok := u.fits(known, name); !ok {
			f.Edit, f.Hint = nil, f.Hint+" It takes "+want
		}
		return f
	}
	f.Hint = u.fallbackHint(known)
	return f
}

// names are those of the object's fields that the text has, or has not. What it has is not
// meant.
func (u *unknownField) names(written bool) []string {
	return slices.DeleteFunc(slices.Clone(strictyaml.FieldsOf(u.Type).Names), func(name string) bool {
		return written != slices.ContainsFunc(u.Fields, func(p strictyaml.Pair) bool { return p.Name == name })
	})
}

// similarField is the field of the same object that the name stands for, "" for none.
func (u *unknownField) similarField(free []string) string {
	if name := u.like(free); name != "" {
		return name
	}
	if name := referenceName(u.name, free); name != "" {
		return name
	}
	if u.name == "volumes" && slices.Contains(free, "volumeMounts") || u.owner() != "" {
		return ""
	}
	for _, k := range free {
		if len(u.name) >= 4 && strings.HasPrefix(k, u.name) || len(k) >= 3 && strings.HasPrefix(u.name, k) && beginsWord(u.name[len(k):]) {
			return k
		}
	}
	return ""
}

// beginsWord says that the rest of a name begins another word: imageName and image-name
// are about image, imageformat is a word of its own.
func beginsWord(rest string) bool { return rest != "" && (rest[0] < 'a' || rest[0] > 'z') }

// fits says whether the field's value has the form that another field takes; want is that
// form otherwise.
func (u *unknownField) fits(known *strictyaml.Fields, name string) (want string, ok bool) {
	t := u.Type.FieldByIndex(known.Index[name]).Type
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	form := DescribeType(u.Value)
	switch {
	case u.Value.Kind == yaml.ScalarNode && strictyaml.LiteralOf(u.Value).Kind == strictyaml.Null, t == bytesType:
		return "", true
	case t.Kind() == reflect.Slice:
		return "a list", form == "a list"
	case t.Kind() == reflect.Map, t.Kind() == reflect.Struct && t != quantityType && t != intOrStringType && !strictyaml.HasUnmarshaler(t):
		return "an object", form == "an object"
	}
	return "a single value", u.Value.Kind == yaml.ScalarNode
}

// fallbackHint is the hint for a field that no other of its object stands for.
func (u *unknownField) fallbackHint(known *strictyaml.Fields) string {
	if u.name == "volumes" && slices.Contains(known.Names, "volumeMounts") {
		return "a container says in volumeMounts where it sees a volume, by its name; what the volume is stands in spec.volumes"
	}
	if name := u.like(u.names(true)); name != "" {
		return fmt.Sprintf("%q is there, too; keep one of the two", name)
	}
	if strings.Contains(u.name, "{{") {
		return "a template placeholder is left in the file; fill it in first"
	}
	if owner := u.owner(); owner != "" {
		return fmt.Sprintf("%q is a field of %s; is the indentation right?", cmp.Or(aliases[u.name], u.name), owner)
	}
	const few = 14
	switch {
	case len(known.Names) <= few:
		return "known fields: " + strings.Join(known.Names, ", ")
	case u.ObjectPath == "":
		return "a Pod has apiVersion, kind, metadata and spec"
	}
	return "there is no such field here, and none with a similar name; remove it"
}

// like is the one of some names that others call so, or that is misspelt; "" for none.
func (u *unknownField) like(names []string) string {
	if slices.Contains(names, aliases[u.name]) {
		return aliases[u.name]
	}
	return suggest.Closest(u.name, names)
}

// owner is the object that has a field of the name, "" for none.
func (u *unknownField) owner() string {
	owner := fieldOwner(cmp.Or(aliases[u.name], u.name), withoutIndexes(u.ObjectPath))
	if u.kind != "Pod" && !strings.HasPrefix(owner, "metadata") {
		return ""
	}
	return owner
}

// referenceName is the field that names an object where people write one of those
// that do so elsewhere: it is another for nearly every kind of reference.
func referenceName(name string, free []string) string {
	names := []string{"name", "secretName", "configMapName", "claimName"}
	const few = 6
	i := slices.IndexFunc(names, func(n string) bool { return slices.Contains(free, n) })
	if i < 0 || len(free) >= few || !slices.Contains(names, name) {
		return ""
	}
	return names[i]
}

package manifest

import (
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// pair is one field of a mapping.
type pair struct {
	key   *yaml.Node
	name  string
	value *yaml.Node
	// pass identifies the mapping that it comes from, of those that were merged into
	// this one.
	pass int
}

// fieldSet collects the fields of one mapping in the order of the text.
type fieldSet struct {
	all    []pair
	passes int
	// at is an index by name once there are more than few fields; nil until then.
	at     map[string]int
	report func(fault)
}

// pairs returns the fields of a mapping in order. The fields of a merge key (<<) are
// at its position: what follows it overrides them, and they override what precedes
// it, as in upstream's parser. Of two fields of one name the last one wins; they are
// reported, as are impossible keys.
func pairs(n *yaml.Node, report func(fault)) []pair {
	s := fieldSet{all: make([]pair, 0, len(n.Content)/2), report: report}
	s.add(n)
	return s.all
}

func (s *fieldSet) add(n *yaml.Node) {
	s.passes++
	pass := s.passes
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := resolve(n.Content[i]), n.Content[i+1]
		switch {
		case k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge":
			s.merge(v)
		case k.Kind != yaml.ScalarNode:
			s.report(fault{line: n.Content[i].Line, message: "a field name must be a string, not " + formOf(k),
				hint: `is a template placeholder such as {{ … }} left in the file? Put it into quotes or fill it in`})
		default:
			s.put(pair{key: n.Content[i], name: k.Value, value: resolve(v), pass: pass})
		}
	}
}

// merge adds the fields of a merge key's value: a mapping, or a list of mappings, of
// which the first wins.
func (s *fieldSet) merge(value *yaml.Node) {
	m := resolve(value)
	switch {
	case m.Kind == yaml.MappingNode:
		s.add(m)
		return
	case m.Kind == yaml.SequenceNode && value.Kind != yaml.AliasNode:
		for _, e := range slices.Backward(m.Content) {
			if m = resolve(e); m.Kind != yaml.MappingNode {
				break
			}
			s.add(m)
		}
		if len(value.Content) == 0 || m.Kind == yaml.MappingNode {
			return
		}
	}
	const want = "<< takes an object (or a list of them), not "
	s.report(fault{line: value.Line, message: want + describe(m), plain: want + formOf(m)})
}

// put adds a field, or replaces the one of its name.
func (s *fieldSet) put(p pair) {
	i := s.find(p.name)
	if i < 0 {
		if s.at != nil {
			s.at[p.name] = len(s.all)
		}
		s.all = append(s.all, p)
		return
	}
	if p.pass == s.all[i].pass {
		s.report(fault{line: p.key.Line, field: p.name, message: fmt.Sprintf("duplicate field %q", shorten(p.name)),
			second: s.all[i].key.Line, hint: "only one of them takes effect; remove the other", lenient: true})
	}
	s.all[i] = p
}

func (s *fieldSet) find(name string) int {
	const few = 16 // up to here a map costs more than it saves
	if len(s.all) <= few {
		return slices.IndexFunc(s.all, func(p pair) bool { return p.name == name })
	}
	if s.at == nil {
		s.at = make(map[string]int, 2*len(s.all))
		for i, p := range s.all {
			s.at[p.name] = i
		}
	}
	if i, ok := s.at[name]; ok {
		return i
	}
	return -1
}

// describe describes a value as a person sees it.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "null"
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return "the boolean " + n.Value
	}
	return "the string " + strconv.Quote(shorten(n.Value))
}

// formOf is describe without the value.
func formOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "null"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	}
	return "a string"
}

// shorten keeps a message that shows a value readable.
func shorten(s string) string {
	const most = 80
	return cut(s, most)
}

// cut omits the middle of a string with more characters than most.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	if r := []rune(s); len(r) > most {
		return string(r[:most/2]) + "…" + string(r[len(r)-most/2:])
	}
	return s
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// oldBoolean says whether Kubernetes reads the value as a boolean although it is a
// string in YAML 1.2.
func oldBoolean(n *yaml.Node) bool {
	return n.Style == 0 && n.ShortTag() == "!!str" && literalOf(n).kind == literalBool
}

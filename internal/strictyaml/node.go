package strictyaml

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Resolve follows an alias.
func Resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// Pair is one field of a mapping. Value may be an alias, and is one for a field that
// was merged from another mapping.
type Pair struct {
	Key   *yaml.Node
	Name  string
	Value *yaml.Node
	// pass identifies the mapping that it comes from, of those that were merged into
	// this one.
	pass int
}

// pairSet collects the fields of one mapping in the order of the text.
type pairSet struct {
	all    []Pair
	passes int
	at     map[string]int // index by name
	report func(*Error)
}

// Pairs returns the fields of a mapping in order. The fields of a merge key (<<) are
// at its position: what follows it overrides them, and they override what precedes
// it, as in upstream's parser. Of two fields of one name the last one wins; they are
// reported, as are impossible keys. report may be nil.
func Pairs(n *yaml.Node, report func(*Error)) []Pair {
	if report == nil {
		report = func(*Error) {}
	}
	s := pairSet{all: make([]Pair, 0, len(n.Content)/2), at: make(map[string]int, len(n.Content)/2), report: report}
	s.add(n)
	return s.all
}

func (s *pairSet) add(n *yaml.Node) {
	s.passes++
	pass := s.passes
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch k := Resolve(key); {
		case k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge":
			s.merge(value)
		case k.Kind != yaml.ScalarNode:
			s.report(&Error{Kind: BadName, Node: key, Value: k})
		default:
			if pass > 1 {
				value = &yaml.Node{Kind: yaml.AliasNode, Alias: Resolve(value), Line: value.Line}
			}
			s.put(Pair{Key: key, Name: k.Value, Value: value, pass: pass})
		}
	}
}

// merge adds the fields of a merge key's value: a mapping, or a list of mappings, of
// which the first wins.
func (s *pairSet) merge(value *yaml.Node) {
	m := Resolve(value)
	switch {
	case m.Kind == yaml.MappingNode:
		s.add(m)
		return
	case m.Kind == yaml.SequenceNode && value.Kind != yaml.AliasNode:
		for _, e := range slices.Backward(m.Content) {
			if m = Resolve(e); m.Kind != yaml.MappingNode {
				break
			}
			s.add(m)
		}
		if len(value.Content) == 0 || m.Kind == yaml.MappingNode {
			return
		}
	}
	s.report(&Error{Kind: BadMerge, Node: value, Value: m})
}

// put adds a field, or replaces the one of its name.
func (s *pairSet) put(p Pair) {
	i, twice := s.at[p.Name]
	if !twice {
		s.at[p.Name] = len(s.all)
		s.all = append(s.all, p)
		return
	}
	if p.pass == s.all[i].pass {
		s.report(&Error{Kind: DuplicateField, Path: p.Name, Node: p.Key, First: s.all[i].Key})
	}
	s.all[i] = p
}

// Field returns the name and the value of a mapping's field; nil where n is no mapping
// or does not have it.
func Field(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n = Resolve(n); n.Kind == yaml.MappingNode {
		for _, p := range Pairs(n, nil) {
			if p.Name == name {
				return p.Key, Resolve(p.Value)
			}
		}
	}
	return nil, nil
}

// Lookup follows names of fields from a mapping and returns the value; nil if one is
// missing.
func Lookup(n *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		if _, n = Field(n, name); n == nil {
			return nil
		}
	}
	return n
}

// LookupPath follows the path of a field, such as spec.containers[0].image, from a mapping and
// returns the field's name and value; nil where the text does not have them. A list's
// entry has no name.
func LookupPath(n *yaml.Node, path string) (key, value *yaml.Node) {
	for path != "" && n != nil {
		rest := strings.TrimPrefix(path, ".")
		if !strings.HasPrefix(rest, "[") {
			name := rest
			path = ""
			if end := strings.IndexAny(rest, ".["); end >= 0 {
				name, path = rest[:end], rest[end:]
			}
			key, n = Field(n, name)
			continue
		}
		within, after, closed := strings.Cut(rest[1:], "]")
		if !closed {
			return nil, nil
		}
		path = after
		if n = Resolve(n); n.Kind == yaml.MappingNode {
			key, n = Field(n, within)
			continue
		}
		i, err := strconv.Atoi(within)
		if err != nil || n.Kind != yaml.SequenceNode || i < 0 || i >= len(n.Content) {
			return nil, nil
		}
		key, n = nil, n.Content[i]
	}
	if n == nil {
		return nil, nil
	}
	return key, Resolve(n)
}

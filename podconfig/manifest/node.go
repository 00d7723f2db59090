package manifest

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxExpanded bounds the nodes that a document has once its aliases are
// followed. A generous Pod has a few thousand.
const maxExpanded = 100_000

// explosive counts the nodes of a document with its aliases followed, without
// following them, and returns a fault where there are too many or where an
// alias holds itself. Every later walk is bounded by this one.
func explosive(root *yaml.Node) *fault {
	sizes := map[*yaml.Node]int{}
	open := map[*yaml.Node]bool{}
	aliases := false
	var bad *fault
	var size func(n *yaml.Node, depth int) int
	size = func(n *yaml.Node, depth int) int {
		switch {
		case bad != nil:
			return 0
		case depth > maxDepth:
			bad = &fault{line: n.Line, message: fmt.Sprintf("the document is nested more than %d levels deep", maxDepth),
				hint: "a Pod needs about 15; is this the right file?"}
			return 0
		case n.Kind == yaml.AliasNode:
			aliases = true
			if open[n.Alias] {
				bad = &fault{line: n.Line, message: "the alias *" + n.Value + " stands within the very object that it names",
					hint: "write the value out"}
				return 0
			}
			n = n.Alias
		}
		if known, ok := sizes[n]; ok {
			return known
		}
		open[n] = true
		total := 1
		for _, c := range n.Content {
			// Once over the bound the sum only has to stay over it.
			total = min(total+size(c, depth+1), 2*maxExpanded)
		}
		delete(open, n)
		sizes[n] = total
		return total
	}
	if total := size(root, 0); bad == nil && aliases && total > maxExpanded {
		bad = &fault{line: root.Line, message: fmt.Sprintf("the aliases (*name) of this document unfold to more than %d values", maxExpanded),
			hint: "this is how an alias bomb looks; write the values out"}
	}
	return bad
}

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
}

// pairs returns the fields of a mapping in their order, those of merge keys
// (<<) after its own, which win. report hears of duplicate and impossible keys.
func pairs(n *yaml.Node, report func(fault)) []pair {
	out := make([]pair, 0, len(n.Content)/2)
	lines := make(map[string]int, len(n.Content)/2)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := resolve(n.Content[i]), resolve(n.Content[i+1])
		switch {
		case k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge":
			merged = append(merged, v)
			continue
		case k.Kind != yaml.ScalarNode:
			report(fault{line: n.Content[i].Line, message: "a field name must be a text, not " + describe(k),
				hint: `is a template placeholder such as {{ … }} left in the file? Put it into quotes or fill it in`})
			continue
		}
		if first, ok := lines[k.Value]; ok {
			report(fault{line: k.Line, field: k.Value, message: fmt.Sprintf("the field %q stands twice in the same object", shorten(k.Value)),
				second: first, hint: "only one of them can hold; remove the other"})
			continue
		}
		lines[k.Value] = n.Content[i].Line
		out = append(out, pair{key: n.Content[i], name: k.Value, value: v})
	}
	for _, m := range merged {
		out = appendMerged(out, m, lines, report)
	}
	return out
}

// appendMerged adds the fields of a merge key's value, a mapping or a list of
// them, that are not there yet.
func appendMerged(out []pair, m *yaml.Node, lines map[string]int, report func(fault)) []pair {
	switch m.Kind {
	case yaml.SequenceNode:
		for _, c := range m.Content {
			out = appendMerged(out, resolve(c), lines, report)
		}
	case yaml.MappingNode:
		for _, p := range pairs(m, report) {
			if _, ok := lines[p.name]; !ok {
				lines[p.name] = p.key.Line
				out = append(out, p)
			}
		}
	default:
		report(fault{line: m.Line, message: "<< takes an object (or a list of them), not " + describe(m)})
	}
	return out
}

// describe names a value as a person sees it.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object with fields"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing (null)"
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return "the boolean " + n.Value
	}
	return "the text " + strconv.Quote(shorten(n.Value))
}

// shorten keeps a value that is shown within a message readable.
func shorten(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most/2]) + "…" + string(r[len(r)-most/2:])
	}
	return s
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// oldBooleans are what YAML 1.1, which Kubernetes reads, takes for a boolean
// when it is not quoted, and YAML 1.2 for a text.
var oldBooleans = map[string]bool{
	"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "on": true, "On": true, "ON": true,
	"n": false, "N": false, "no": false, "No": false, "NO": false, "off": false, "Off": false, "OFF": false,
}

// oldBoolean says whether Kubernetes would read the value as a boolean though
// it is a text in YAML 1.2.
func oldBoolean(n *yaml.Node) (value, ok bool) {
	if n.Style != 0 || n.ShortTag() != "!!str" {
		return false, false
	}
	value, ok = oldBooleans[n.Value]
	return value, ok
}

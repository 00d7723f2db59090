package manifest

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// pairs returns the fields of an object and reports those that are there twice.
func (d *filler) pairs(n *yaml.Node, path string) []pair {
	begins := missingDashes(n, path)
	for _, key := range begins {
		f := fault{line: key.Line, field: child(path, key.Value), second: n.Content[0].Line, lenient: true,
			message: fmt.Sprintf("the field %q is here again: another entry of the list begins on this line, and its dash is missing", shorten(key.Value))}
		d.report(f.by(edit{line: key.Line, column: key.Column - len(dash), old: "  " + key.Value, new: dash + key.Value, words: `write "%s", with the dash two columns to the left`}))
	}
	return pairs(n, func(f fault) {
		if f.second > 0 && len(begins) > 0 && f.line >= begins[0].Line {
			return // it is a field of the next entry
		}
		f.field = child(path, f.field)
		d.report(f)
	})
}

const dash = "- "

// missingDashes returns the fields of a list's entry with which other entries begin, if it
// looks as if their dashes were missing: the entry's first field is there again, and what
// follows it makes another entry of the same kind.
func missingDashes(n *yaml.Node, path string) (begins []*yaml.Node) {
	if !strings.HasSuffix(path, "]") || n.Style&yaml.FlowStyle != 0 || len(n.Content) == 0 || n.Content[0].Column <= len(dash) {
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

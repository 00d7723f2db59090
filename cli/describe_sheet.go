package cli

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// sheet is a page in the layout of kubectl describe. A level is two spaces, and the values of
// adjacent fields are aligned.
type sheet struct {
	text  bytes.Buffer
	cells *tabwriter.Writer
}

func newSheet() *sheet {
	s := &sheet{}
	s.cells = tabwriter.NewWriter(&s.text, 0, 8, 2, ' ', 0)
	return s
}

// line writes cells side by side.
func (s *sheet) line(level int, cells ...string) {
	clean := make([]string, len(cells))
	for i, cell := range cells {
		clean[i] = oneLine(cell)
	}
	// Writing to a buffer cannot fail.
	_, _ = io.WriteString(s.cells, strings.Repeat("  ", level)+strings.Join(clean, "\t")+"\n")
}

// field writes a name and its value. Continuation lines of the value align with the first.
func (s *sheet) field(level int, name, value string) {
	name += ":"
	for line := range strings.SplitSeq(strings.TrimRight(value, "\n"), "\n") {
		s.line(level, name, line)
		name = ""
	}
}

// optional is field, but writes nothing if the value is missing.
func (s *sheet) optional(level int, name, value string) {
	if value != "" {
		s.field(level, name, value)
	}
}

// heading writes a name with its values on the following lines, or <none> if it is empty.
func (s *sheet) heading(level int, name string, empty bool) {
	if empty {
		s.line(level, name+":", none)
		return
	}
	s.line(level, name+":")
}

// values writes one value per line, beside the name of the field.
func (s *sheet) values(level int, name string, all []string) {
	if len(all) == 0 {
		all = []string{none}
	}
	name += ":"
	for _, value := range all {
		s.line(level, name, value)
		name = ""
	}
}

// pairs returns key=value, sorted.
func pairs(m map[string]string) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, key+"="+m[key])
	}
	return all
}

// writeTo writes the sheet without the trailing spaces that empty values leave.
func (s *sheet) writeTo(w io.Writer) error {
	if err := s.cells.Flush(); err != nil {
		return err
	}
	var out strings.Builder
	for line := range strings.Lines(s.text.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

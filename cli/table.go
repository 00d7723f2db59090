package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// table aligns columns, with three spaces between them, as kubectl does. Columns never shrink
// between calls of write, so a watch stays one table.
type table struct {
	widths []int
	// width is where the last column wraps; 0 means never.
	width int
}

// minLastColumn is the narrowest last column that is still readable when wrapped.
const minLastColumn = 30

func (t *table) write(w io.Writer, rows [][]string) error {
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		indent := 0
		for i, cell := range row[:len(row)-1] {
			fmt.Fprintf(&b, "%-*s   ", t.widths[i], cell)
			indent += t.widths[i] + 3
		}
		last := row[len(row)-1]
		if t.width-indent >= minLastColumn {
			last = strings.Join(wrap(last, t.width-indent), "\n"+strings.Repeat(" ", indent))
		}
		b.WriteString(strings.TrimRight(last, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

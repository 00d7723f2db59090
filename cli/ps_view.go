package cli

import (
	"fmt"
	"io"
	"time"

	"podd/server"
)

// view is the way to show a listing to a person.
type view struct {
	wide bool
	// width is the terminal's width, where sentences wrap; 0 means never.
	width int
	// filtered is true if not all pods were requested.
	filtered bool
}

const (
	// maxReasons and maxReason (in characters) limit the text below the table
	// without -o wide.
	maxReasons = 10
	maxReason  = 400
)

// write writes the table, the reasons why containers do not run, and the problems.
func (v view) write(w io.Writer, l server.Listing, now time.Time) error {
	switch {
	case len(l.Pods) > 0:
		if err := v.writeTable(w, l, now); err != nil {
			return err
		}
	case v.filtered:
		fmt.Fprintln(w, "No such pods.")
	default:
		fmt.Fprintln(w, "No pods. Put a manifest into the manifest directory (staticPodPath) and it runs.")
	}
	if reasons := v.notRunningLines(l, now); len(reasons) > 0 {
		fmt.Fprintln(w, "\nNot running:")
		v.writeLimited(w, reasons)
	}
	if reasons := notReadyLines(l); len(reasons) > 0 {
		fmt.Fprintln(w, "\nNot ready:")
		v.writeLimited(w, reasons)
	}
	if problems := problemLines(l); len(problems) > 0 {
		fmt.Fprintf(w, "\n%s:\n", countProblems(tally(l.Problems)))
		for _, p := range problems {
			paragraph(w, 2, p.text, v.width)
		}
	}
	return nil
}

func (v view) writeLimited(w io.Writer, lines []line) {
	shown := lines
	if !v.wide && len(lines) > maxReasons {
		shown = lines[:maxReasons]
	}
	for _, l := range shown {
		if !v.wide {
			l.text = shorten(l.text, maxReason)
		}
		paragraph(w, 2, l.text, v.width)
	}
	if more := len(lines) - len(shown); more > 0 {
		fmt.Fprintf(w, "  and %d more: podd ps -o wide\n", more)
	}
}

// writeTable writes a heading and a row for each pod.
func (v view) writeTable(w io.Writer, l server.Listing, now time.Time) error {
	rows := [][]string{v.heading()}
	for _, r := range v.pods(l, now) {
		rows = append(rows, r.cells)
	}
	return new(table).write(w, rows)
}

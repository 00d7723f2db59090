package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// addOutput gives a command -o with the formats it knows, and their completion.
func addOutput(cmd *cobra.Command, output *string, formats ...string) {
	cmd.Flags().StringVarP(output, "output", "o", "", "output `format`: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *output != "" && !slices.Contains(formats, *output) {
			return &exitError{exitUsage, fmt.Errorf("-o %s: give one of %s", *output, strings.Join(formats, ", "))}
		}
		return nil
	}
}

// writeObject writes v as json or yaml, with the field names of its JSON form. As
// yaml it begins a document, so that many of a watch can be told apart.
func writeObject(w io.Writer, format string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	if format == "yaml" {
		if b, err = yaml.JSONToYAML(b); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		b = append([]byte("---\n"), b...)
	} else {
		b = append(b, '\n')
	}
	_, err = w.Write(b)
	return err
}

// table aligns columns, three spaces between them, as kubectl does. What was
// written once keeps its place: a later call of write goes on with the columns
// at least as wide, so that a watch stays one table.
type table struct {
	widths []int
	// width is where the last column is wrapped; 0 for never.
	width int
}

// leastMessage is the narrowest last column that wrapping makes readable.
const leastMessage = 30

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
		if t.width-indent >= leastMessage {
			last = strings.Join(wrap(last, t.width-indent), "\n"+strings.Repeat(" ", indent))
		}
		b.WriteString(strings.TrimRight(last, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// paragraph writes s, indented, the lines after the first two spaces more; it
// wraps at width, or never if that is 0.
func paragraph(w io.Writer, indent int, s string, width int) {
	lines := []string{s}
	if room := width - indent - 2; room >= leastMessage {
		lines = wrap(s, room)
	}
	for i, line := range lines {
		fmt.Fprintf(w, "%s%s\n", strings.Repeat(" ", indent+2*min(i, 1)), line)
	}
}

// wrap splits s into lines of at most width characters, at spaces; a longer word
// has a line of its own, so that it can be copied whole.
func wrap(s string, width int) []string {
	var lines []string
	line, room := "", 0
	for word := range strings.SplitSeq(s, " ") {
		n := utf8.RuneCountInString(word)
		if line != "" && n+1 <= room {
			line, room = line+" "+word, room-n-1
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		line, room = word, width-n
	}
	return append(lines, line)
}

// widthOf is how many characters fit a line of the terminal that w is, or 0.
func widthOf(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// shorten cuts s to n characters.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-2]) + " …"
}

// isTerminal says whether a person looks at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// oneLine keeps a message in its row.
func oneLine(s string) string {
	return printable(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' || r == '\t' }), " "))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// printable replaces what could drive a terminal: names of files and messages
// of programs come from outside.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

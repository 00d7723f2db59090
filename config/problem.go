package config

import (
	"fmt"
	"strings"
)

// Problem is one mistake in the configuration, in words a person can act on.
type Problem struct {
	// File is a path, or "" for a flag.
	File string
	// Line counts from 1; 0 where it is not known.
	Line int
	// Field is the path of the field (logging.format) or the flag (--node-ip).
	Field   string
	Message string
}

func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Error is everything that is wrong with a configuration.
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// nearest returns the candidate that word is most likely a slip of, or "".
func nearest(word string, candidates []string) string {
	best, distance := "", max(2, len(word)/4)+1
	for _, c := range candidates {
		d := edits(strings.ToLower(word), strings.ToLower(c))
		if d < distance || d == distance && best != "" && c < best {
			best, distance = c, d
		}
	}
	return best
}

// edits is the Levenshtein distance of a and b, by bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

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

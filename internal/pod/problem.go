package pod

import (
	"strconv"
	"strings"
)

// Location returns the location of the problem, as compilers write it: path:line.
func (p Problem) Location() string {
	if p.Line > 0 {
		return p.Origin + ":" + strconv.Itoa(p.Line)
	}
	return p.Origin
}

// String returns the problem on one line: location, whether it is only a warning, field,
// message and hint.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Location())
	if p.Warning {
		b.WriteString(": warning")
	}
	if p.Field != "" {
		b.WriteString(": " + p.Field)
	}
	b.WriteString(": " + p.Message)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

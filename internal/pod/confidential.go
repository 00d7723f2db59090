package pod

import (
	"maps"
	"slices"
	"strings"
)

// maxConfidential bounds the annotation with the names of confidential variables, because
// each list of the runtime's contains it.
const maxConfidential = 4 << 10

// allConfidential means all variables. No variable's name has a "=".
const allConfidential = "="

// SetConfidential is Set for a value that must not be shown.
func (e *Environment) SetConfidential(name, value string) {
	e.Set(name, value)
	if e.Confidential == nil {
		e.Confidential = map[string]bool{}
	}
	e.Confidential[name] = true
}

// ConfidentialValues returns the values that must not be shown.
func (e Environment) ConfidentialValues() []string {
	var out []string
	for name := range e.Confidential {
		out = append(out, e.Values[name])
	}
	return out
}

// ConfidentialNames returns the names of the confidential variables as one text, for
// AnnotationConfidential. If there are very many, it stands for all variables. It is empty
// if there are none.
func (e Environment) ConfidentialNames() string {
	text := strings.Join(slices.Sorted(maps.Keys(e.Confidential)), "=")
	if len(text) > maxConfidential {
		return allConfidential
	}
	return text
}

// IsConfidential says whether a text of ConfidentialNames includes the variable.
func IsConfidential(text, name string) bool {
	if text == allConfidential {
		return true
	}
	return text != "" && slices.Contains(strings.Split(text, "="), name)
}

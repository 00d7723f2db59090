package features

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"podd/internal/suggest"
	"podd/internal/versions"
)

// Set says which gates are on. It is a value that never changes. The zero Set has each gate at
// its default.
type Set struct {
	// on has the gates that were set, also through AllAlpha or AllBeta.
	on map[Gate]bool
}

// Enabled says whether a gate of the release is on. It is false for any other name.
func (s Set) Enabled(g Gate) bool {
	if on, ok := s.on[g]; ok {
		return on
	}
	_, byName := table()
	return byName[g].Default
}

// Note is a message about a gate. The message need not name the gate.
type Note struct {
	Gate    Gate
	Message string
}

// New returns the Set for a configuration's featureGates, and what is wrong with them: unknown
// names, locked gates with another value, and gates that are on without those that they need.
// The rules are upstream's (component-base/featuregate), but New returns all problems at once.
// If there are any, the Set is the zero Set.
func New(given map[string]bool) (Set, []Note) {
	all, byName := table()
	var wrong []Note
	on := map[Gate]bool{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		spec, known := byName[Gate(name)]
		switch {
		case !known:
			wrong = append(wrong, Note{Gate(name), unknown(name)})
		case spec.Locked && given[name] != spec.Default:
			wrong = append(wrong, Note{spec.Name, fmt.Sprintf("cannot set feature gate %s to %t, feature is locked to %t: leave it out", name, given[name], spec.Default)})
		default:
			on[spec.Name] = given[name]
		}
	}
	if len(wrong) > 0 {
		return Set{}, wrong
	}
	for _, whole := range []Gate{AllAlpha, AllBeta} {
		value, ok := on[whole]
		for _, s := range all {
			if _, itself := on[s.Name]; ok && !itself && s.Stage == byName[whole].Stage && s.Name != AllAlpha && s.Name != AllBeta {
				on[s.Name] = value
			}
		}
	}
	set := Set{on}
	for _, s := range all {
		if off := slices.DeleteFunc(slices.Clone(s.Needs), set.Enabled); set.Enabled(s.Name) && len(off) > 0 {
			wrong = append(wrong, Note{s.Name, fmt.Sprintf("%s is enabled, but depends on features that are disabled: %v: switch these on, or this one off", s.Name, off)})
		}
	}
	if len(wrong) > 0 {
		return Set{}, wrong
	}
	return set, nil
}

func unknown(name string) string {
	all, _ := table()
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = string(s.Name)
	}
	what := "unrecognized feature gate: Kubernetes " + versions.KubernetesMinor + " has none of this name"
	if hint := suggest.Closest(name, names); hint != "" {
		return what + ": did you mean " + hint + "?"
	}
	return what + ": correct or remove it"
}

// Parse parses the syntax of --feature-gates: Name=true,Other=false. If a name occurs twice, the
// last value counts.
func Parse(text string) (map[string]bool, error) {
	given := map[string]bool{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		if name = strings.TrimSpace(name); name == "" && value == "" {
			continue
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("%q is not a feature gate with a value: give %s=true or %s=false", pair, name, name)
		}
		given[name] = on
	}
	return given, nil
}

// Notes returns what an operator should know about gates that New accepts: gates that make no
// difference in podd but are not at their default, and gates that a later release will drop.
func Notes(given map[string]bool) []Note {
	_, byName := table()
	var out []Note
	for _, name := range slices.Sorted(maps.Keys(given)) {
		s := byName[Gate(name)]
		switch {
		case s.Name == AllAlpha || s.Name == AllBeta:
		case given[name] != s.Default && !IsHad(s.Name):
			out = append(out, Note{s.Name, "makes no difference: podd does not have this feature gate"})
		case s.Stage == GA:
			out = append(out, Note{s.Name, "the feature is GA, and a later release will not know its gate: leave it out"})
		case s.Stage == Deprecated:
			out = append(out, Note{s.Name, "the feature gate is deprecated, and a later release will not know it: leave it out"})
		}
	}
	return out
}

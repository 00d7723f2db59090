package advice

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestTheTextsOfTheYAMLLibraryAreKnown has the library write each, in the version that podd is
// built with.
func TestTheTextsOfTheYAMLLibraryAreKnown(t *testing.T) {
	seen := map[yamlError]bool{yamlPanic: true} // podd's own
	for text, want := range map[string]yamlError{
		"a: b: c":           yamlMapping,
		"a:\n  b: 1\n c: 2": yamlNoKey,
		"a: [b, c":          yamlNoComma,
		"a: {b: 1":          yamlNoComma,
		"a: [b, }":          yamlNoContent,
		"%YAML 1.1\nb":      yamlNoDocument,
		"a: 1\nb\n":         yamlNoColon,
		"a: \"b":            yamlNoQuote,
		"a: 'b":             yamlNoQuote,
		"a: |\n\tb":         yamlTab,
		"a: @b":             yamlNoToken,
		"a: `b":             yamlNoToken,
		"a: - b":            yamlSequence,
		"a: &":              yamlName,
		"a: * b":            yamlName,
		`a: "\p"`:           yamlEscape,
		"a: \x01":           yamlControl,
		"a: *b":             yamlNoAnchor,
		"- a\n- b\nc: 1":    yamlNoDash,
	} {
		var out yaml.Node
		err := yaml.Unmarshal([]byte(text), &out)
		var value any
		if err == nil {
			err = out.Decode(&value)
		}
		if err == nil {
			t.Errorf("%q: the library accepts it", text)
			continue
		}
		if got := yamlErrorOf(err.Error()); got != want {
			t.Errorf("%q: %v: got %d, want %d", text, err, got, want)
		}
		seen[want] = true
	}
	for _, row := range yamlTexts {
		if !seen[row.kind] {
			t.Errorf("no text makes the library say %q", row.text)
		}
	}
}

package advice

import (
	"strings"

	"podd/internal/strictyaml"
)

// yamlError is what go.yaml.in/yaml/v3 rejects a text for.
type yamlError int

const (
	yamlOther yamlError = iota
	yamlMapping
	yamlNoKey
	yamlNoDash
	yamlNoComma
	yamlNoContent
	yamlNoDocument
	yamlNoColon
	yamlNoQuote
	yamlTab
	yamlNoToken
	yamlSequence
	yamlName
	yamlEscape
	yamlControl
	yamlNoAnchor
	yamlPanic
)

// yamlTexts are the library's texts, with what podd says instead of one ("" for the
// text itself) and the remedy. The first that a message has counts.
var yamlTexts = []struct {
	text          string
	kind          yamlError
	message, hint string
}{
	{strictyaml.ParserPanic, yamlPanic, "", ""},
	{"unknown anchor", yamlNoAnchor, "", ""},
	{"mapping values are not allowed", yamlMapping, "", `the line is indented too far, the line before it lacks its ":", or a string that contains ": " must be quoted`},
	{"did not find expected key", yamlNoKey, inconsistent, sameColumn},
	{"did not find expected '-' indicator", yamlNoDash, inconsistent, sameColumn},
	{"did not find expected ',' or", yamlNoComma, notYAML + "the bracket that opens here is not closed, or a comma is missing", "is the file complete?"},
	{"did not find expected node content", yamlNoContent, notYAML + "a value is missing here, or a bracket that opens here is not closed", "is the file complete?"},
	{"did not find expected <document start>", yamlNoDocument, "", ""},
	{"could not find expected ':'", yamlNoColon, "", `a field is written "name: value"; is the colon missing, or is the file cut off here?`},
	{"found unexpected end of stream", yamlNoQuote, notYAML + "a quote opens here and is never closed", "close the quotes; is the file complete?"},
	{"found a tab character", yamlTab, "there is a tab here where YAML requires spaces", "use spaces; a block that begins with | needs them at the beginning of its first line, too"},
	{"found character that cannot start any token", yamlNoToken, "", "quote strings that begin with @, ` or %"},
	{"block sequence entries are not allowed", yamlSequence, "", `a list begins on the line after its field name, each entry with "- "`},
	{"expected alphabetic or numeric", yamlName, "", `a string that begins with * or & must be quoted`},
	{"unknown escape character", yamlEscape, "", `within double quotes a backslash must be doubled; single quotes take it as it is`},
	{"control characters", yamlControl, "", "remove the control character (in vim: /[^[:print:]\\t])"},
}

const (
	notYAML      = "this is not valid YAML: "
	inconsistent = notYAML + "the indentation is inconsistent within the block that begins here"
	sameColumn   = "the fields of one object must begin in the same column; lists begin each entry with \"- \""
)

// yamlErrorOf returns what a message of the library is about, without its line. The library
// has no types for its errors: this is the only place that reads their texts, and its test
// has the library write each of them.
func yamlErrorOf(said string) yamlError {
	for _, t := range yamlTexts {
		if strings.Contains(said, t.text) {
			return t.kind
		}
	}
	return yamlOther
}

// ofParser says that the error is one of the library's parser; the others are its scanner's.
func (e yamlError) ofParser() bool {
	switch e {
	case yamlNoKey, yamlNoDash, yamlNoComma, yamlNoContent, yamlNoDocument:
		return true
	}
	return false
}

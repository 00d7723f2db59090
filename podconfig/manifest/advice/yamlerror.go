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

// yamlTexts are the library's texts. The first that a message has counts.
var yamlTexts = []struct {
	text string
	kind yamlError
}{
	{strictyaml.GaveUp, yamlPanic},
	{"unknown anchor", yamlNoAnchor},
	{"mapping values are not allowed", yamlMapping},
	{"did not find expected key", yamlNoKey},
	{"did not find expected '-' indicator", yamlNoDash},
	{"did not find expected ',' or", yamlNoComma},
	{"did not find expected node content", yamlNoContent},
	{"did not find expected <document start>", yamlNoDocument},
	{"could not find expected ':'", yamlNoColon},
	{"found unexpected end of stream", yamlNoQuote},
	{"found a tab character", yamlTab},
	{"found character that cannot start any token", yamlNoToken},
	{"block sequence entries are not allowed", yamlSequence},
	{"expected alphabetic or numeric", yamlName},
	{"unknown escape character", yamlEscape},
	{"control characters", yamlControl},
}

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

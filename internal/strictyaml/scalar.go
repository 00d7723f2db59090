package strictyaml

import (
	"bytes"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// Literal is the JSON value of a scalar in Kubernetes. An apiserver, kubectl and the
// kubelet convert YAML to JSON first, in the schema of YAML 1.1, so that an unquoted
// 010 is 8, 1e3 is 1000 and yes is true everywhere; what a field accepts is decided
// on the JSON.
type Literal struct {
	Kind LiteralKind
	// Text is a string's value, or a number or boolean as in JSON.
	Text string
}

// LiteralKind is the JSON type of a Literal.
type LiteralKind int

// The kinds of literals.
const (
	Text LiteralKind = iota
	Number
	Bool
	Null
	// None is a value that JSON cannot express (.inf, !!int abc), or has a tag that
	// only some parsers know (!!binary, !mine), or no scalar.
	None
)

// jsonNumber marks a number of a JSON text, which is used as it is written: 1000.0 is
// an integer in YAML, where the conversion makes it 1000, and not in JSON. No number
// of a YAML text has this style.
const jsonNumber = yaml.LiteralStyle

// special matches the unquoted scalars that YAML 1.1 may take for something else than
// a string, and decimal those of them that are the same in JSON.
var (
	special = regexp.MustCompile(`^([-+]?\.?[0-9][-+.0-9A-Za-z_]*|[-+]?\.[-+.0-9A-Za-z_]+|[yYnN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|true|True|TRUE|false|False|FALSE|~|null|Null|NULL)$`)
	decimal = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,17})$`)
)

// LiteralOf returns what sigs.k8s.io/yaml makes of a scalar, which may be nil.
func LiteralOf(n *yaml.Node) Literal {
	if n == nil || n.Kind != yaml.ScalarNode {
		return Literal{Kind: None}
	}
	tagged := n.Style&yaml.TaggedStyle != 0
	switch tag := n.ShortTag(); {
	case n.Style == jsonNumber && n.Tag != "!!str":
		return Literal{Number, n.Value}
	case tagged && tag == "!!str", !tagged && n.Style != 0:
		return Literal{Text, n.Value}
	case tagged:
		switch tag {
		case "!!int", "!!float", "!!bool", "!!null", "!!timestamp":
			return convert(tag+" "+strconv.Quote(n.Value), n.Value)
		}
		return Literal{Kind: None}
	case n.Value == "":
		return Literal{Kind: Null}
	case decimal.MatchString(n.Value):
		return Literal{Number, n.Value}
	case special.MatchString(n.Value):
		return convert(n.Value, n.Value)
	}
	return Literal{Text, n.Value}
}

// convert has sigs.k8s.io/yaml convert a scalar, alone in a list. A string stays as it is.
func convert(scalar, value string) Literal {
	text, err := sigsyaml.YAMLToJSON([]byte("[" + scalar + "]"))
	if err != nil {
		return Literal{Kind: None}
	}
	switch text = bytes.TrimSuffix(text[1:], []byte("]")); text[0] {
	case '"':
		return Literal{Text, value}
	case 't', 'f':
		return Literal{Bool, string(text)}
	case 'n':
		return Literal{Kind: Null}
	}
	return Literal{Number, string(text)}
}

// IsStringKey says whether Kubernetes takes the name of a map's entry as it is written. An
// unquoted number is parsed and formatted again.
func IsStringKey(key *yaml.Node) bool {
	lit := LiteralOf(key)
	if lit.Kind != Number {
		return lit.Kind == Text
	}
	text, err := sigsyaml.YAMLToJSON([]byte("{" + key.Value + ": 0}"))
	return err == nil && string(text) == `{"`+key.Value+`":0}`
}

package manifest

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// literal is the JSON value of a scalar in Kubernetes. An apiserver, kubectl and the
// kubelet convert YAML to JSON first, in the schema of YAML 1.1, so that an unquoted
// 010 is 8, 1e3 is 1000 and yes is true everywhere; what a field accepts is decided
// on the JSON.
type literal struct {
	kind literalKind
	// text is a string's value, or a number or boolean as in JSON.
	text string
}

type literalKind int

const (
	literalText literalKind = iota
	literalNumber
	literalBool
	literalNull
	// literalNone is a value that JSON cannot express (.inf, !!int abc), or has a tag
	// that only some parsers know (!!binary, !mine): podd accepts none.
	literalNone
)

// jsonNumber marks a number of a JSON text, which is used as it is written: 1000.0 is
// an integer in YAML, where the conversion makes it 1000, and not in JSON. No number
// of a YAML text has this style.
const jsonNumber = yaml.LiteralStyle

// literalOf reads a scalar as upstream does (sigs.k8s.io/yaml, YAMLToJSON, which
// resolves as go.yaml.in/yaml/v2; TestScalarsAgreeWithUpstreamsDecoder).
func literalOf(n *yaml.Node) literal {
	tagged := n.Style&yaml.TaggedStyle != 0
	switch {
	case n.Kind != yaml.ScalarNode:
		return literal{kind: literalNone}
	case n.Style == jsonNumber && n.Tag != "!!str":
		return literal{literalNumber, n.Value}
	case !tagged && n.Style != 0:
		return literal{literalText, n.Value}
	case !tagged:
		lit, _ := resolvePlain(n.Value, true)
		return lit
	}
	return taggedLiteral(n.ShortTag(), n.Value)
}

// taggedLiteral is a scalar with an explicit tag.
func taggedLiteral(tag, value string) literal {
	lit, what := resolvePlain(value, tag == "!!timestamp")
	switch {
	case tag == "!!str":
		return literal{literalText, value}
	case tag == what:
		return lit
	case tag == "!!float" && what == "!!int":
		if i, err := strconv.ParseInt(lit.text, 10, 64); err == nil {
			return number(float64(i))
		}
	}
	return literal{kind: literalNone}
}

var (
	plainNulls = map[string]bool{"": true, "~": true, "null": true, "Null": true, "NULL": true}
	plainBools = map[string]bool{
		"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "true": true, "True": true, "TRUE": true, "on": true, "On": true, "ON": true,
		"n": false, "N": false, "no": false, "No": false, "NO": false, "false": false, "False": false, "FALSE": false, "off": false, "Off": false, "OFF": false,
	}
	plainInfinite = regexp.MustCompile(`^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
	plainFloat    = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
)

// resolvePlain resolves an unquoted scalar, and returns its tag. dates says whether
// one that looks like a date stays a string.
func resolvePlain(s string, dates bool) (literal, string) {
	text := literal{literalText, s}
	if plainNulls[s] {
		return literal{kind: literalNull}, "!!null"
	}
	switch c := s[0]; {
	case strings.IndexByte("yYnNtTfFoO", c) >= 0:
		if b, ok := plainBools[s]; ok {
			return literal{literalBool, strconv.FormatBool(b)}, "!!bool"
		}
	case c == '.', c == '+', c == '-', c >= '0' && c <= '9':
		if plainInfinite.MatchString(s) {
			return literal{kind: literalNone}, "!!float"
		}
		if c == '.' {
			if f, err := strconv.ParseFloat(s, 64); err == nil {
				return number(f), "!!float"
			}
			return text, "!!str"
		}
		if dates && isDate(s) {
			return text, "!!timestamp"
		}
		return resolveNumber(s)
	}
	return text, "!!str"
}

// resolveNumber resolves a scalar that begins with a sign or a digit.
func resolveNumber(s string) (literal, string) {
	digits := strings.ReplaceAll(s, "_", "")
	if i, ok := wholeNumber(digits); ok {
		return literal{literalNumber, i}, "!!int"
	}
	if plainFloat.MatchString(digits) {
		if f, err := strconv.ParseFloat(digits, 64); err == nil {
			return number(f), "!!float"
		}
	}
	// A sign after the prefix is not a number to any other parser.
	if bits, ok := strings.CutPrefix(digits, "0b"); ok {
		if i, err := strconv.ParseInt(bits, 2, 64); err == nil {
			return literal{literalNumber, strconv.FormatInt(i, 10)}, "!!int"
		}
	} else if bits, ok := strings.CutPrefix(digits, "-0b"); ok {
		if i, err := strconv.ParseInt("-"+bits, 2, 64); err == nil {
			return literal{literalNumber, strconv.FormatInt(i, 10)}, "!!int"
		}
	}
	return literal{literalText, s}, "!!str"
}

// wholeNumber parses an integer of up to 64 bits in the notations of YAML 1.1:
// decimal, 0x, 0b, and octal with a leading 0, as in file modes.
func wholeNumber(digits string) (decimal string, ok bool) {
	if i, err := strconv.ParseInt(digits, 0, 64); err == nil {
		return strconv.FormatInt(i, 10), true
	}
	if u, err := strconv.ParseUint(digits, 0, 64); err == nil {
		return strconv.FormatUint(u, 10), true
	}
	return "", false
}

// number is a floating-point number in JSON: 1e3 is 1000, and therefore an integer.
func number(f float64) literal {
	text, err := json.Marshal(f)
	if err != nil { // infinite
		return literal{kind: literalNone}
	}
	return literal{literalNumber, string(text)}
}

// dateFormats are those that go.yaml.in/yaml/v2 parses as a time.
var dateFormats = []string{"2006-1-2T15:4:5.999999999Z07:00", "2006-1-2t15:4:5.999999999Z07:00", "2006-1-2 15:4:5.999999999", "2006-1-2"}

func isDate(s string) bool {
	const year = 4
	if i := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }); i != year || s[i] != '-' {
		return false
	}
	for _, format := range dateFormats {
		if _, err := time.Parse(format, s); err == nil {
			return true
		}
	}
	return false
}

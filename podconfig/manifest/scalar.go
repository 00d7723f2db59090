package manifest

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// literal is the JSON value that a scalar is to Kubernetes. An apiserver, kubectl
// and the kubelet turn YAML into JSON first, in the schema of YAML 1.1, so that
// 010 is 8, 1e3 is 1000 and yes is true wherever they stand without quotes; what
// a field accepts is decided on the JSON.
type literal struct {
	kind literalKind
	// text is a text's value, or a number or boolean as JSON writes it.
	text string
}

type literalKind int

const (
	literalText literalKind = iota
	literalNumber
	literalBool
	literalNull
	// literalNone is a value that has no place in JSON (.inf, !!int abc), or a
	// tag that only some parsers know (!!binary, !mine): podd takes none.
	literalNone
)

// jsonNumber marks the number of a JSON text, which is taken as it is written:
// 1000.0 is an integer in YAML, where it becomes 1000 on its way, and none in
// JSON. No number of a YAML text has this style.
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

// taggedLiteral is a scalar whose tag says what it must be.
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

// resolvePlain resolves a text without quotes, and says with which tag. dates
// says whether one that looks like a date is to stay a text.
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

// resolveNumber resolves what begins with a sign or a digit.
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
	// A sign behind the prefix is no number to anybody else.
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

// wholeNumber reads an integer of up to 64 bits in the notations of YAML 1.1:
// decimal, 0x, 0b, and octal with a leading 0, which file modes are written in.
func wholeNumber(digits string) (decimal string, ok bool) {
	if i, err := strconv.ParseInt(digits, 0, 64); err == nil {
		return strconv.FormatInt(i, 10), true
	}
	if u, err := strconv.ParseUint(digits, 0, 64); err == nil {
		return strconv.FormatUint(u, 10), true
	}
	return "", false
}

// number is a floating-point number as JSON writes it: 1e3 is 1000 there, and
// with that an integer.
func number(f float64) literal {
	text, err := json.Marshal(f)
	if err != nil { // infinite
		return literal{kind: literalNone}
	}
	return literal{literalNumber, string(text)}
}

// dateFormats are those that go.yaml.in/yaml/v2 takes for a time.
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

package advice

import (
	"strconv"

	"go.yaml.in/yaml/v3"

	"podd/internal/strictyaml"
)

// Describe describes a value as a person sees it.
func Describe(n *yaml.Node) string {
	switch form := DescribeType(n); form {
	case "a number":
		return "the number " + n.Value
	case "a boolean":
		return "the boolean " + n.Value
	case "a string":
		return "the string " + strconv.Quote(Shorten(n.Value))
	default:
		return form
	}
}

// DescribeType is Describe without the value.
func DescribeType(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "null"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	}
	return "a string"
}

// Shorten keeps a message that shows a value readable.
func Shorten(s string) string {
	const most = 80
	return Cut(s, most)
}

// Cut omits the middle of a string with more characters than most.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	if r := []rune(s); len(r) > most {
		return string(r[:most/2]) + "…" + string(r[len(r)-most/2:])
	}
	return s
}

// oldBoolean says whether Kubernetes reads the value as a boolean although it is a
// string in YAML 1.2.
func oldBoolean(n *yaml.Node) bool {
	return n.Style == 0 && n.ShortTag() == "!!str" && strictyaml.LiteralOf(n).Kind == strictyaml.Bool
}

package advice

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"podd/internal/strictyaml"
)

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)$`)

// explainYAML converts a syntax error into a message with a remedy. For errors of its
// parser, the library's line is that of the surrounding construct, counted from 0; if
// the text itself shows a more likely line, that one is reported.
func explainYAML(err error, text []byte) Fault {
	m := yamlLine.FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(m[1])
	f := Fault{syntax: true, Line: line, Message: notYAML + m[2]}
	kind := yamlErrorOf(m[2])
	if kind.ofParser() || f.Line == 0 {
		f.Line++
	}
	f.Line = min(f.Line, 1+strictyaml.LineBreaks(bytes.TrimRight(text, "\r\n")))
	l := layoutOf(text)
	switch tab := l.tab(); {
	case tab > 0:
		f.Line = tab
		f.Message = "the line is indented with a tab, which YAML does not allow"
		f.Hint = "use spaces (two per level)"
	case l.misquoted != nil:
		f.Line, f.Message, f.Hint = l.misquoted.begin, notYAML+l.misquoted.message(), l.misquoted.hint()
	case kind == yamlNoAnchor:
		name := strings.Trim(strings.Fields(m[2])[2], "'")
		f.Line = l.lineOf("*" + name)
		f.Message = fmt.Sprintf("*%s is an alias, and no line above has its anchor &%s", Shorten(name), Shorten(name))
		f.Hint = "a string that begins with * must be quoted; an alias needs its anchor earlier in the same document"
		f.MaskedMessage, f.MaskedHint = "there is an alias, and no line above has its anchor", f.Hint
	case kind == yamlPanic:
		f.MaskedMessage = notYAML + strictyaml.ParserPanic
	default:
		f.explain(kind, text)
	}
	return f
}

// explain adds a remedy to the library's message.
func (f *Fault) explain(kind yamlError, text []byte) {
	switch tab := tabFrom(text, f.Line); {
	case kind == yamlTab, kind == yamlNoToken && tab == f.Line:
		kind, f.Line = yamlTab, tab
	case kind == yamlControl:
		f.Line = controlLine(text)
	}
	for _, t := range yamlTexts {
		if t.kind == kind {
			f.Message, f.Hint = cmp.Or(t.message, f.Message), t.hint
		}
	}
}

// tab is the first line with a tab in indentation that counts for YAML; 0 for none.
func (l *layout) tab() int {
	for _, c := range l.code {
		indent := c.text[:len(c.text)-len(strings.TrimLeft(c.text, " \t"))]
		if !c.flow && len(c.starts) > 0 && strings.IndexByte(indent, '\t') >= 0 {
			return c.number
		}
	}
	return 0
}

// tabFrom is the first line with a tab, from a line on; 0 for none.
func tabFrom(text []byte, first int) int {
	for number, line := range strictyaml.Lines(text) {
		if number >= first && strings.Contains(line, "\t") {
			return number
		}
	}
	return 0
}

// lineOf is the first line with that value, or 1.
func (l *layout) lineOf(value string) int {
	for _, c := range l.code {
		for _, at := range c.starts {
			if rest, found := strings.CutPrefix(c.text[at:], value); found && (rest == "" || strings.IndexByte(" \t,]}:", rest[0]) >= 0) {
				return c.number
			}
		}
	}
	return 1
}

func (q *quotation) message() string {
	if q.begin == q.end {
		return "the line continues after the end of a quoted string"
	}
	return fmt.Sprintf("a quote opens here, and the next one, on line %d, does not seem to close it", q.end)
}

func (q *quotation) hint() string {
	switch {
	case q.begin != q.end:
		return "close the quotes on the line where they open"
	case q.mark == '"':
		return `within double quotes write \" for a quote, or use single quotes around the string`
	}
	return "within single quotes write an apostrophe twice (it''s), or use double quotes around the string"
}

func controlLine(text []byte) int {
	n := 1
	for _, b := range text {
		switch {
		case b == '\n':
			n++
		case b < ' ' && b != '\t' && b != '\r', b == 0x7f:
			return n
		}
	}
	return 1
}

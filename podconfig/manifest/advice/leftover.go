package advice

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"podd/internal/strictyaml"
)

// Leftover is what other tools and editors leave in a text and what causes the other
// errors on its lines: conflict markers, placeholders of a template, invisible
// characters.
type Leftover struct {
	fault Fault
	// plain is its message without the text itself.
	plain string
	// lines are those of the text that have it, and whether it changes their syntax
	// there. If it does not, it is part of a value.
	lines map[int]bool
	// signs are how a message about such a value shows it.
	signs []string
	// breaksSyntax: it changes the syntax of some line, and so may break that of the whole
	// text.
	breaksSyntax bool
	reported     bool
}

// addLine records a line that has it; the first one is reported, preferably one whose
// syntax it changes.
func (l *Leftover) addLine(line int, breaks bool, message, hint string) {
	if l.fault.Line == 0 || breaks && !l.breaksSyntax {
		l.fault = Fault{Line: line, Message: message, Hint: hint}
		if l.plain != "" {
			l.fault.MaskedMessage, l.fault.MaskedHint = l.plain, hint
		}
	}
	l.lines[line] = breaks
	l.breaksSyntax = l.breaksSyntax || breaks
}

// causes says that a fault is only its consequence.
func (l *Leftover) causes(f Fault) bool {
	breaks, has := l.lines[f.Line]
	return f.syntax && l.breaksSyntax || breaks ||
		has && slices.ContainsFunc(l.signs, func(sign string) bool { return strings.Contains(f.Message, sign) })
}

// Leftovers finds those of a text, the most serious first.
func Leftovers(text []byte) []*Leftover {
	code := layoutOf(text).code
	return slices.DeleteFunc([]*Leftover{conflict(text), template(code), invisible(code)},
		func(l *Leftover) bool { return l.fault.Line == 0 })
}

// conflict finds git's conflict markers.
func conflict(text []byte) *Leftover {
	out := &Leftover{lines: map[int]bool{}, plain: "the file contains an unresolved merge conflict"}
	for number, line := range strictyaml.Lines(text) {
		if mark, _, _ := strings.Cut(line, " "); mark == "<<<<<<<" || mark == ">>>>>>>" || line == "=======" {
			out.addLine(number, true, fmt.Sprintf("%s: %q", out.plain, Shorten(line)),
				"keep one of the two sides, and remove the lines that begin with <<<<<<<, ======= and >>>>>>>")
		}
	}
	return out
}

// hole matches a placeholder of a template, up to its end if that is on the line.
var hole = regexp.MustCompile(`\{[{%].*?(?:[%}]\}|$)|%\{.*?(?:\}|$)`)

// template finds the placeholders of a template that was not rendered. One at the
// start of a value is a bracket in YAML; one within a string may be intended.
func template(code []codeLine) *Leftover {
	out := &Leftover{lines: map[int]bool{}, signs: []string{"{{", "{%", "%{"}, plain: "a template placeholder is left in the file"}
	for _, c := range code {
		if at := hole.FindStringIndex(c.text); at != nil {
			out.addLine(c.number, slices.Contains(c.starts, at[0]),
				out.plain+": "+Shorten(c.text[at[0]:at[1]]), fillHint)
		}
	}
	return out
}

const fillHint = "fill the template in first (with helm template or envsubst, for example), and give podd the result"

// isInvisible says that a rune looks like a space or like nothing, and is a letter in
// YAML.
func isInvisible(r rune) bool {
	return r > unicode.MaxASCII && (unicode.IsSpace(r) || unicode.Is(unicode.Zs, r) || unicode.Is(unicode.Cf, r))
}

// invisible finds the invisible characters.
func invisible(code []codeLine) *Leftover {
	out := &Leftover{lines: map[int]bool{}}
	for _, c := range code {
		at := strings.IndexFunc(c.text, isInvisible)
		if at < 0 {
			continue
		}
		r, _ := utf8.DecodeRuneInString(c.text[at:])
		if sign := string(r); !slices.Contains(out.signs, sign) {
			out.signs = append(out.signs, sign, strings.Trim(strconv.QuoteToASCII(sign), `"`))
		}
		looks := "which is invisible"
		if unicode.IsSpace(r) {
			looks = "which looks like a space"
		}
		out.addLine(c.number, breaksSyntax(c.text), fmt.Sprintf("the line contains %s, %s but which YAML treats as a letter", runeName(r), looks),
			"retype the line instead of copying it from a web page or a document")
	}
	return out
}

func runeName(r rune) string {
	names := map[rune]string{'\u00a0': "a no-break space", '\u202f': "a narrow no-break space", '\u3000': "an ideographic space",
		'\u200b': "a zero-width space", '\ufeff': "a byte order mark", '\u00ad': "a soft hyphen"}
	if name := names[r]; name != "" {
		return fmt.Sprintf("%s (U+%04X)", name, r)
	}
	return fmt.Sprintf("the character U+%04X", r)
}

// indicators match the positions where YAML expects a space, a dash or a colon.
var indicators = regexp.MustCompile(`^[ \t]*(?:- +)*([^\x00-\x7f])|[-:]([^\x00-\x7f])|([^\x00-\x7f]):`)

// breaksSyntax says that an invisible character is where it changes the field, entry
// or indentation that a person sees.
func breaksSyntax(line string) bool {
	for _, m := range indicators.FindAllStringSubmatch(line, -1) {
		if strings.IndexFunc(strings.Join(m[1:], ""), isInvisible) >= 0 {
			return true
		}
	}
	return false
}

// ReplaceCaused replaces faults that a leftover causes by one fault about the leftover.
func ReplaceCaused(found []*Leftover, faults []Fault) []Fault {
	var causes []Fault
	faults = slices.DeleteFunc(faults, func(f Fault) bool {
		i := slices.IndexFunc(found, func(l *Leftover) bool { return l.causes(f) })
		if i < 0 {
			return false
		}
		if cause := found[i]; !cause.reported {
			cause.reported = true
			causes = append(causes, cause.fault)
		}
		return true
	})
	return append(causes, faults...)
}

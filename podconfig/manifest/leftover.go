package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// leftover is what other tools and editors leave in a text and what is the
// cause of whatever else is wrong with its lines: marks of a merge conflict,
// holes of a template, blanks that are none.
type leftover struct {
	fault fault
	// plain is its message without what stands there.
	plain string
	// lines are those of the text that have it, and whether it makes something
	// else of what stands there. Where it does not, it is a part of a value.
	lines map[int]bool
	// signs are how a message shows it that is about such a value.
	signs []string
	// spoils: it does on some line, and so may break the syntax of the whole.
	spoils bool
	told   bool
}

// note takes up a line that has it; what stands first is told, but rather what
// spoils its line.
func (l *leftover) note(line int, spoils bool, message, hint string) {
	if l.fault.line == 0 || spoils && !l.spoils {
		l.fault = fault{line: line, message: message, hint: hint}
		if l.plain != "" {
			l.fault.plain, l.fault.plainHint = l.plain, hint
		}
	}
	l.lines[line] = spoils
	l.spoils = l.spoils || spoils
}

// causes says that a fault is nothing but its consequence.
func (l *leftover) causes(f fault) bool {
	spoils, has := l.lines[f.line]
	return f.syntax && l.spoils || spoils ||
		has && slices.ContainsFunc(l.signs, func(sign string) bool { return strings.Contains(f.message, sign) })
}

// leftovers finds those of a text, the gravest first.
func leftovers(text []byte) []*leftover {
	code := layoutOf(text).code
	return slices.DeleteFunc([]*leftover{conflict(text), template(code), invisible(code)},
		func(l *leftover) bool { return l.fault.line == 0 })
}

// conflict finds the lines with which git marks both sides of a conflict.
func conflict(text []byte) *leftover {
	out := &leftover{lines: map[int]bool{}, plain: "the file contains an unresolved merge conflict"}
	for number, line := range numbered(text) {
		if mark, _, _ := strings.Cut(line, " "); mark == "<<<<<<<" || mark == ">>>>>>>" || line == "=======" {
			out.note(number, true, fmt.Sprintf("%s: %q", out.plain, shorten(line)),
				"keep one of the two sides, and remove the lines that begin with <<<<<<<, ======= and >>>>>>>")
		}
	}
	return out
}

// hole is a placeholder of a template, up to its end where the line has it.
var hole = regexp.MustCompile(`\{[{%].*?(?:[%}]\}|$)`)

// template finds the holes of a template that nobody has filled in. One that
// begins a value is a bracket to YAML; one within a text may be meant.
func template(code []codeLine) *leftover {
	out := &leftover{lines: map[int]bool{}, signs: []string{"{{", "{%"}, plain: "a template placeholder is left in the file"}
	for _, c := range code {
		if at := hole.FindStringIndex(c.text); at != nil {
			out.note(c.number, slices.Contains(c.starts, at[0]),
				out.plain+": "+shorten(c.text[at[0]:at[1]]), fillHint)
		}
	}
	return out
}

const fillHint = "fill the template in first (with helm template or envsubst, for example), and give podd the result"

// isInvisible says that a person takes a rune for a blank or for nothing, and
// YAML for a letter.
func isInvisible(r rune) bool {
	return r > unicode.MaxASCII && (unicode.IsSpace(r) || unicode.Is(unicode.Zs, r) || unicode.Is(unicode.Cf, r))
}

// invisible finds the characters of which nobody can see that they are there.
func invisible(code []codeLine) *leftover {
	out := &leftover{lines: map[int]bool{}}
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
		out.note(c.number, spoilsSyntax(c.text), fmt.Sprintf("the line contains %s, %s but which YAML treats as a letter", runeName(r), looks),
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

// indicators are where YAML wants a space, a dash or a colon.
var indicators = regexp.MustCompile(`^[ \t]*(?:- +)*([^\x00-\x7f])|[-:]([^\x00-\x7f])|([^\x00-\x7f]):`)

// spoilsSyntax says that an invisible character stands where it makes another
// field, entry or indentation of what a person sees.
func spoilsSyntax(line string) bool {
	for _, m := range indicators.FindAllStringSubmatch(line, -1) {
		if strings.IndexFunc(strings.Join(m[1:], ""), isInvisible) >= 0 {
			return true
		}
	}
	return false
}

// retell puts a leftover of the text in the place of those faults that are
// its consequence, and tells it once.
func retell(found []*leftover, faults []fault) []fault {
	var causes []fault
	faults = slices.DeleteFunc(faults, func(f fault) bool {
		i := slices.IndexFunc(found, func(l *leftover) bool { return l.causes(f) })
		if i < 0 {
			return false
		}
		if cause := found[i]; !cause.told {
			cause.told = true
			causes = append(causes, cause.fault)
		}
		return true
	})
	return append(causes, faults...)
}

package advice

import (
	"regexp"
	"strings"

	"podd/internal/strictyaml"
)

// layout is the structure of a text, as far as it can be determined if that is not
// valid YAML: which of its lines are fields and values, and which are inside a quoted
// or a block scalar (| or >). It is only for messages; the content of a manifest is
// up to the parser.
type layout struct {
	// code are the lines that are neither blank nor a comment, nor the inside of
	// a block or of a quoted text.
	code []codeLine
	// misquoted is the first quoted scalar whose line continues after its end; nil for
	// none.
	misquoted *quotation
}

// codeLine is a line without its comment.
type codeLine struct {
	// number is the line's number in the text, from 1.
	number int
	text   string
	// starts are the offsets in text at which an entry, a name or a value begins.
	starts []int
	// flow: the line begins within brackets.
	flow bool
}

// quotation is a quoted scalar: its quote, and the lines where it begins and ends.
type quotation struct {
	mark       byte
	begin, end int
}

// layoutOf scans a text line by line, in linear time.
func layoutOf(text []byte) *layout {
	s := &scanner{out: &layout{}, block: noBlock}
	for s.number, s.text = range strictyaml.Lines(text) {
		s.line()
	}
	return s.out
}

// scanner is the current line and what is open at its start.
type scanner struct {
	out    *layout
	number int
	text   string
	// block is the column that the lines of the open block are indented beyond,
	// or noBlock.
	block int
	quote *quotation // nil for none
	flow  int        // brackets
}

const noBlock = -2

func (s *scanner) line() {
	if s.block != noBlock {
		indent := len(s.text) - len(strings.TrimLeft(s.text, " "))
		if indent > s.block || strings.Trim(s.text, " \t") == "" {
			return
		}
		s.block = noBlock
	}
	line := codeLine{number: s.number, flow: s.flow > 0}
	at := 0
	if s.quote != nil {
		if at = s.endQuote(0); at < 0 {
			return
		}
	}
	line.text = s.text[:s.values(at, &line)]
	if strings.Trim(line.text, " \t") != "" {
		s.out.code = append(s.out.code, line)
	}
}

// blockHeader matches what follows a field's name where a block scalar begins.
var blockHeader = regexp.MustCompile(`^[|>][-+0-9]{0,2}[ \t]*(#.*)?$`)

// values records where the values of the line begin, from an offset on, and what
// stays open after it. It returns the offset of the line's comment, or of its end.
func (s *scanner) values(from int, line *codeLine) int {
	fresh := from == 0 // a value may begin here
	column := -1       // of the entry or field that the line begins with
	for i := from; i < len(s.text); i++ {
		c := s.text[i]
		switch {
		case c == ' ' || c == '\t':
		case c == '#' && (i == 0 || isBlank(s.text[i-1])):
			return i
		case c == ':' && (s.blankAfter(i) || s.flow > 0), c == ',' && s.flow > 0:
			fresh = true
		case (c == ']' || c == '}') && s.flow > 0:
			s.flow--
			fresh = false
		case !fresh:
		case (c == '-' || c == '?') && s.flow == 0 && s.blankAfter(i):
			line.starts, column = append(line.starts, i), i
		case s.flow == 0 && blockHeader.MatchString(s.text[i:]):
			s.block = column
			return len(s.text)
		default:
			line.starts = append(line.starts, i)
			if len(line.starts) == 1 || column == line.starts[len(line.starts)-2] {
				column = i
			}
			if i, fresh = s.value(i); i < 0 {
				return len(s.text)
			}
		}
	}
	return len(s.text)
}

// value scans the value at an offset and returns the offset of its last byte, as far
// as that is known, and whether another may follow; -1 if the line ends within it.
func (s *scanner) value(i int) (last int, fresh bool) {
	switch c := s.text[i]; c {
	case '[', '{':
		s.flow++
		return i, true
	case '&', '!': // an anchor or a tag; the value itself comes after it
		end := strings.IndexAny(s.text[i:], " \t")
		if end < 0 {
			return len(s.text), true
		}
		return i + end, true
	case '"', '\'':
		s.quote = &quotation{mark: c, begin: s.number}
		return s.endQuote(i+1) - 1, false
	}
	return i, false
}

// endQuote searches for the end of the open quotation, from an offset on, and returns
// the offset after it; negative if it is not on the line.
func (s *scanner) endQuote(from int) int {
	end := closing(s.text, from, s.quote.mark)
	if end < 0 {
		return -1
	}
	q := s.quote
	s.quote = nil
	q.end = s.number
	after := strings.TrimLeft(s.text[end+1:], " \t")
	fine := after == "" || after[0] == ':' || after[0] == '#' && isBlank(s.text[end+1]) ||
		s.flow > 0 && strings.IndexByte(",]}", after[0]) >= 0
	if !fine && s.out.misquoted == nil {
		s.out.misquoted = q
	}
	return end + 1
}

// closing is the offset of the closing quote, from an offset within the scalar on;
// negative if it is not on the line.
func closing(text string, from int, mark byte) int {
	for i := from; i < len(text); i++ {
		switch {
		case mark == '"' && text[i] == '\\', mark == '\'' && strings.HasPrefix(text[i:], "''"):
			i++
		case text[i] == mark:
			return i
		}
	}
	return -1
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

func (s *scanner) blankAfter(i int) bool { return i+1 == len(s.text) || isBlank(s.text[i+1]) }

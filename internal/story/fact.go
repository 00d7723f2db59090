package story

import (
	"fmt"
	"strconv"
	"strings"
)

// Fact is one thing that a script says about a pod or a container. The forms are
//
//	POD FACT…                     of a pod: shop phase=Failed
//	POD/CONTAINER FACT…           of a container: shop/web running restarts>0
//	… and POD/CONTAINER FACT…     of another, too
//
// where a FACT is key=value, a bound on a number (key<3, key>0), or a key alone, which
// means key=true. The player decides which keys there are.
type Fact struct {
	// Subject is the pod, or pod/container.
	Subject string
	// Key is the question, and Want the answer; Op is "=", "<" or ">".
	Key, Op, Want string
}

// ParseFacts parses the facts of an expect or a wait.
func ParseFacts(words []string) ([]Fact, error) {
	var all []Fact
	of, said := "", true
	for _, word := range append(words, "and") {
		switch {
		case word == "and" && !said || word == "and" && of == "":
			return nil, fmt.Errorf("%q is not of the form POD[/CONTAINER] FACT… [and …]", strings.Join(words, " "))
		case word == "and":
			of = ""
		case of == "":
			of, said = word, false
		default:
			f := Fact{of, word, "=", "true"}
			if i := strings.IndexAny(word, "=<>"); i >= 0 {
				f.Key, f.Op, f.Want = word[:i], word[i:i+1], word[i+1:]
			}
			if _, err := strconv.Atoi(f.Want); f.Op != "=" && err != nil {
				return nil, fmt.Errorf("%q: %q is no number", word, f.Want)
			}
			all, said = append(all, f), true
		}
	}
	return all, nil
}

// Holds says whether the fact is true for that answer. For an answer of several parts
// (terminated:Error:3, False ContainersNotReady), Want may be just the first.
func (f Fact) Holds(answer string) bool {
	if f.Op == "=" {
		return answer == f.Want || strings.HasPrefix(answer, f.Want+":") || strings.HasPrefix(answer, f.Want+" ")
	}
	n, err := strconv.Atoi(answer)
	bound, err2 := strconv.Atoi(f.Want)
	return err == nil && err2 == nil && (f.Op == "<" && n < bound || f.Op == ">" && n > bound)
}

// Mismatch returns a message with the fact and the actual answer.
func (f Fact) Mismatch(answer string) string {
	want := map[string]string{"=": "", "<": "less than ", ">": "more than "}[f.Op] + f.Want
	return fmt.Sprintf("%s of %s: got %s, want %s", f.Key, f.Subject, answer, want)
}

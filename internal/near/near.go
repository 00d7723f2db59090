package near

import (
	"slices"
	"strings"
)

// Name returns the candidate that written is most likely a slip of, or "" when
// none is close, or written is one of them: case aside, a third of the letters
// may differ. Of equally close ones it is the first.
func Name(written string, candidates []string) string {
	if slices.Contains(candidates, written) {
		return "" // whatever is wrong with it, it is no slip
	}
	best, least := "", len(written)/3+1
	for _, c := range candidates {
		if strings.EqualFold(c, written) {
			return c
		}
		// A plural or a missing letter or two is the common slip; a short name
		// that merely has the same length is not.
		if d := Distance(strings.ToLower(written), strings.ToLower(c)); d < least || d == least && best == "" && d <= len(c)/3 {
			best, least = c, d
		}
	}
	return best
}

// Distance is Levenshtein's, in bytes, with a swap of neighbours counted once.
// Texts longer than any name are not compared: theirs is the longer's length,
// which nobody takes for near.
func Distance(a, b string) int {
	const longest = 253 // an object's name
	if len(a) > longest || len(b) > longest {
		return max(len(a), len(b))
	}
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}

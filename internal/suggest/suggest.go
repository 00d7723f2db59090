package suggest

import (
	"slices"
	"strings"
)

// Closest returns the candidate that written most likely misspells. Apart from case, a third
// of the letters may differ. Among equally close candidates the first wins. It returns ""
// if none is close or written is itself a candidate.
func Closest(written string, candidates []string) string {
	if slices.Contains(candidates, written) {
		return "" // whatever is wrong with it, the spelling is right
	}
	best, least := "", len(written)/3+1
	for _, c := range candidates {
		if strings.EqualFold(c, written) {
			return c
		}
		// A plural or a missing letter or two is a common mistake; a short name
		// that merely has the same length is not.
		if d := Distance(strings.ToLower(written), strings.ToLower(c)); d < least || d == least && best == "" && d <= len(c)/3 {
			best, least = c, d
		}
	}
	return best
}

// Distance returns the Levenshtein distance in bytes, with a transposition counted once. It
// does not compare strings longer than any name: it returns the length of the longer one,
// which is never close.
func Distance(a, b string) int {
	const longest = 253 // bytes of an object's name
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

package perftest

import (
	"fmt"
	"slices"
	"time"
)

// Result is the time that each turn took.
type Result struct {
	Subject, Control []time.Duration
}

// Compare measures the subject and its control n times, alternating, so that other load on
// the machine affects both. It stops early once the remaining turns cannot raise the ratio
// above most any more. If the ratio is above most after n turns, it continues up to
// extendFactor times n turns, and all of them count: disturbances average out, a regression stays.
func Compare(n int, most float64, subject, control func() time.Duration) Result {
	var r Result
	turns := n
	for i := 0; i < turns && r.turnsWithin(most) <= turns/2; i++ {
		if i%2 == 0 { // neither always goes first
			r.Subject = append(r.Subject, subject())
			r.Control = append(r.Control, control())
		} else {
			r.Control = append(r.Control, control())
			r.Subject = append(r.Subject, subject())
		}
		if i == n-1 && r.Ratio() > most {
			turns = extendFactor * n
		}
	}
	return r
}

// extendFactor is the factor for the number of turns when the ratio is above its bar.
const extendFactor = 4

// turnsWithin counts the turns with a ratio of at most bar.
func (r Result) turnsWithin(bar float64) (turns int) {
	for _, ratio := range r.ratios() {
		if ratio <= bar {
			turns++
		}
	}
	return turns
}

// Ratio returns the median over the turns of subject to control, so that a single disturbed
// turn does not matter. It is 0 without turns.
func (r Result) Ratio() float64 {
	all := r.ratios()
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	if mid := len(all) / 2; len(all)%2 == 0 {
		return (all[mid-1] + all[mid]) / 2
	}
	return all[len(all)/2]
}

func (r Result) ratios() (all []float64) {
	for i := range min(len(r.Subject), len(r.Control)) {
		all = append(all, float64(r.Subject[i])/float64(max(r.Control[i], 1)))
	}
	return all
}

func (r Result) String() string {
	return fmt.Sprintf("%.2f times the control: %v against %v", r.Ratio(), r.Subject, r.Control)
}

package turns

import (
	"fmt"
	"slices"
	"time"
)

// Result has what each turn took.
type Result struct {
	Subject, Control []time.Duration
}

// Take measures the subject and its control n times, one after the other, so that
// a neighbour who comes or goes meets both. Where the ratio is above most then, it
// takes further turns, longer times n of them in all, and they all count: what a
// neighbour did to one of the two evens out, what is slower stays slower.
func Take(n int, most float64, subject, control func() time.Duration) Result {
	var r Result
	for i := 0; i < n || i < longer*n && (i > n || r.Ratio() > most); i++ {
		if i%2 == 0 { // who goes first has no advantage over all turns
			r.Subject = append(r.Subject, subject())
			r.Control = append(r.Control, control())
		} else {
			r.Control = append(r.Control, control())
			r.Subject = append(r.Subject, subject())
		}
	}
	return r
}

// longer is how many times as many turns decide about a ratio above its bar.
const longer = 4

// Ratio is the median of the subject's shares of the control in the same turn. One
// turn that was disturbed decides nothing. It is 0 when there was no turn.
func (r Result) Ratio() float64 {
	var all []float64
	for i := range min(len(r.Subject), len(r.Control)) {
		all = append(all, float64(r.Subject[i])/float64(max(r.Control[i], 1)))
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	if mid := len(all) / 2; len(all)%2 == 0 {
		return (all[mid-1] + all[mid]) / 2
	}
	return all[len(all)/2]
}

func (r Result) String() string {
	return fmt.Sprintf("%.2f times the control: %v against %v", r.Ratio(), r.Subject, r.Control)
}

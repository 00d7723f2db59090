package plan

import (
	"cmp"
	"slices"

	"podd/internal/pod"
)

// Candidate is a desired pod that has no worker.
type Candidate struct {
	Desired *pod.Desired
	// Runs says that something of it runs, Ended that it has completed or was
	// terminated by the node: it was admitted once, perhaps by an earlier podd.
	Runs, Ended bool
	// Rejected is the node's last verdict; nil before the first.
	Rejected *pod.Verdict
}

// Admission is what a candidate's worker depends on.
type Admission int

const (
	// AskNode: the node decides.
	AskNode Admission = iota
	// Admitted: it was admitted once.
	Admitted
	// Rejected: the node's last verdict stands.
	Rejected
)

// Admission says whether the node decides now about a candidate. changed says that
// something on the node has ended or changed since the admission of rejected pods was
// last retried.
//
// What runs already, or has ended, is never rejected. The admission of a rejected pod
// that is not ReplacedByController is retried when something changed, and so is that of
// one that only waits for the pods that it preempts.
func (c *Candidate) Admission(changed bool) Admission {
	switch {
	case c.Runs || c.Ended:
		return Admitted
	case c.Rejected == nil:
		return AskNode
	case !changed || c.Rejected.Reason != "" && ReplacedByController(c.Desired):
		return Rejected
	}
	return AskNode
}

// ReplacedByController says that a rejected or ended pod stays so, because its controller
// creates another. A pod from a file or an HTTP source has no controller: its admission
// is retried, and it runs once more on request.
func ReplacedByController(d *pod.Desired) bool { return d.Source == pod.SourceAPIServer }

// StartOrder sorts candidates in the order in which they are admitted: what runs
// already, which has its ports whatever the order of the manifests; then those that
// others were preempted for; then the others. Among these the one that its source
// noticed first comes first.
func StartOrder(candidates []Candidate) {
	slices.SortStableFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(a.rank(), b.rank()),
			a.Desired.Seen.Compare(b.Desired.Seen),
			cmp.Compare(a.Desired.Name(), b.Desired.Name()),
		)
	})
}

func (c *Candidate) rank() int {
	switch {
	case c.Runs:
		return 0
	case c.Rejected != nil && len(c.Rejected.Preempt) > 0:
		return 1
	}
	return 2
}

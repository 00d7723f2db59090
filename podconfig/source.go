package podconfig

import (
	"context"

	"podd/internal/pod"
)

// Snapshot is all that a source wants at one moment.
type Snapshot struct {
	// Pods is the source's whole set, in an order that is stable from snapshot
	// to snapshot. A pod whose manifest did not change must have the same UID
	// again, best the same pointer. Read-only once sent.
	Pods []*pod.Desired
	// Objects is the source's whole set of ConfigMaps, Secrets, volumes and claims. One that did not
	// change must be the same pointer again. Read-only once sent.
	Objects []*pod.Object
	// Problems is the whole list of what is wrong at present.
	Problems []pod.Problem
	// Incomplete says that the source cannot know its set at the moment (a
	// server that was never reached, a directory that cannot be read): Pods and
	// Objects are ignored, what the source wanted before stays, and it is not ready. Only
	// the problems are taken.
	Incomplete bool
	// Provisional says that Pods are what the source had at an earlier contact, which was
	// stored, while it cannot know its set: they run, the source is not ready, and nothing
	// ends because it is not among them. No Snapshot that is not Incomplete precedes one.
	Provisional bool
}

// Source is one way to learn which pods to run. Run blocks, sends a Snapshot
// whenever something changed, the first as soon as it knows its set, and
// returns ctx's error once ctx is done; any other return is a failure, after
// which it is called again. On failure to read it sends nothing, or what it
// knew: stale is better than partial.
type Source interface {
	Name() pod.Source
	Run(ctx context.Context, out chan<- Snapshot) error
}

package podconfig

import (
	"context"

	"podd/internal/pod"
)

// Snapshot is everything that a source wants at one moment.
type Snapshot struct {
	// Pods is the source's whole set, in an order that is stable from snapshot to snapshot. If
	// a pod's manifest did not change, the pod must have the same UID again, preferably the
	// same pointer. Read-only once sent.
	Pods []*pod.Desired
	// Objects is the source's whole set of ConfigMaps, Secrets, volumes and claims. An
	// unchanged object must be the same pointer again. Read-only once sent.
	Objects []*pod.Object
	// Problems is the whole list of current problems.
	Problems []pod.Problem
	// Incomplete says that the source cannot know its set at the moment (a server that was
	// never reached, a directory that cannot be read). PodConfig then takes only the problems
	// and ignores Pods and Objects. What the source wanted before stays, and the source is not
	// ready.
	Incomplete bool
	// Provisional says that the source cannot know its set now and that Pods are its stored set
	// from an earlier contact. The pods run, the source is not ready, and nothing ends because
	// it is not among them. Only Incomplete and other Provisional Snapshots may precede one.
	Provisional bool
}

// Source is one way to learn which pods to run. Run blocks. It sends a Snapshot whenever
// something has changed, the first as soon as it knows its set, and returns ctx's error once
// ctx is done. Any other return is a failure, and Run is called again. If the source cannot
// read its set, it sends nothing or the last known set: stale is better than partial.
type Source interface {
	Name() pod.Source
	Run(ctx context.Context, out chan<- Snapshot) error
}

package images

import (
	"context"
	"fmt"
	"time"

	"podd/internal/bytesize"
	"podd/internal/pod"
)

const (
	// progressAfter is the time after which a pull's progress is reported, progressEvery
	// the time between reports: the report goes into the pod's status.
	progressAfter = 10 * time.Second
	progressEvery = 30 * time.Second
	// progressTimeout bounds the query of the progress.
	progressTimeout = time.Second
)

// pullProgress is the data for the progress of a pull, started or queued.
type pullProgress struct {
	running bool
	since   time.Time
	// active is the number of pulls in progress, fromRegistry the number of those from its
	// registry.
	active, fromRegistry int
	registry             string
}

func (l *Puller) pullProgressLocked(o *pullOp) pullProgress {
	b := pullProgress{running: !o.started.IsZero(), since: o.requestedAt, active: l.total, fromRegistry: l.totalByRegistry[o.registry], registry: o.registry}
	if b.running {
		b.since = o.started
	}
	return b
}

// withProgress adds a pull's progress to the state of a first pull, and the time for the
// next update. The state of a repeated pull says why the previous one failed.
func (l *Puller) withProgress(ctx context.Context, st pod.ImageState, image string, b pullProgress) pod.ImageState {
	if st.Reason != pod.ReasonContainerCreating {
		return st
	}
	took := time.Since(b.since)
	if took < progressAfter {
		st.RetryAt = b.since.Add(progressAfter)
		return st
	}
	st.RetryAt = time.Now().Add(progressEvery)
	if !b.running {
		st.Message = fmt.Sprintf("Waiting to pull image %q: %d pulls are under way, %d of them from %s", image, b.active, b.fromRegistry, b.registry)
		return st
	}
	st.Message = fmt.Sprintf("Pulling image %q for %v", image, took.Truncate(time.Second))
	if l.cfg.Progress == nil {
		return st
	}
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	received, total, err := l.cfg.Progress(ctx)
	if err != nil || total == 0 {
		return st
	}
	of := ""
	if b.active > 1 {
		of = fmt.Sprintf(" (all %d pulls)", b.active)
	}
	st.Message += fmt.Sprintf(": %s of %s%s", bytesize.Format(received), bytesize.Format(total), of)
	return st
}

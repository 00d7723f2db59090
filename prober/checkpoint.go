package prober

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"podd/internal/atomicfile"
	"podd/internal/checkpoint"
	"podd/internal/pod"
	"podd/internal/wake"
)

const (
	// checkpointDelay collects changes at about the same time into one write.
	checkpointDelay = 300 * time.Millisecond
	// checkpointTTL is how long the saved results of a pod that has not reappeared are kept
	// if nobody says which pods are gone (Retain): by then they are stale.
	checkpointTTL = time.Hour
	// maxCheckpointBytes bounds one pod's file, in bytes; usual ones have a few hundred.
	maxCheckpointBytes = 256 << 10
)

// resultCheckpoint saves last results across a restart of podd, one file per pod. Losing one
// costs a pod its Ready condition until the next probes, nothing else.
type resultCheckpoint struct {
	files checkpoint.Dir[podCheckpoint] // without a path for none
	log   *slog.Logger

	poke wake.Signal // changes to write

	writeFailed bool // the last write failed; only run uses it

	mu       sync.Mutex // guards what follows
	restored map[pod.UID]pod.ProbeResults
	dirty    map[pod.UID]struct{}
}

// podCheckpoint is the content of a pod's file, by the names of its containers.
type podCheckpoint map[string]containerCheckpoint

// containerCheckpoint is one container in a file.
type containerCheckpoint struct {
	ID      string `json:"id"`
	Startup string `json:"startup,omitempty"`
	Ready   string `json:"ready,omitempty"`
	Live    string `json:"live,omitempty"`
}

var resultNames = map[pod.ProbeResult]string{pod.ProbeSucceeded: "succeeded", pod.ProbeFailed: "failed"}

func parseResult(text string) pod.ProbeResult {
	for r, w := range resultNames {
		if w == text {
			return r
		}
	}
	return pod.ProbeUnknown
}

// loadCheckpoint reads the existing files. What cannot be read is logged and skipped.
func loadCheckpoint(dir string, log *slog.Logger) *resultCheckpoint {
	k := &resultCheckpoint{log: log, files: checkpoint.Dir[podCheckpoint]{Path: dir, Naming: checkpoint.Escaped, Format: checkpoint.Format{MaxBytes: maxCheckpointBytes}},
		poke: wake.New(), restored: make(map[pod.UID]pod.ProbeResults), dirty: make(map[pod.UID]struct{})}
	if dir == "" {
		return k
	}
	if err := atomicfile.MkdirPrivate(dir); err != nil {
		log.Warn("cannot save probe results: a restart of podd forgets them", "error", err)
		k.files.Path = ""
		return k
	}
	for _, d := range k.files.ReadAll(func(uid string, f podCheckpoint) { k.restored[pod.UID(uid)] = f.results() }) {
		log.Warn("cannot read the saved probe results of a pod", "file", d.Path, "error", d.Err)
		if uid, ok := k.files.Naming.Key(filepath.Base(d.Path)); ok {
			k.restored[pod.UID(uid)] = nil // the file goes when its time is over
		}
	}
	return k
}

func (f podCheckpoint) results() pod.ProbeResults {
	results := make(pod.ProbeResults, len(f))
	for name, c := range f {
		results[name] = pod.Probes{ContainerID: c.ID, Startup: parseResult(c.Startup), Ready: parseResult(c.Ready), Live: parseResult(c.Live)}
	}
	return results
}

// takeRestored returns, once, what an earlier podd saved of exactly that container; after
// that, newer results exist.
func (k *resultCheckpoint) takeRestored(uid pod.UID, name, containerID string) pod.Probes {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.restored[uid].ForContainer(name, containerID)
	delete(k.restored[uid], name)
	return r
}

// markDirty schedules a pod's results to be written, or its file to be removed.
func (k *resultCheckpoint) markDirty(uid pod.UID) {
	if k.files.Path == "" {
		return
	}
	k.mu.Lock()
	k.dirty[uid] = struct{}{}
	k.mu.Unlock()
	k.poke.Notify()
}

// remove removes a pod's file at once. If podd were killed before the next write, it would
// leave the file to the next podd, which knows that the pod is gone only once all sources have
// spoken. A write in progress may recreate the file, and the next write removes it.
func (k *resultCheckpoint) remove(uid pod.UID) {
	if k.files.Path == "" {
		return
	}
	_ = k.files.Remove(string(uid)) // the next write repeats it and reports an error
	k.markDirty(uid)
}

// run writes until ctx ends, and then once more.
func (k *resultCheckpoint) run(ctx context.Context, results func(pod.UID) pod.ProbeResults) {
	expired := time.NewTimer(checkpointTTL)
	defer expired.Stop()
	for {
		select {
		case <-ctx.Done():
			k.write(results)
			return
		case <-expired.C:
			k.retain(nil)
			continue
		case <-k.poke:
		}
		select {
		case <-ctx.Done():
		case <-time.After(checkpointDelay):
		}
		k.write(results)
	}
}

// retain removes the files of all pods except those to keep; nil keeps none. The file of a
// pod that has targets is written anew.
func (k *resultCheckpoint) retain(keep map[pod.UID]bool) {
	if k.files.Path == "" {
		return
	}
	k.mu.Lock()
	for uid := range k.restored {
		if !keep[uid] {
			k.dirty[uid] = struct{}{}
			delete(k.restored, uid)
		}
	}
	k.mu.Unlock()
	k.poke.Notify()
}

func (k *resultCheckpoint) write(results func(pod.UID) pod.ProbeResults) {
	k.mu.Lock()
	dirty := k.dirty
	k.dirty = make(map[pod.UID]struct{})
	k.mu.Unlock()
	var wrong error
	for uid := range dirty {
		if err := k.writePod(uid, results(uid)); err != nil {
			wrong = errors.Join(wrong, err)
		}
	}
	if (wrong != nil) != k.writeFailed { // said once, not with each change
		k.writeFailed = wrong != nil
		if k.writeFailed {
			k.log.Warn("cannot save probe results: a restart of podd forgets them", "error", wrong)
		} else {
			k.log.Info("probe results are saved again")
		}
	}
}

func (k *resultCheckpoint) writePod(uid pod.UID, results pod.ProbeResults) error {
	if results == nil {
		return k.files.Remove(string(uid))
	}
	file := make(podCheckpoint, len(results))
	for name, r := range results {
		file[name] = containerCheckpoint{ID: r.ContainerID, Startup: resultNames[r.Startup], Ready: resultNames[r.Ready], Live: resultNames[r.Live]}
	}
	return k.files.File(string(uid)).Write(file)
}

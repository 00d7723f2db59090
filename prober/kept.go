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
	// keepAfter collects changes at about the same time into one write.
	keepAfter = 300 * time.Millisecond
	// keepFor is how long the saved results of a pod that has not reappeared are kept if
	// nobody says which pods are gone (Retain): by then they are stale.
	keepFor = time.Hour
	// maxKept bounds one pod's file, in bytes; usual ones have a few hundred.
	maxKept = 256 << 10
)

// kept saves last results across a restart of podd, one file per pod. Losing one
// costs a pod its Ready condition until the next probes, nothing else.
type kept struct {
	files checkpoint.Dir[keptFile] // without a path for none
	log   *slog.Logger

	poke wake.Signal // changes to write

	failing bool // the last write; run's own

	mu    sync.Mutex // guards what follows
	old   map[pod.UID]pod.ProbeResults
	dirty map[pod.UID]struct{}
}

// keptFile is the content of a pod's file, by the names of its containers.
type keptFile map[string]keptContainer

// keptContainer is one container in a file.
type keptContainer struct {
	ID      string `json:"id"`
	Startup string `json:"startup,omitempty"`
	Ready   string `json:"ready,omitempty"`
	Live    string `json:"live,omitempty"`
}

var words = map[pod.ProbeResult]string{pod.ProbeSucceeded: "succeeded", pod.ProbeFailed: "failed"}

func word(text string) pod.ProbeResult {
	for r, w := range words {
		if w == text {
			return r
		}
	}
	return pod.ProbeUnknown
}

// loadKept reads the existing files. What cannot be read is logged and skipped.
func loadKept(dir string, log *slog.Logger) *kept {
	k := &kept{log: log, files: checkpoint.Dir[keptFile]{Path: dir, Naming: checkpoint.Escaped, Format: checkpoint.Format{MaxBytes: maxKept}},
		poke: wake.New(), old: make(map[pod.UID]pod.ProbeResults), dirty: make(map[pod.UID]struct{})}
	if dir == "" {
		return k
	}
	if err := atomicfile.MkdirPrivate(dir); err != nil {
		log.Warn("cannot save probe results: a restart of podd forgets them", "error", err)
		k.files.Path = ""
		return k
	}
	for _, d := range k.files.All(func(uid string, f keptFile) { k.old[pod.UID(uid)] = f.results() }) {
		log.Warn("cannot read the saved probe results of a pod", "file", d.Path, "error", d.Err)
		if uid, ok := k.files.Naming.Key(filepath.Base(d.Path)); ok {
			k.old[pod.UID(uid)] = nil // the file goes when its time is over
		}
	}
	return k
}

func (f keptFile) results() pod.ProbeResults {
	results := make(pod.ProbeResults, len(f))
	for name, c := range f {
		results[name] = pod.Probes{ContainerID: c.ID, Startup: word(c.Startup), Ready: word(c.Ready), Live: word(c.Live)}
	}
	return results
}

// take returns, once, what an earlier podd saved of exactly that container; after that,
// newer results exist.
func (k *kept) take(uid pod.UID, name, containerID string) pod.Probes {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.old[uid].Of(name, containerID)
	delete(k.old[uid], name)
	return r
}

// changed schedules a pod's results to be written, or its file to be removed.
func (k *kept) changed(uid pod.UID) {
	if k.files.Path == "" {
		return
	}
	k.mu.Lock()
	k.dirty[uid] = struct{}{}
	k.mu.Unlock()
	k.poke.Notify()
}

// forgotten removes a pod's file at once. If podd were killed before the next write, it would
// leave the file to the next podd, which knows that the pod is gone only once all sources have
// spoken. A write in progress may recreate the file, and the next write removes it.
func (k *kept) forgotten(uid pod.UID) {
	if k.files.Path == "" {
		return
	}
	_ = k.files.Remove(string(uid)) // the next write repeats it and reports an error
	k.changed(uid)
}

// run writes until ctx ends, and then once more.
func (k *kept) run(ctx context.Context, results func(pod.UID) pod.ProbeResults) {
	expired := time.NewTimer(keepFor)
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
		case <-time.After(keepAfter):
		}
		k.write(results)
	}
}

// retain removes the files of all pods except those to keep; nil keeps none. The file of a
// pod that has targets is written anew.
func (k *kept) retain(keep map[pod.UID]bool) {
	if k.files.Path == "" {
		return
	}
	k.mu.Lock()
	for uid := range k.old {
		if !keep[uid] {
			k.dirty[uid] = struct{}{}
			delete(k.old, uid)
		}
	}
	k.mu.Unlock()
	k.poke.Notify()
}

func (k *kept) write(results func(pod.UID) pod.ProbeResults) {
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
	if (wrong != nil) != k.failing { // said once, not with each change
		k.failing = wrong != nil
		if k.failing {
			k.log.Warn("cannot save probe results: a restart of podd forgets them", "error", wrong)
		} else {
			k.log.Info("probe results are saved again")
		}
	}
}

func (k *kept) writePod(uid pod.UID, results pod.ProbeResults) error {
	if results == nil {
		return k.files.Remove(string(uid))
	}
	file := make(keptFile, len(results))
	for name, r := range results {
		file[name] = keptContainer{ID: r.ContainerID, Startup: words[r.Startup], Ready: words[r.Ready], Live: words[r.Live]}
	}
	return k.files.File(string(uid)).Write(file)
}

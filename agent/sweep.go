package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/internal/wake"
)

// leftovers is what an earlier podd left outside the runtime.
type leftovers struct {
	// pods have something on disk and nothing in the runtime.
	pods []pod.UID
	// busy are like pods, and their processes run.
	busy []pod.UID
	logs []logRemoval
	// recheck says that this is the result of another look at what was kept.
	recheck bool
}

// sweepOnce finds, once in Run's life, what is left of pods that the runtime no
// longer knows: their disk content outlives a reboot, which clears the runtime's
// state. All desired pods and all running ones must be known.
func (a *Agent) sweepOnce(ctx context.Context) {
	if a.swept || !a.allSourcesReady() {
		return
	}
	a.swept = true
	a.releaseRemoved()
	known := slices.Collect(maps.Keys(a.orphans))
	known = slices.AppendSeq(known, maps.Keys(a.desired))
	a.wg.Go(func() { a.sweep(ctx, known) })
}

// allSourcesReady says whether every source is ready.
func (a *Agent) allSourcesReady() bool {
	return !slices.ContainsFunc(a.cfg.Sources, func(s pod.Source) bool { return !a.ready[s] })
}

// RecheckLeftovers has podd look again at what it kept on disk because of processes outside
// this runtime's pods: some of them may have ended. Any goroutine may call it; it never
// blocks.
func (a *Agent) RecheckLeftovers() {
	a.recheck.Notify()
}

// recheckLeftovers looks at what was kept; a call during that makes it look once more.
func (a *Agent) recheckLeftovers(ctx context.Context) {
	if a.rechecking {
		a.recheckAgain = true
		return
	}
	if len(a.busy) == 0 {
		return
	}
	uids := slices.Sorted(maps.Keys(a.busy))
	clear(a.busy)
	a.rechecking = true
	a.wg.Go(func() {
		left := leftovers{recheck: true}
		_, unclear, err := a.sort(ctx, uids, &left)
		if err != nil {
			a.log.Warn("cannot determine whether the processes of unknown pods still run: keeping their directories", "error", err)
		}
		left.busy = append(left.busy, unclear...)
		select {
		case a.leftovers <- left:
		case <-ctx.Done():
		}
	})
}

// sweep finds what is left, and passes it to the sync loop: only the sync loop can be
// certain that a pod is not being started at the same moment. The next sweep comes with
// the next start, so this one retries until it has observed everything. What it kept is
// looked at again (RecheckLeftovers).
func (a *Agent) sweep(ctx context.Context, known []pod.UID) {
	logs, err := a.logRemovals.files.read()
	if err != nil {
		a.log.Warn("cannot read whose logs are due for removal: they stay", "error", err)
	}
	left := leftovers{logs: logs}
	for try := 0; ctx.Err() == nil; try++ {
		settled, unclear, err := a.findLeftovers(ctx, known, &left)
		select {
		case a.leftovers <- left:
		case <-ctx.Done():
			return
		}
		left = leftovers{}
		known = append(known, settled...)
		err = errors.Join(err, a.sweepCgroups(ctx, slices.Concat(known, unclear)))
		if err == nil {
			return
		}
		if try == 0 {
			a.log.Warn("cannot list everything that removed pods left behind: retrying", "error", err, "retry_in", unknownRetry)
		}
		wake.Sleep(ctx, unknownRetry)
	}
}

// findLeftovers adds to left the pods that have something on disk and nothing in the
// runtime. settled are those that need no second observation; unclear are those that the
// runtime would not show.
func (a *Agent) findLeftovers(ctx context.Context, known []pod.UID, left *leftovers) (settled, unclear []pod.UID, err error) {
	onDisk, err := a.cfg.Volumes.Pods()
	onDisk = slices.DeleteFunc(onDisk, func(uid pod.UID) bool { return slices.Contains(known, uid) })
	settled, unclear, errSort := a.sort(ctx, onDisk, left)
	return settled, unclear, errors.Join(err, errSort)
}

// sort sorts pods that have something on disk into those that are left, those that are
// kept, and those created since. Its results are those of findLeftovers.
func (a *Agent) sort(ctx context.Context, onDisk []pod.UID, left *leftovers) (settled, unclear []pod.UID, err error) {
	var errs []error
	for _, uid := range onDisk {
		seen, err := a.cfg.Observer.Lookup(ctx, uid)
		busy := false
		if err == nil && seen.Empty() {
			busy, err = a.cfg.Cgroups.HasProcesses(uid)
		}
		if err != nil {
			unclear = append(unclear, uid)
			errs = append(errs, err)
			continue
		}
		settled = append(settled, uid)
		switch {
		case !seen.Empty(): // created since
		case busy || seen.Foreign != "":
			// Its files may be in use: by a pod of another runtime, or of another
			// podd, or by containers that the runtime has lost.
			left.busy = append(left.busy, uid)
			if !left.recheck {
				a.log.Warn("keeping the directory of a pod that is unknown to this runtime: its processes are still running", "uid", uid, "instance", seen.Foreign)
			}
		default:
			left.pods = append(left.pods, uid)
		}
	}
	return settled, unclear, errors.Join(errs...)
}

// sweepCgroups removes cgroups without a pod. One with a process in it belongs to
// another agent and stays.
func (a *Agent) sweepCgroups(ctx context.Context, known []pod.UID) error {
	a.mu.Lock()
	known = slices.AppendSeq(known, maps.Keys(a.workers))
	a.mu.Unlock()
	uids, err := a.cfg.Cgroups.OrphanedPods(ctx, known)
	for _, uid := range uids {
		if err := a.cfg.Cgroups.RemoveCgroup(ctx, podWithUID(uid)); err != nil {
			a.log.Info("cannot remove an orphaned pod cgroup", "uid", uid, "error", err)
		}
	}
	return err
}

// removeLeftovers starts a worker for each pod that is left, which removes it; if the
// pod is desired meanwhile, it waits for that, as usual.
func (a *Agent) removeLeftovers(ctx context.Context, left leftovers) {
	for _, uid := range left.busy {
		a.busy[uid] = true
	}
	if left.recheck {
		a.rechecking = false
		if a.recheckAgain {
			a.recheckAgain = false
			a.RecheckLeftovers()
		}
	}
	a.metrics.cleanedOrphans.Set(float64(len(left.pods)))
	a.metrics.keptOrphans.Set(float64(len(a.busy)))
	for _, uid := range left.pods {
		a.mu.Lock()
		known := a.workers[uid] != nil
		a.mu.Unlock()
		if _, running := a.orphans[uid]; !known && !running && a.desired[uid] == nil {
			a.startWorker(ctx, &pod.Desired{Pod: podWithUID(uid)}, "left on disk by an earlier podd")
		}
	}
	for _, g := range left.logs {
		if a.desired[g.UID] != nil { // it is back, or about to start: after a shutdown of the machine, for example
			if err := a.logRemovals.files.remove(g.UID); err != nil {
				a.log.Warn("cannot remove the checkpoint of logs that stay", "uid", g.UID, "error", err)
			}
			continue
		}
		// removeLogs checks whether the pod is back. If the clock was set back
		// meanwhile, the minute might be hours away.
		now := time.Now()
		g.Due = now.Add(min(max(g.Due.Sub(now), 0), a.cfg.LogRetention))
		a.logRemovals.add(g)
	}
}

// podWithUID returns a pod with nothing but a UID.
func podWithUID(uid pod.UID) *v1.Pod { return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}} }

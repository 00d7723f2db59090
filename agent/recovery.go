package agent

import (
	"context"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// found is what recover learnt: with what pods are made to run, and what runs; or
// why that is not known yet.
type found struct {
	parts     Parts
	summaries []pod.Summary
	err       error
}

// recover lists what runs, as often as it takes.
func (a *Agent) recover(ctx context.Context, out chan<- found) {
	for try := 0; ctx.Err() == nil; try++ {
		asked := time.Now()
		f := a.find(ctx)
		select {
		case out <- f:
		case <-ctx.Done():
			return
		}
		if f.err == nil {
			return
		}
		delay := min(retryDelay(try), time.Second)
		if try%60 == 0 {
			a.log.Warn("waiting for the runtime to list its pods", "error", f.err, "retry_in", delay)
		}
		sleep(ctx, delay-time.Since(asked)) // who had to wait for the answer asks again at once
	}
}

// find asks once.
func (a *Agent) find(ctx context.Context) (f found) {
	f.parts = a.cfg.Parts
	if a.cfg.Greeted != nil {
		if f.parts, f.err = a.cfg.Greeted(ctx); f.err != nil {
			return f
		}
	}
	f.summaries, f.err = f.parts.Observer.Summaries(ctx)
	return f
}

// recoverWith takes up what recover learnt. Nobody has used the parts before.
func (a *Agent) recoverWith(f found) {
	a.away = f.err
	if f.err != nil {
		return
	}
	a.recovered, a.cfg.Parts = true, f.parts.withDefaults()
	for _, g := range f.summaries {
		a.orphans[g.UID] = g
	}
	maps.DeleteFunc(a.last, func(uid pod.UID, _ *pod.Desired) bool { _, runs := a.orphans[uid]; return !runs })
	a.log.Info("runtime answered", "pods_found", len(f.summaries))
	a.pokeUnknown() // who was woken while nothing was known
}

// reportAway tells of pods that wait for a runtime which has never answered:
// nothing is known of them but that they are wanted, and which of them have ended.
func (a *Agent) reportAway() {
	if a.away == nil {
		return
	}
	now := time.Now()
	for _, d := range a.wanted {
		r := pod.Report{Desired: d, Observed: pod.Observed{UID: d.UID(), At: now}, At: now}
		if k, ended := a.ends.of(d.UID()); ended {
			r.Observed, r.StartTime = k.complete(r.Observed), k.StartTime
			r.Failed, r.Reason, r.Message = k.Reason != "", k.Reason, k.Message
		} else {
			r.Unseen, r.Waiting = true, waitingAll(d.Pod, a.away.Error())
		}
		a.cfg.Status.Report(r)
	}
}

// endOrphans ends what runs and nobody wants, as soon as its source has
// spoken; what is wanted is adopted by its worker.
func (a *Agent) endOrphans(ctx context.Context) {
	for uid, g := range a.orphans {
		if a.wanted[uid] == nil && a.mayEnd(g.Source) {
			d := a.last[uid]
			if d == nil {
				d = orphan(g)
			}
			a.start(ctx, d, "no manifest describes it")
		}
	}
}

// mayEnd says whether it is known that a source does not want a pod.
func (a *Agent) mayEnd(s pod.Source) bool {
	configured := false
	all := true
	for _, known := range a.cfg.Sources {
		configured = configured || known == s
		all = all && a.spoken[known]
	}
	if configured {
		return a.spoken[s]
	}
	return all
}

// orphan is the little that is known of a pod whose manifest is gone.
func orphan(g pod.Summary) *pod.Desired {
	p := &v1.Pod{}
	p.UID, p.Name, p.Namespace = g.UID, g.Name, g.Namespace
	return &pod.Desired{Pod: p, Source: g.Source}
}

// lookAtUnknown finds out what the pods are that somebody woke and no worker
// knows: usually one that has just gone, now and then a sandbox whose making
// outlived the worker that had asked for it.
func (a *Agent) lookAtUnknown(ctx context.Context) {
	if !a.recovered {
		return // what is found then may be older than the wake-up
	}
	a.mu.Lock()
	var uids []pod.UID
	for uid := range a.unknown {
		if a.workers[uid] == nil {
			uids = append(uids, uid)
		}
	}
	clear(a.unknown)
	a.mu.Unlock()
	if len(uids) > 0 {
		a.wg.Go(func() { a.identify(ctx, uids) })
	}
}

// identify observes pods that no worker knows and hands those of podd's to the
// sync loop. What it could not observe stays unknown and is observed again.
func (a *Agent) identify(ctx context.Context, uids []pod.UID) {
	again := false
	for _, uid := range uids {
		seen, err := a.cfg.Observer.Lookup(ctx, uid)
		if err != nil {
			again = true
			a.mu.Lock()
			a.unknown[uid] = true
			a.mu.Unlock()
			continue
		}
		if seen.Empty() && seen.Foreign == "" {
			continue // gone
		}
		if seen.StartTime.IsZero() {
			a.noteForeign(uid)
			continue
		}
		g := pod.Summary{UID: uid, Name: seen.Name, Namespace: seen.Namespace, Source: seen.Source}
		select {
		case a.strays <- g:
		case <-ctx.Done():
			return
		}
	}
	if again {
		sleep(ctx, unknownRetry)
		a.pokeUnknown()
	}
}

// maxForeign bounds what is remembered of others' pods.
const maxForeign = 4096

// noteForeign remembers that a pod is not podd's, so that its events are passed
// over: another client of the runtime may start and stop a great many.
func (a *Agent) noteForeign(uid pod.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.foreign) >= maxForeign {
		clear(a.foreign)
	}
	a.foreign[uid] = a.workers[uid] == nil
}

// unknownRetry is the wait before observing pods again that the runtime would
// not show. Nobody waits for them.
const unknownRetry = 2 * time.Second

func (a *Agent) pokeUnknown() {
	select {
	case a.poke <- struct{}{}: // capacity 1
	default:
	}
}

// adoptStray takes up a pod that the runtime has and no worker knows.
func (a *Agent) adoptStray(g pod.Summary) {
	a.mu.Lock()
	known := a.workers[g.UID] != nil
	a.mu.Unlock()
	if !known {
		a.orphans[g.UID] = g
	}
}

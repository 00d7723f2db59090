package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"podd/test/e2e/testnode"
)

// startCalls are what no agent can start a pod without.
var startCalls = []string{"RunPodSandbox", "CreateContainer", "StartContainer"}

// share measures which part of a pod's start is podd's own and which the
// runtime's, by the times of podd's calls. It is apart from the other rows,
// since the relay that times the calls slows them a little.
func (b *bench) share(ctx context.Context) (err error) {
	p, r, err := b.relayed(ctx)
	if err != nil {
		return err
	}
	whole := b.agents[colPodd]
	b.agents[colPodd] = p
	defer func() {
		b.agents[colPodd] = whole
		err = errors.Join(err, p.stop(), r.close())
	}()
	if _, err := b.giveObjects(colPodd); err != nil {
		return err
	}
	if err := b.warmUp(ctx, colPodd); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	for range b.plan.shares {
		if err := b.shareOf(ctx, r, plain, shareRows{rowShareRuntime, rowShareOwn, rowShareLooks}); err != nil {
			return err
		}
		ten := shape{script: scriptOfTen, volumes: volumesOfTen}
		if err := b.shareOf(ctx, r, ten, shareRows{runtime: rowShareVolumesRuntime, own: rowShareVolumesOwn}); err != nil {
			return err
		}
	}
	return nil
}

// shareRows are the rows of the parts of a start; an empty one is not wanted.
type shareRows struct{ runtime, own, looks string }

// shareOf starts a pod of that shape and tells apart what its start consists of.
func (b *bench) shareOf(ctx context.Context, r *relay, of shape, rows shareRows) error {
	names := []string{b.name("share")}
	begin, first, _, err := b.startPods(ctx, colPodd, 1, names, of)
	if err != nil {
		return err
	}
	// Only calls that were answered are known: StartContainer, during which
	// the container makes its mark, is by the time the pod is shown.
	if _, err := b.waitShown(ctx, colPodd, names[0]); err != nil {
		return err
	}
	own, looks := ownTime(r.since(begin), begin, first)
	b.add(rows.runtime, colPodd, (first.Sub(begin) - own).Seconds())
	b.add(rows.own, colPodd, own.Seconds())
	b.add(rows.looks, colPodd, looks.Seconds())
	return b.stopPods(ctx, colPodd, names, nil)
}

// maxOthers leaves room for the pods that are measured beside a crowd.
const maxOthers = 100

// relayed starts a podd with a root directory of its own, whose runtime is the
// relay.
func (b *bench) relayed(ctx context.Context) (*podd, *relay, error) {
	dir := filepath.Join(b.node.Dir, "share")
	if err := os.MkdirAll(filepath.Join(dir, "root"), 0o755); err != nil {
		return nil, nil, fmt.Errorf("make the directory of podd behind a relay: %w", err)
	}
	socket := filepath.Join(dir, "relay.sock")
	r, err := newRelay(socket, b.node.Containerd.Endpoint())
	if err != nil {
		return nil, nil, err
	}
	bundle := b.node.Bundle
	bundle.Podd = b.agents[colPodd].(*podd).Binary
	inner, err := testnode.NewPodd(b.node.Place, bundle, dir)
	if err != nil {
		return nil, nil, errors.Join(err, r.close())
	}
	inner.Args = []string{"--root-dir", filepath.Join(dir, "root"), "--container-runtime-endpoint", "unix://" + socket}
	inner.Config["maxPods"] = b.plan.crowd + maxOthers
	p := &podd{Podd: inner}
	if err := p.start(ctx); err != nil {
		return nil, nil, errors.Join(err, p.stop(), r.close())
	}
	return p, r, nil
}

// ownTime is what of the time from begin to first was spent in none of the
// calls that make a pod, and which part of that passed while the runtime
// answered other calls of podd's.
func ownTime(calls []call, begin, first time.Time) (own, looks time.Duration) {
	var start, other []call
	for _, c := range calls {
		switch {
		case slices.Contains(startCalls, c.method):
			start = append(start, c)
		default:
			other = append(other, c)
		}
	}
	own = first.Sub(begin) - covered(start, begin, first)
	return own, covered(slices.Concat(start, other), begin, first) - covered(start, begin, first)
}

// covered is how much of the time from begin to end at least one call took.
func covered(calls []call, begin, end time.Time) (sum time.Duration) {
	calls = slices.SortedFunc(slices.Values(calls), func(a, b call) int { return a.begin.Compare(b.begin) })
	at := begin // all before it is counted
	for _, c := range calls {
		from, to := c.begin, c.end
		if from.Before(at) {
			from = at
		}
		if to.After(end) {
			to = end
		}
		if to.After(from) {
			sum += to.Sub(from)
			at = to
		}
	}
	return sum
}

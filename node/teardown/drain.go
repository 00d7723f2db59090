package teardown

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"podd/bundle"
	"podd/cri"
	"podd/server"
)

// drainSlack is how long podd may take to stop its pods, in addition to their longest grace
// period. A container may wait for a server that does not respond; podd may need half a minute
// until it makes such a container end, and nobody else does that.
const drainSlack = time.Minute

// drain makes podd stop its pods, with their preStop hooks and in its own order. It blocks
// until none is left, or until none has ended for their longest grace period and drainSlack.
// podd starts no pods until release is called. endPods stops the pods that are left.
func (p *Podd) drain(ctx context.Context, agent, runtime string) (release func()) {
	release = func() {}
	if pid, err := bundle.ListenerPID(agent); err != nil || pid <= 1 {
		return release
	}
	sandboxes, running, err := listAll(ctx, runtime)
	if err != nil || len(sandboxes) == 0 {
		return release // endPods reports the error
	}
	printStopping(p.Out, len(sandboxes), running)
	ctx, cancel := context.WithCancel(ctx)
	drained := make(chan error, 1)
	go func() { drained <- askToDrain(ctx, agent) }()
	err = p.awaitDrain(ctx, drained, runtime, len(sandboxes), longest(running)+drainSlack)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errNoDrain) {
		fmt.Fprintf(p.Out, "podd does not stop its pods by itself (%v): they are ended through the container runtime\n", err)
	}
	return cancel
}

// awaitDrain blocks until drained receives a result, or until no pod has ended within the
// limit. It prints how many are left.
func (p *Podd) awaitDrain(ctx context.Context, drained <-chan error, runtime string, all int, limit time.Duration) error {
	client, conn, err := connect(runtime)
	if err != nil {
		return err
	}
	defer conn.Close()
	tick := time.NewTicker(progressPeriod)
	defer tick.Stop()
	least, moved := all, time.Now()
	for {
		select {
		case err := <-drained:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if left, running, err := client.ListAll(ctx); err == nil && len(left) < least {
			least, moved = len(left), time.Now()
			fmt.Fprintf(p.Out, "%d of %s left, %s running\n", len(left), count(all, "pod"), count(len(running), "container"))
		}
		if time.Since(moved) > limit {
			return fmt.Errorf("none of its %s has ended for %v", count(least, "pod"), limit)
		}
	}
}

// errNoDrain is the error of an older podd, which cannot drain.
var errNoDrain = errors.New("it has no such request")

// askToDrain requests the drain and returns once no pod is left. Its connection stays open
// until ctx ends.
func askToDrain(ctx context.Context, socket string) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://podd/podd/v1/drain", http.NoBody)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = response.Body.Close() })
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return errNoDrain
	default:
		return fmt.Errorf("it responded %s", response.Status)
	}
	var answer server.Drained
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if !answer.Drained {
		return errors.New("it still has pods")
	}
	return nil
}

// longest returns the longest grace period.
func longest(running []cri.StopTarget) time.Duration {
	var all time.Duration
	for _, c := range running {
		all = max(all, c.GracePeriod)
	}
	return all
}

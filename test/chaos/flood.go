package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/testnode"
)

const (
	// floodRounds is how often all pods come and go.
	floodRounds = 3
	// perPod is how long a node may take for each pod that comes or goes, on a busy
	// machine: some five times what it takes.
	perPod = time.Second
	// restarted is how long podd has run again when the pods are removed in the round in
	// which it is killed: it is still observing them.
	restarted = 15 * time.Second
)

// floodAll lets all pods come at once and go at once, three times: undisturbed; with podd
// killed and started again shortly before they go; and with containerd killed while they
// go, which cuts the event stream and every call. It returns the last round.
func (w *world) floodAll(ctx context.Context) (int, error) {
	for round := 1; round <= floodRounds; round++ {
		if err := w.flood(ctx, round); err != nil {
			return round, err
		}
	}
	return floodRounds, nil
}

func (w *world) flood(ctx context.Context, round int) error {
	limit := patience + time.Duration(w.o.flood)*perPod
	began := time.Now()
	for i := range w.o.flood {
		if _, err := w.podd.Apply(floodFile(i), floodPod(i)); err != nil {
			return err
		}
		w.made++
	}
	if err := w.until(ctx, limit, w.allRun); err != nil {
		return fmt.Errorf("pods that came at once do not run: %w", err)
	}
	w.say(round, "%d pods run after %v", w.o.flood, time.Since(began).Round(time.Millisecond))
	if round == 2 {
		if err := errors.Join(w.podd.Signal(unix.SIGKILL), w.podd.Start(), w.podd.WaitReady(ctx)); err != nil {
			return err
		}
		w.deaths++
		time.Sleep(restarted)
		w.say(round, "podd was killed, and runs again")
	}
	began = time.Now()
	if err := w.podd.DeleteAll(); err != nil {
		return err
	}
	if round == 3 {
		if err := w.until(ctx, limit, w.someAreGone); err != nil {
			return fmt.Errorf("pods that were removed at once do not go: %w", err)
		}
		w.deaths++
		if err := w.node.Containerd.Signal(unix.SIGKILL); err != nil {
			return err
		}
		w.say(round, "containerd was killed")
	}
	if err := w.until(ctx, limit, w.noneIsLeft); err != nil {
		return fmt.Errorf("pods that were removed at once do not go: %w", err)
	}
	w.say(round, "nothing of them is left after %v", time.Since(began).Round(time.Millisecond))
	return w.never(ctx)
}

func (w *world) until(ctx context.Context, limit time.Duration, what func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return testnode.Poll(within, 500*time.Millisecond, func() error { return what(within) })
}

// allRun says how many pods do not run yet.
func (w *world) allRun(ctx context.Context) error {
	pods, err := w.podd.Pods(ctx)
	if err != nil {
		return err
	}
	running := 0
	for i := range pods {
		if pods[i].Status.Phase == v1.PodRunning {
			running++
		}
	}
	if running != w.o.flood {
		return fmt.Errorf("%d of %d run", running, w.o.flood)
	}
	return nil
}

// noneIsLeft says how many sandboxes there are, and pods that podd shows.
func (w *world) noneIsLeft(ctx context.Context) error {
	boxes, err := w.node.CRI.Sandboxes(ctx)
	if err != nil {
		return err
	}
	pods, err := w.podd.Pods(ctx)
	if err != nil {
		return err
	}
	if len(boxes)+len(pods) > 0 {
		return fmt.Errorf("%d sandboxes are left, and podd shows %d pods", len(boxes), len(pods))
	}
	return nil
}

// someAreGone waits for a tenth of the pods.
func (w *world) someAreGone(ctx context.Context) error {
	boxes, err := w.node.CRI.Sandboxes(ctx)
	if err != nil {
		return err
	}
	if len(boxes) > w.o.flood*9/10 {
		return fmt.Errorf("%d sandboxes are left", len(boxes))
	}
	return nil
}

func floodFile(i int) string { return fmt.Sprintf("flood%d.yaml", i) }

// floodPod is a pod that ends when it is told to; each twentieth does not, and is killed.
func floodPod(i int) string {
	command := `trap 'exit 0' TERM; sleep 1000000 & wait`
	if i%20 == 7 {
		command = `trap '' TERM; sleep 1000000 & while :; do wait; done`
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: flood%d}
spec:
  terminationGracePeriodSeconds: 10
  containers:
  - name: main
    image: localhost/podd/busybox:1
    command: [sh, -c, %q]
    resources: {limits: {memory: 16Mi}}
`, i, command)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/test/e2e/testnode"
)

// patience bounds one wait for a mark; nothing of the benchmark takes as long.
const patience = 2 * time.Minute

// running are the IDs of the containers that run.
func (b *bench) running(ctx context.Context) ([]string, error) {
	list, err := b.node.CRI.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	var ids []string
	for _, c := range list.GetContainers() {
		ids = append(ids, c.Id)
	}
	return ids, err
}

func (b *bench) sandboxes(ctx context.Context, dead bool) (int, error) {
	boxes, err := b.node.CRI.Sandboxes(ctx)
	n := 0
	for _, box := range boxes {
		if dead || box.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			n++
		}
	}
	return n, err
}

// startPods starts one pod of the shape per name, all at once, and returns when it
// began and when the last container was at its first instruction. Pods of the floor
// are returned for removal.
func (b *bench) startPods(ctx context.Context, column string, width int, names []string, of shape) (begin, last time.Time, pods []*testnode.FloorPod, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if column == colFloor {
		for i, name := range names {
			pods = append(pods, b.floorPod(name, of, i))
		}
		begin = time.Now()
		var g errgroup.Group
		g.SetLimit(width)
		for _, pod := range pods {
			g.Go(func() error { return pod.Run(ctx, b.node.CRI) })
		}
		if err := g.Wait(); err != nil {
			return begin, last, pods, err
		}
	} else {
		manifests := map[string]string{}
		for i, name := range names {
			manifests[name+".yaml"] = b.manifest(name, of, i)
		}
		if begin, err = b.agents[column].apply(manifests); err != nil {
			return begin, last, nil, err
		}
	}
	last, err = b.marks.Wait(ctx, names...)
	return begin, last, pods, err
}

// stopPods ends them and returns when nothing of them is left.
func (b *bench) stopPods(ctx context.Context, column string, names []string, pods []*testnode.FloorPod) error {
	if column == colFloor {
		var g errgroup.Group
		g.SetLimit(8)
		for _, pod := range pods {
			g.Go(func() error { return pod.Remove(ctx, b.node.CRI) })
		}
		return g.Wait()
	}
	if _, err := b.agents[column].remove(files(names)); err != nil {
		return err
	}
	return b.waitNothing(ctx, column)
}

func files(names []string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = name + ".yaml"
	}
	return list
}

func (b *bench) warmUp(ctx context.Context, column string) error {
	names := []string{b.name("warm-" + column)}
	_, _, pods, err := b.startPods(ctx, column, 1, names, plain)
	return errors.Join(err, b.stopPods(ctx, column, names, pods))
}

func (b *bench) onePod(ctx context.Context, column string, _ int) error {
	names := []string{b.name("one-" + column)}
	begin, first, pods, err := b.startPods(ctx, column, 1, names, plain)
	if err != nil {
		return err
	}
	b.add(rowOne, column, first.Sub(begin).Seconds())
	if column != colFloor {
		seen, err := b.waitShown(ctx, column, names[0])
		if err != nil {
			return err
		}
		b.add(rowStatus, column, max(0, seen.Sub(first).Seconds()))
	}
	return b.stopPods(ctx, column, names, pods)
}

// waitShown returns when /pods shows the pod's container running and ready.
func (b *bench) waitShown(ctx context.Context, column, name string) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = testnode.Poll(ctx, time.Millisecond, func() error {
		pods, err := b.agents[column].pods(ctx)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if strings.HasPrefix(p.Name, name) && shownReady(p) {
				at = time.Now()
				return nil
			}
		}
		return fmt.Errorf("%s is not shown as ready", name)
	})
	return at, err
}

func shownReady(p v1.Pod) bool {
	return p.Status.Phase == v1.PodRunning && len(p.Status.ContainerStatuses) == 1 &&
		p.Status.ContainerStatuses[0].Ready && p.Status.ContainerStatuses[0].State.Running != nil
}

// restart: a container that was up for two seconds exits with 1; counted from
// its last instruction to its successor's first.
func (b *bench) restart(ctx context.Context, column string, _ int) error {
	name := b.name("crash-" + column)
	crash := func(name string) string {
		return fmt.Sprintf("if [ -e /out/%[1]s ]; then : > /out/%[1]s-again; trap 'exit 0' TERM; while :; do sleep 3600 & wait; done; fi; : > /out/%[1]s; sleep 2; : > /out/%[1]s-exit; exit 1", name)
	}
	_, _, pods, err := b.startPods(ctx, column, 1, []string{name}, shape{script: crash})
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	exit, err := b.marks.Wait(wait, name+"-exit")
	if err != nil {
		return err
	}
	if column == colFloor {
		if err := b.floorRestart(wait, pods[0]); err != nil {
			return err
		}
	}
	again, err := b.marks.Wait(wait, name+"-again")
	if err != nil {
		return err
	}
	b.add(rowRestart, column, again.Sub(exit).Seconds())
	return b.stopPods(ctx, column, []string{name}, pods)
}

// floorRestart is what any agent must do: hear of the exit, create, start.
func (b *bench) floorRestart(ctx context.Context, pod *testnode.FloorPod) error {
	if err := b.floorExit(ctx, pod); err != nil {
		return err
	}
	return pod.StartContainer(ctx, b.node.CRI)
}

// floorExit returns when the pod's newest container has ended, told by the
// runtime's event as podd is.
func (b *bench) floorExit(ctx context.Context, pod *testnode.FloorPod) error {
	_, err := b.ends.Stopped(ctx, pod.ContainerID)
	return err
}

// delete5 measures from the removal of five pods to the end of their containers
// and to the removal of their sandboxes, both told by the runtime's events.
func (b *bench) delete5(ctx context.Context, column string, _ int) error {
	var names []string
	for range 5 {
		names = append(names, b.name("del-"+column))
	}
	_, _, pods, err := b.startPods(ctx, column, 5, names, plain)
	if err != nil {
		return err
	}
	// The shell sets its trap after the mark; until then SIGTERM is lost on PID 1.
	if err := sleep(ctx, 500*time.Millisecond); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	containers, err := b.running(ctx)
	if err != nil {
		return err
	}
	boxes, err := b.node.CRI.Sandboxes(ctx)
	if err != nil {
		return err
	}
	begin, wait, err := b.removePods(ctx, column, names, pods)
	if err != nil {
		return err
	}
	ended, err := b.ends.Stopped(ctx, containers...)
	if err != nil {
		return errors.Join(err, wait())
	}
	b.add(rowDelete, column, ended.Sub(begin).Seconds())
	if column != colKubelet { // it removes dead sandboxes minutes later
		var ids []string
		for _, box := range boxes {
			ids = append(ids, box.Id)
		}
		removed, err := b.ends.Removed(ctx, ids...)
		if err != nil {
			return errors.Join(err, wait())
		}
		b.add(rowDeleteAll, column, removed.Sub(begin).Seconds())
	}
	return wait()
}

// removePods begins to end the pods and returns when it did; the returned
// function waits until nothing is left.
func (b *bench) removePods(ctx context.Context, column string, names []string, pods []*testnode.FloorPod) (begin time.Time, wait func() error, err error) {
	if column != colFloor {
		begin, err = b.agents[column].remove(files(names))
		return begin, func() error { return b.waitNothing(ctx, column) }, err
	}
	begin = time.Now()
	var g errgroup.Group
	for _, pod := range pods {
		g.Go(func() error {
			if err := pod.StopContainer(ctx, b.node.CRI, 5*time.Second); err != nil {
				return err
			}
			return pod.Remove(ctx, b.node.CRI)
		})
	}
	return begin, g.Wait, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *bench) burst(ctx context.Context, column string, round int) error {
	if column == colFloor {
		best, err := b.rawBurst(ctx)
		if err == nil {
			b.add(rowBurst, column, best.Seconds())
		}
		return err
	}
	stopProfile := b.profileBurst(ctx, column, round)
	took, err := b.burstOf(ctx, column, 0)
	if err = errors.Join(err, stopProfile()); err != nil {
		return err
	}
	b.add(rowBurst, column, took.Seconds())
	return nil
}

// rawBurst is the floor's best time for a burst, at the plan's widths.
func (b *bench) rawBurst(ctx context.Context) (best time.Duration, err error) {
	best = time.Duration(1<<63 - 1)
	for _, width := range b.plan.widths {
		took, err := b.burstOf(ctx, colFloor, width)
		if err != nil {
			return 0, err
		}
		b.say("  at concurrency %d: %.2f s", width, took.Seconds())
		best = min(best, took)
	}
	return best, nil
}

// burstOf starts a burst of pods, and ends them when all have begun.
func (b *bench) burstOf(ctx context.Context, column string, width int) (time.Duration, error) {
	var names []string
	for range b.plan.burstSize {
		names = append(names, b.name("burst-"+column))
	}
	begin, last, pods, err := b.startPods(ctx, column, width, names, plain)
	if err != nil {
		return 0, err
	}
	return last.Sub(begin), b.stopPods(ctx, column, names, pods)
}

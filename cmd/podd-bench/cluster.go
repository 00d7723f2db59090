package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/perftest"
	"podd/test/cluster"
	"podd/test/e2e/testnode"
)

// The parts that are measured in a whole cluster.
const (
	partBound      = "bound pod"
	partDeployment = "deployment"
	partRest       = "at rest in a cluster"
)

// secretsOfCluster is how many Secrets the pods of the resting node of a cluster name.
const secretsOfCluster = 50

// wholeCluster lets the columns take turns as the node of a cluster that has everything;
// the floor has none. Each node is the only one, and its cluster is gone when its turn is over.
func (b *bench) wholeCluster(ctx context.Context) error {
	if !b.wants(partBound) && !b.wants(partDeployment) && !b.wants(partRest) {
		return nil
	}
	if b.opts.apiserver == "" || b.opts.controllerManager == "" || b.opts.scheduler == "" {
		b.say("a cluster: not measured: no paths of kube-apiserver, kube-controller-manager and kube-scheduler are given (`make cluster` builds them)")
		return nil
	}
	columns := b.columns()
	for turn := range b.plan.turns {
		for i := range columns {
			column := columns[(turn+i)%len(columns)]
			b.say("turn %d/%d in a cluster: %s", turn+1, b.plan.turns, column)
			err := b.inWhole(ctx, column, func(w *cluster.Whole) error { return b.clusterTurn(ctx, column, w) })
			if err != nil {
				return fmt.Errorf("turn %d in a cluster, %s: %w", turn+1, column, err)
			}
		}
	}
	for _, column := range columns[1:] {
		if !b.wants(partRest) {
			continue
		}
		b.say("at rest in a cluster: %s", column)
		if err := b.inWhole(ctx, column, func(w *cluster.Whole) error { return b.restInCluster(ctx, column, w) }); err != nil {
			return fmt.Errorf("at rest in a cluster, %s: %w", column, err)
		}
	}
	return nil
}

// inWhole makes the column's cluster, does f and leaves nothing of it behind; w is nil for
// the floor.
func (b *bench) inWhole(ctx context.Context, column string, f func(w *cluster.Whole) error) (err error) {
	if column == colFloor {
		return f(nil)
	}
	programs := cluster.Programs{APIServer: b.opts.apiserver, Manager: b.opts.controllerManager, Scheduler: b.opts.scheduler, Audit: true}
	if column == colKubelet {
		programs.Kubelet = b.opts.kubelet
	}
	node := *b.node
	if node.Bundle.Podd, err = filepath.Abs(b.opts.podd); err != nil {
		return err
	}
	w, err := cluster.StartWhole(ctx, &node, programs)
	defer func() {
		err = errors.Join(err, w.Close(), b.clear(ctx, column), os.RemoveAll(w.Server.Dir))
	}()
	if err != nil {
		return err
	}
	return f(w)
}

// clusterTurn measures what a turn of the column has of a cluster. A first pod that is not
// measured warms the caches.
func (b *bench) clusterTurn(ctx context.Context, column string, w *cluster.Whole) error {
	if w != nil {
		if err := b.boundPod(ctx, "", "", column, w); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
	} else if err := b.warmUp(ctx, column); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	for _, p := range []struct {
		what   string
		rounds int
		f      func() error
	}{
		{partBound, b.plan.ones, func() error { return b.boundPod(ctx, rowBound, rowBoundAfter, column, w) }},
		{partDeployment, b.plan.deployments, func() error { return b.deployment(ctx, column, w) }},
	} {
		for round := range p.rounds {
			if !b.wants(p.what) {
				continue
			}
			b.say("  %s %d/%d", p.what, round+1, p.rounds)
			if err := p.f(); err != nil {
				return fmt.Errorf("%s: %w", p.what, err)
			}
		}
	}
	return nil
}

// boundPod measures one pod that the scheduler binds.
func (b *bench) boundPod(ctx context.Context, row, rowAfter, column string, w *cluster.Whole) error {
	name := b.name("bound-" + column)
	if w == nil {
		begin, first, pods, err := b.startPods(ctx, column, 1, []string{name}, plain)
		if err != nil {
			return err
		}
		b.add(row, column, first.Sub(begin).Seconds())
		b.add(rowAfter, column, first.Sub(begin).Seconds())
		return b.stopPods(ctx, column, []string{name}, pods)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pod, err := asObject(b.manifest(name, plain, 0))
	if err != nil {
		return err
	}
	bound, failed := make(chan time.Time, 1), make(chan error, 1)
	go func() {
		failed <- w.Server.Client().Follow(ctx, "/api/v1/namespaces/default/pods?fieldSelector=metadata.name="+name, func(_ string, text json.RawMessage) bool {
			var p v1.Pod
			if err := json.Unmarshal(text, &p); err != nil || p.Spec.NodeName == "" {
				return true
			}
			bound <- time.Now()
			return false
		})
	}()
	begin := time.Now()
	if err := w.Server.Client().Create(ctx, pod); err != nil {
		return err
	}
	first, err := b.marks.Wait(ctx, name)
	if err != nil {
		return errors.Join(err, w.Check())
	}
	if err := <-failed; err != nil {
		return err
	}
	b.add(row, column, first.Sub(begin).Seconds())
	b.add(rowAfter, column, first.Sub(<-bound).Seconds())
	return b.endInCluster(ctx, column, w, pod)
}

// endInCluster deletes pods and returns when nothing of them is left.
func (b *bench) endInCluster(ctx context.Context, column string, w *cluster.Whole, pods ...cluster.Object) error {
	for _, pod := range pods {
		if err := w.Server.Client().Delete(ctx, pod); err != nil {
			return err
		}
	}
	for _, pod := range pods {
		if err := w.Server.Client().Gone(ctx, pod); err != nil {
			return err
		}
	}
	return b.waitNothing(ctx, column)
}

// deployment measures how long a Deployment takes until all its pods are Ready in the
// cluster, and how long, scaled to 0, until nothing is left: no pod, no sandbox, and of podd
// nothing else either. The floor is as many raw pods.
func (b *bench) deployment(ctx context.Context, column string, w *cluster.Whole) error {
	if w == nil {
		best, err := b.rawBurst(ctx)
		if err == nil {
			b.add(rowDeployment, column, best.Seconds())
		}
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	scope := b.node.Scope([]int{w.Pid()}, filepath.Join(b.node.Root(), "pods"))
	before, err := scope.Take(ctx)
	if err != nil {
		return err
	}
	name := b.name("deployment-" + column)
	if err := b.scaleUp(ctx, column, w, name); err != nil {
		return err
	}
	if err := b.scaleToNothing(ctx, column, w, name); err != nil {
		return err
	}
	if column == colPodd {
		if err := b.nothingLeaked(ctx, scope, before); err != nil {
			return err
		}
	}
	return w.Server.Client().Delete(ctx, cluster.Object{"kind": "Deployment", "metadata": map[string]any{"name": name}})
}

// scaleUp creates a Deployment and measures until all its pods are Ready.
func (b *bench) scaleUp(ctx context.Context, column string, w *cluster.Whole, name string) error {
	ready := b.followReady(ctx, w, name)
	before, err := spentIn(w)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := w.Server.Client().Create(ctx, b.deploymentOf(name, b.plan.burstSize)); err != nil {
		return err
	}
	all := <-ready
	if all.err != nil {
		return errors.Join(fmt.Errorf("wait for %d pods: %w", b.plan.burstSize, all.err), w.Check())
	}
	took := all.at.Sub(begin).Seconds()
	b.add(rowDeployment, column, took)
	requests, err := w.Server.Requests(w.Name(), begin)
	if err != nil {
		return err
	}
	after, err := spentIn(w)
	if err != nil {
		return err
	}
	b.say("  in %.1f s; of the processor's the agent had %.1f s, apiserver and etcd %.1f s; the node's requests: %v", took,
		(after.agent - before.agent).Seconds(), (after.server - before.server).Seconds(), counted(requests))
	return nil
}

// readiness is when the last of a Deployment's pods was seen Ready.
type readiness struct {
	at  time.Time
	err error
}

// followReady follows a Deployment's pods until all are Ready.
func (b *bench) followReady(ctx context.Context, w *cluster.Whole, name string) <-chan readiness {
	done := make(chan readiness, 1)
	go func() {
		var last time.Time
		all := map[string]bool{}
		err := w.Server.Client().Follow(ctx, "/api/v1/namespaces/default/pods?labelSelector=app%3D"+name, func(_ string, text json.RawMessage) bool {
			var p v1.Pod
			if json.Unmarshal(text, &p) == nil && shownReady(p) {
				all[p.Name], last = true, time.Now()
			}
			return len(all) < b.plan.burstSize
		})
		done <- readiness{last, err}
	}()
	return done
}

// spent is the time that a cluster's programs have had of the processor: the node's agent,
// and the apiserver with its etcd.
type spent struct{ agent, server time.Duration }

func spentIn(w *cluster.Whole) (s spent, err error) {
	if s.agent, err = perftest.CPUTime(w.Pid()); err != nil {
		return s, err
	}
	s.server, err = perftest.CPUTime(w.Server.Pid())
	return s, err
}

// scaleToNothing scales a Deployment to 0 and measures until nothing of its pods is left.
func (b *bench) scaleToNothing(ctx context.Context, column string, w *cluster.Whole, name string) error {
	begin := time.Now()
	if err := w.Server.Client().Apply(ctx, b.deploymentOf(name, 0)); err != nil {
		return err
	}
	err := testnode.Poll(ctx, 20*time.Millisecond, func() error {
		text, err := w.Server.Client().Raw(ctx, "/api/v1/namespaces/default/pods?limit=1&labelSelector=app%3D"+name)
		var list v1.PodList
		if err = errors.Join(err, json.Unmarshal(text, &list)); err == nil && len(list.Items) > 0 {
			err = errors.New("pods are left")
		}
		return err
	})
	if err == nil {
		err = b.waitNothing(ctx, column)
	}
	if err != nil {
		return fmt.Errorf("scaled to 0: %w", err)
	}
	b.add(rowScaled, column, time.Since(begin).Seconds())
	return nil
}

// counted is how many requests there were of each kind.
func counted(requests []cluster.Request) map[string]int {
	counts := map[string]int{}
	for _, r := range requests {
		counts[r.What()]++
	}
	return counts
}

// nothingLeaked waits until the node is as it was before.
func (b *bench) nothingLeaked(ctx context.Context, scope testnode.Scope, before testnode.Snapshot) error {
	return testnode.Poll(ctx, 100*time.Millisecond, func() error {
		after, err := scope.Take(ctx)
		if err != nil {
			return testnode.Stop(err)
		}
		if left := testnode.Left(before, after); len(left) > 0 {
			return fmt.Errorf("%d things are left:\n\t%s", len(left), strings.Join(left, "\n\t"))
		}
		return nil
	})
}

func (b *bench) deploymentOf(name string, replicas int) cluster.Object {
	labels := map[string]any{"app": name}
	return cluster.Object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name, "namespace": "default"}, "spec": map[string]any{
		"replicas": replicas, "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
			"terminationGracePeriodSeconds": 5,
			"containers": []any{map[string]any{
				"name": "main", "image": testnode.ImageBusybox, "command": []any{"/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"},
			}},
		}},
	}}
}

// restInCluster measures a node at rest whose pods are a cluster's: its agent, and what it
// asks of the apiserver.
func (b *bench) restInCluster(ctx context.Context, column string, w *cluster.Whole) error {
	for i := range secretsOfCluster {
		secret, err := asObject(fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: password%d}, stringData: {%s}}", i, values(2)))
		if err != nil {
			return err
		}
		if err := w.Server.Client().Apply(ctx, secret); err != nil {
			return err
		}
	}
	start, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	var names []string
	var pods []cluster.Object
	for i := range b.plan.idlePods {
		name := b.name("rest-" + column)
		pod, err := asObject(b.manifest(name, shape{script: script, volumes: func(i int) []string {
			return []string{fmt.Sprintf("secret: {secretName: password%d}", i%secretsOfCluster)}
		}}, i))
		if err != nil {
			return err
		}
		if err := w.Server.Client().Create(start, pod); err != nil {
			return err
		}
		names, pods = append(names, name), append(pods, pod)
	}
	if _, err := b.marks.Wait(start, names...); err != nil {
		return errors.Join(err, w.Check())
	}
	if err := sleep(ctx, 2*b.plan.settle); err != nil {
		return err
	}
	pid := w.Pid()
	before, err := cpuOf([]int{pid})
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := sleep(ctx, min(b.plan.idle, idleOfAJob)); err != nil {
		return err
	}
	after, err := cpuOf([]int{pid})
	if err != nil {
		return err
	}
	took := time.Since(begin)
	requests, err := w.Server.Requests(w.Name(), begin)
	if err != nil {
		return err
	}
	memory, err := memoryOf(pid)
	if err != nil {
		return err
	}
	others := 0
	for _, r := range requests {
		if r.Verb != "watch" && r.Resource != "leases" {
			others++
		}
	}
	b.say("  in %v: %v; %.1f MiB of the memory anonymous, %.1f of files", took.Round(time.Second), counted(requests), memory["RssAnon"], memory["RssFile"])
	b.add(rowRequestsCluster, column, float64(others))
	b.add(rowIdleCluster, column, (after[pid]-before[pid]).Seconds()/took.Seconds()*1000)
	b.add(rowRSSCluster, column, memory["VmRSS"])
	end, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	return b.endInCluster(end, column, w, pods...)
}

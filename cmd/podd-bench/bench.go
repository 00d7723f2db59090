package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/testnode"
)

// agent is what a subject of the benchmark must be able to do.
type agent interface {
	start(ctx context.Context) error
	stop() error
	// apply puts prepared manifests into place by rename, as fast as it can,
	// and returns when it began.
	apply(manifests map[string]string) (time.Time, error)
	remove(files []string) (time.Time, error)
	pods(ctx context.Context) ([]v1.Pod, error)
	pid() int
}

// Names of the columns.
const (
	colFloor   = "floor"
	colPodd    = "podd"
	colKubelet = "kubelet"
)

type bench struct {
	node  *testnode.Node
	opts  options
	plan  plan
	say   func(string, ...any)
	marks *testnode.Marks
	out   string
	// serial makes every pod's name new.
	serial int
	agents map[string]agent
	// samples by row and column; rows in the order of rowList.
	samples map[string]map[string][]float64
}

func newBench(node *testnode.Node, opts options, say func(string, ...any)) (*bench, error) {
	out := filepath.Join(node.Dir, "out")
	if err := os.MkdirAll(out, 0o777); err != nil {
		return nil, fmt.Errorf("make the directory of marks: %w", err)
	}
	marks, err := testnode.NewMarks(out)
	if err != nil {
		return nil, err
	}
	b := &bench{node: node, opts: opts, plan: opts.plan(), say: say, marks: marks, out: out,
		agents: map[string]agent{}, samples: map[string]map[string][]float64{}}
	if opts.podd != "" {
		if b.agents[colPodd], err = newPodd(node, opts.podd); err != nil {
			return nil, errors.Join(err, marks.Close())
		}
	}
	if opts.kubelet != "" {
		b.agents[colKubelet] = newKubelet(node, opts.kubelet)
	}
	return b, nil
}

func (b *bench) close() error {
	errs := []error{b.marks.Close()}
	for _, a := range b.agents {
		errs = append(errs, a.stop())
	}
	return errors.Join(errs...)
}

func (b *bench) add(row, column string, value float64) {
	if b.samples[row] == nil {
		b.samples[row] = map[string][]float64{}
	}
	b.samples[row][column] = append(b.samples[row][column], value)
}

func (b *bench) name(prefix string) string {
	b.serial++
	return fmt.Sprintf("%s-%d", prefix, b.serial)
}

// all runs the floor in turns with podd, then the kubelet alone: it takes
// every pod of the runtime for its own, so nothing may run beside it.
func (b *bench) all(ctx context.Context) error {
	columns := []string{colFloor}
	if podd := b.agents[colPodd]; podd != nil {
		b.say("starting podd …")
		if err := podd.start(ctx); err != nil {
			return err
		}
		columns = append(columns, colPodd)
	}
	if err := b.rows(ctx, columns); err != nil {
		return err
	}
	kubelet := b.agents[colKubelet]
	if kubelet == nil {
		return nil
	}
	if podd := b.agents[colPodd]; podd != nil {
		if err := podd.stop(); err != nil {
			return err
		}
	}
	b.say("starting the kubelet …")
	if err := kubelet.start(ctx); err != nil {
		return err
	}
	return b.rows(ctx, []string{colKubelet})
}

func (b *bench) rows(ctx context.Context, columns []string) error {
	for _, part := range []struct {
		what   string
		rounds int
		f      func(context.Context, string, int) error
	}{
		{"warm-up", 1, b.warmUp},
		{"one pod", b.plan.ones, b.onePod},
		{"three init containers", b.plan.restarts, b.initPod},
		{"restart after a crash", b.plan.restarts, b.restart},
		{"delete of 5", b.plan.deletes, b.delete5},
		{"burst", b.plan.bursts, b.burst},
		{"at rest", 1, b.atRest},
	} {
		if b.opts.only != "" && part.what != "warm-up" && !slices.Contains(strings.Split(b.opts.only, ","), part.what) {
			continue
		}
		for round := range part.rounds {
			for _, column := range columns {
				b.say("%s %d/%d: %s", part.what, round+1, part.rounds, column)
				if err := part.f(ctx, column, round); err != nil {
					return fmt.Errorf("%s, %s: %w", part.what, column, err)
				}
			}
		}
	}
	return nil
}

// script is what a container of the benchmark does: a mark first, then
// nothing until it is told to end.
func script(mark string) string {
	return ": > /out/" + mark + "; trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"
}

func (b *bench) manifest(name, script string) string {
	return strings.NewReplacer("NAME", name, "IMAGE", testnode.ImageBusybox, "SCRIPT", script, "OUT", b.out).Replace(`apiVersion: v1
kind: Pod
metadata:
  name: NAME
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: IMAGE
    command: ["/bin/sh", "-c", "SCRIPT"]
    volumeMounts: [{name: out, mountPath: /out}]
  volumes:
  - name: out
    hostPath: {path: OUT}
`)
}

// floorPod is the same pod as manifest's, for the raw calls.
func (b *bench) floorPod(name, script string) *testnode.FloorPod {
	uid := "floor-" + name
	return &testnode.FloorPod{
		Name: name, UID: uid, Image: testnode.ImageBusybox, Command: []string{"/bin/sh", "-c", script},
		HostDir:      b.out,
		CgroupParent: b.node.CgroupRoot + "/kubepods/besteffort/pod" + uid,
		LogDir:       filepath.Join(b.node.Dir, "floorlogs", name),
	}
}

// waitNoContainers returns when no container of the agent's runs any more,
// and the time of the look that saw it.
func (b *bench) waitNoContainers(ctx context.Context) (time.Time, error) {
	return b.waitRuntime(ctx, func() (int, error) { return b.running(ctx) })
}

// waitNothing returns when no sandbox is ready (the kubelet removes dead ones
// minutes later) or, for all others, when none exists.
func (b *bench) waitNothing(ctx context.Context, column string) (time.Time, error) {
	return b.waitRuntime(ctx, func() (int, error) { return b.sandboxes(ctx, column != colKubelet) })
}

func (b *bench) waitRuntime(ctx context.Context, count func() (int, error)) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err = testnode.Poll(ctx, 5*time.Millisecond, func() error {
		n, err := count()
		if err != nil {
			return testnode.Stop(err)
		}
		if n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		at = time.Now()
		return nil
	})
	return at, err
}

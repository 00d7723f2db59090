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

// objectTaker is an agent whose pods may name ConfigMaps and Secrets. A kubelet
// refuses static pods that do; one that gets its pods from an apiserver is one, too.
type objectTaker interface {
	// object makes objects known, one or several documents of YAML, or another version
	// of them, and returns when it began. Those of one name are one file's.
	object(name, text string) (time.Time, error)
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
	ends  *testnode.Ends
	out   string
	// serial makes every pod's name new.
	serial int
	agents map[string]agent
	// inCluster takes the kubelet's place for what it needs an apiserver for; nil where
	// there is none.
	inCluster *inCluster
	// samples by row and column; rows in the order of rowList.
	samples map[string]map[string][]float64
}

func newBench(ctx context.Context, node *testnode.Node, opts options, say func(string, ...any)) (b *bench, err error) {
	out := filepath.Join(node.Dir, "out")
	if err := os.MkdirAll(out, 0o777); err != nil {
		return nil, fmt.Errorf("make the directory of marks: %w", err)
	}
	b = &bench{node: node, opts: opts, plan: opts.plan(), say: say, out: out,
		agents: map[string]agent{}, samples: map[string]map[string][]float64{}}
	if b.marks, err = testnode.NewMarks(out); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.ends, err = testnode.NewEnds(ctx, node.CRI); err != nil {
		return nil, err
	}
	if opts.podd != "" {
		if b.agents[colPodd], err = newPodd(node, opts.podd); err != nil {
			return nil, err
		}
	}
	if opts.kubelet != "" {
		b.agents[colKubelet] = newKubelet(node, opts.kubelet)
		b.inCluster = newInCluster(node, opts.kubelet, opts.apiserver)
	}
	return b, nil
}

func (b *bench) close() error {
	errs := []error{b.marks.Close()}
	if b.ends != nil {
		b.ends.Close()
	}
	for _, a := range b.agents {
		errs = append(errs, a.stop())
	}
	if b.inCluster != nil {
		errs = append(errs, b.inCluster.stop())
	}
	return errors.Join(errs...)
}

// add notes a sample; a row without a name is not wanted.
func (b *bench) add(row, column string, value float64) {
	if row == "" {
		return
	}
	if b.samples[row] == nil {
		b.samples[row] = map[string][]float64{}
	}
	b.samples[row][column] = append(b.samples[row][column], value)
}

func (b *bench) name(prefix string) string {
	b.serial++
	return fmt.Sprintf("%s-%d", prefix, b.serial)
}

// part is something that is measured of every column, rounds times a turn.
type part struct {
	what   string
	rounds int
	f      func(ctx context.Context, column string, round int) error
}

// all lets the columns take turns: nothing of podd or of the kubelet runs
// while the floor is measured, nor beside the other. Each turn begins with
// another column, so that a machine that slows down slows all alike. What takes
// long to settle, the node at rest, is measured once for each.
func (b *bench) all(ctx context.Context) error {
	columns := b.columns()
	for turn := range b.plan.turns {
		for i := range columns {
			column := columns[(turn+i)%len(columns)]
			if err := b.turn(ctx, column, turn); err != nil {
				return fmt.Errorf("turn %d, %s: %w", turn+1, column, err)
			}
		}
	}
	for _, column := range columns {
		b.say("at rest: %s", column)
		if err := b.block(ctx, column, 0, []part{{"at rest", 1, b.atRest}}); err != nil {
			return fmt.Errorf("at rest, %s: %w", column, err)
		}
	}
	if b.agents[colPodd] != nil {
		b.say("at rest with objects: %s", colPodd)
		if err := b.block(ctx, colPodd, 0, []part{{"at rest with objects", 1, b.atRestWithObjects}}); err != nil {
			return fmt.Errorf("at rest with objects: %w", err)
		}
	}
	if err := b.wholeCluster(ctx); err != nil {
		return err
	}
	if b.opts.podd != "" && b.wants("crowd") {
		b.say("crowd: one pod more beside many")
		if err := b.crowd(ctx); err != nil {
			return fmt.Errorf("crowd: %w", err)
		}
	}
	if b.opts.podd == "" || !b.wants("share") {
		return nil
	}
	b.say("share: podd behind a proxy that times its calls")
	return b.share(ctx)
}

// turn is one of a column's turns. The kubelet has objects from an apiserver alone; its
// updates are not measured, since one takes it a minute and more.
func (b *bench) turn(ctx context.Context, column string, turn int) error {
	b.say("turn %d/%d: %s", turn+1, b.plan.turns, column)
	starts := []part{
		{"one pod", b.plan.ones, b.onePod},
		{"three init containers", b.plan.inits, b.initPod},
		{"restart after a crash", b.plan.restarts, b.restart},
		{"delete of 5", b.plan.deletes, b.delete5},
		{"burst", b.plan.bursts, b.burst},
	}
	volumes, updates := part{"ten volumes", b.plan.volumes, b.tenVolumes}, part{"updates", b.plan.updates, b.updates}
	if column != colKubelet {
		return b.block(ctx, column, turn, append(starts, volumes, updates))
	}
	if err := b.block(ctx, column, turn, starts); err != nil {
		return err
	}
	return b.turnInCluster(ctx, turn, []part{volumes})
}

func (b *bench) columns() []string {
	list := []string{colFloor}
	for _, c := range []string{colPodd, colKubelet} {
		if b.agents[c] != nil {
			list = append(list, c)
		}
	}
	return list
}

func (b *bench) wants(what string) bool {
	return b.opts.only == "" || slices.Contains(strings.Split(b.opts.only, ","), what)
}

// block starts the column's agent, does the parts and stops the agent. A first
// pod that is not measured warms the caches of all of them.
func (b *bench) block(ctx context.Context, column string, turn int, parts []part) (err error) {
	parts = slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.rounds == 0 || !b.wants(p.what) })
	if len(parts) == 0 {
		return nil
	}
	if agent := b.agents[column]; agent != nil {
		if err := agent.start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, agent.stop(), b.clear(ctx, column)) }()
	}
	if err := b.warmUp(ctx, column); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	for _, p := range parts {
		for round := range p.rounds {
			b.say("  %s %d/%d", p.what, round+1, p.rounds)
			if err := p.f(ctx, column, turn*p.rounds+round); err != nil {
				return fmt.Errorf("%s: %w", p.what, err)
			}
		}
	}
	return nil
}

// clear removes the dead sandboxes that the kubelet would keep for minutes: the
// next column must not find them. podd has removed its own.
func (b *bench) clear(ctx context.Context, column string) error {
	if column != colKubelet {
		return nil
	}
	return b.node.CRI.RemoveAll(ctx)
}

// waitNothing returns when no sandbox is ready (the kubelet removes dead ones
// minutes later) or, for all others, when none exists. It measures nothing.
func (b *bench) waitNothing(ctx context.Context, column string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return testnode.Poll(ctx, 5*time.Millisecond, func() error {
		n, err := b.sandboxes(ctx, column != colKubelet)
		if err != nil {
			return testnode.Stop(err)
		}
		if n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

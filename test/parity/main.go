package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"podd/test/e2e/testnode"
)

type options struct {
	scenario, agent                                    string
	verbose                                            bool
	slots                                              int
	podd, kubelet, fixture, bundle, images, here, keep string
	results                                            string
}

func main() {
	var o options
	flag.StringVar(&o.scenario, "scenario", "", "run the scenarios whose name matches this pattern only")
	flag.StringVar(&o.agent, "agent", "", "run podd or kubelet only, or none: the records of the last run are compared")
	flag.BoolVar(&o.verbose, "v", false, "show known differences and both sequences")
	flag.IntVar(&o.slots, "slots", 8, "how many scenarios run at once on each side")
	flag.StringVar(&o.podd, "podd", "build/podd", "podd to compare")
	flag.StringVar(&o.kubelet, "kubelet", "", "upstream's kubelet")
	flag.StringVar(&o.fixture, "fixture", "", "the program that containers have as /tools/fixture")
	flag.StringVar(&o.bundle, "bundle", "build/runtime/bin", "containerd and its companions")
	flag.StringVar(&o.images, "images", "build/images", "podd's images")
	flag.StringVar(&o.here, "dir", "test/parity", "where scenarios and differences.txt are")
	flag.StringVar(&o.keep, "records", "build/parity", "where records are kept")
	flag.StringVar(&o.results, "results", "", "write the table to this file too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	same, err := o.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "make parity:", err)
	}
	if err != nil || !same {
		os.Exit(1)
	}
}

// run returns whether everything that differs is known.
func (o options) run(ctx context.Context) (bool, error) {
	scenarios, err := loadScenarios(filepath.Join(o.here, "scenarios"), o.scenario)
	if err != nil {
		return false, err
	}
	known, err := loadKnown(filepath.Join(o.here, "differences.txt"))
	if err != nil {
		return false, err
	}
	sides := []string{"kubelet", "podd"}
	switch o.agent {
	case "":
	case "none": // compare the records of the last run
		return o.report(scenarios, known)
	default:
		if !slices.Contains(sides, o.agent) {
			return false, fmt.Errorf("there is no agent %q", o.agent)
		}
		sides = []string{o.agent}
	}
	registry, err := serveImages(o.images)
	if err != nil {
		return false, err
	}
	same := false
	err = o.withSides(ctx, sides, registry, func(all []*Side) error {
		if err := o.playOn(ctx, all, scenarios, o.slots); err != nil {
			return err
		}
		// A machine that was short of breath makes differences that are none:
		// what differs is played once more, with few beside it.
		again, err := o.differing(scenarios, known)
		if err != nil {
			return err
		}
		if len(again) > 0 && len(all) > 1 {
			fmt.Fprintf(os.Stderr, "%d scenarios differ and are played again\n", len(again))
			for i, s := range again {
				second := *s
				second.As += "-again"
				again[i] = &second
			}
			if err := o.playOn(ctx, all, again, 3); err != nil {
				return err
			}
		}
		same, err = o.report(scenarios, known)
		return err
	})
	return same, err
}

// playOn plays the scenarios on all sides at the same time.
func (o options) playOn(ctx context.Context, all []*Side, scenarios []*Scenario, slots int) error {
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, side := range all {
		wg.Go(func() {
			if err := o.playAll(ctx, side, scenarios, slots); err != nil {
				errs[i] = fmt.Errorf("%s: %w\n%s", side.Name, err, side.Agent.LogTail())
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// withSides makes a node for each side, starts its agent, calls f and takes all
// of it down again.
func (o options) withSides(ctx context.Context, names []string, registry string, f func([]*Side) error) (err error) {
	var all []*Side
	for _, name := range names {
		side, stop, err := o.startSide(ctx, name, registry)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		all = append(all, side)
	}
	return f(all)
}

// startSide makes a node and starts an agent on it; stop takes both down.
func (o options) startSide(ctx context.Context, name, registry string) (side *Side, stop func() error, err error) {
	b := testnode.Bundle{Bin: absolute(o.bundle), Images: absolute(o.images), Podd: absolute(o.podd)}
	node, err := testnode.NewNode(ctx, filepath.Join(os.TempDir(), "podd-parity"), b)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	side = &Side{
		Name: name, Node: node, Out: filepath.Join(node.Dir, "out"), Tools: filepath.Join(node.Dir, "tools"),
		Registry: registry, watched: map[string]*watched{}, polled: make(chan struct{}),
	}
	polling, cancel := context.WithCancel(ctx)
	var poll sync.WaitGroup
	stop = func() error {
		cancel()
		poll.Wait()
		var err error
		if side.Agent != nil {
			err = errors.Join(side.Agent.Stop(), o.keepLog(name, node))
		}
		return errors.Join(err, node.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", name, err), stop())
		}
	}()
	err = errors.Join(os.MkdirAll(side.Out, 0o755), os.MkdirAll(side.Tools, 0o755), copyFile(o.fixture, filepath.Join(side.Tools, "fixture")))
	if err != nil {
		return nil, nil, err
	}
	if side.Agent, err = o.newAgent(name, node); err != nil {
		return nil, nil, err
	}
	if err := side.Agent.Start(ctx); err != nil {
		return nil, nil, err
	}
	poll.Go(func() { side.Poll(polling) })
	return side, stop, nil
}

func (o options) newAgent(name string, node *testnode.Node) (Agent, error) {
	if name == "podd" {
		return newPodd(node)
	}
	return newKubelet(node, absolute(o.kubelet)), nil
}

// keepLog saves what the agent wrote.
func (o options) keepLog(name string, node *testnode.Node) error {
	return copyFile(filepath.Join(node.Dir, name, name+".log"), filepath.Join(o.keep, name+".log"))
}

// playAll runs the scenarios, those that wait longest first.
func (o options) playAll(ctx context.Context, side *Side, scenarios []*Scenario, slots int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	order := slices.Clone(scenarios)
	slices.SortStableFunc(order, func(a, b *Scenario) int { return int(o.lastTook(side.Name, b) - o.lastTook(side.Name, a)) })
	queue := make(chan *Scenario)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	done := 0
	for range slots {
		wg.Go(func() {
			for s := range queue {
				record := side.Run(ctx, s)
				err := o.save(side.Name, record)
				if !side.Agent.Running() {
					err = errors.Join(err, fmt.Errorf("%s ended during %s (or another scenario at the same time)", side.Name, s.Name))
					cancel()
				}
				mu.Lock()
				done++
				errs = append(errs, err)
				fmt.Fprintf(os.Stderr, "%3d/%d %-8s %-36s %5.1f s %s\n", done, len(scenarios), side.Name, s.Name, record.Took.Seconds(), record.Failed)
				mu.Unlock()
			}
		})
	}
	for _, s := range order {
		if ctx.Err() != nil {
			break
		}
		queue <- s
	}
	close(queue)
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

func (o options) recordFile(side, scenario string) string {
	return filepath.Join(o.keep, side, scenario+".json")
}

func (o options) save(side string, r *Record) error {
	path := o.recordFile(side, r.Scenario)
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644))
}

func (o options) load(side, scenario string) (*Record, error) {
	text, err := os.ReadFile(o.recordFile(side, scenario))
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read the record of %s on %s: %w", scenario, side, err)
	}
	return r, nil
}

func (o options) lastTook(side string, s *Scenario) time.Duration {
	if r, err := o.load(side, s.Name); err == nil {
		return r.Took
	}
	return 0
}

// compared is what came of one scenario: nil records where a side has none.
func (o options) compared(s *Scenario, known []*Known) (open, listed []Difference, missing string, err error) {
	upstream, err := o.load("kubelet", s.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, "no record of the kubelet's", nil
	}
	ours, err2 := o.load("podd", s.Name)
	if errors.Is(err2, fs.ErrNotExist) {
		return nil, nil, "no record of podd's", nil
	}
	if err := errors.Join(err, err2); err != nil {
		return nil, nil, "", err
	}
	open, listed = sortOut(compare(upstream, ours), known)
	return open, listed, "", nil
}

// differing are the scenarios with differences that are not listed.
func (o options) differing(scenarios []*Scenario, known []*Known) ([]*Scenario, error) {
	var all []*Scenario
	for _, s := range scenarios {
		open, _, _, err := o.compared(s, known)
		if err != nil {
			return nil, err
		}
		if len(open) > 0 {
			all = append(all, s)
		}
	}
	return all, nil
}

// report compares all records and prints the table; it returns whether every
// difference is known and every known one was seen.
func (o options) report(scenarios []*Scenario, known []*Known) (bool, error) {
	var table strings.Builder
	var open []Difference
	complete := true
	fmt.Fprintf(&table, "%-38s %-10s %-10s %-10s %s\n", "scenario", "statuses", "events", "trace", "verdict")
	for _, s := range scenarios {
		found, listed, missing, err := o.compared(s, known)
		if err != nil {
			return false, err
		}
		if missing != "" {
			complete = false
			fmt.Fprintf(&table, "%-38s %s\n", s.Name, missing)
			continue
		}
		open = append(open, found...)
		table.WriteString(row(s.Name, found, listed))
		for _, d := range listed {
			if o.verbose {
				fmt.Printf("known: %v\n", d)
			}
		}
	}
	ok := len(open) == 0 && complete
	for _, d := range open {
		fmt.Println(d)
	}
	if o.scenario == "" && complete { // a part says nothing about the list
		ok = unused(known) && ok
	}
	fmt.Printf("\n%s\n%d scenarios, %d differences that are not listed\n", table.String(), len(scenarios), len(open))
	if o.results != "" {
		return ok, os.WriteFile(o.results, []byte("```\n"+table.String()+"```\n"), 0o644)
	}
	return ok, nil
}

// unused prints the known differences that nobody saw, and returns whether
// there were none.
func unused(known []*Known) bool {
	ok := true
	for _, k := range known {
		if !k.used && !k.Sometimes {
			ok = false
			fmt.Printf("differences.txt:%d: no longer differs: %s %s: %v\n", k.Line, k.Scenario, k.Column, k.What)
		}
	}
	return ok
}

func row(name string, open, listed []Difference) string {
	cell := func(column string) string {
		count := func(all []Difference) (n int) {
			for _, d := range all {
				if d.Column == column {
					n++
				}
			}
			return n
		}
		switch a, b := count(open), count(listed); {
		case a > 0:
			return fmt.Sprintf("%d differ", a)
		case b > 0:
			return fmt.Sprintf("%d known", b)
		default:
			return "same"
		}
	}
	verdict := "same"
	if len(open) > 0 {
		verdict = "DIFFERS"
	} else if len(listed) > 0 {
		verdict = "known"
	}
	return fmt.Sprintf("%-38s %-10s %-10s %-10s %s\n", name, cell(colStatuses), cell(colEvents), cell(colTrace), verdict)
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o755))
}

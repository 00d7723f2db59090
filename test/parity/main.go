package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// slots is how many scenarios run at once on each side, if nobody says otherwise.
const slots = 6

type options struct {
	scenario, agent                                    string
	verbose                                            bool
	slots                                              int
	podd, kubelet, fixture, bundle, images, here, keep string
	results                                            string
	// apiserver is what test/cluster/apiserver builds.
	apiserver string
}

func main() {
	var o options
	flag.StringVar(&o.scenario, "scenario", "", "run the scenarios whose name matches this pattern only")
	flag.StringVar(&o.agent, "agent", "", "run podd or kubelet only, or none: the records of the last run are compared")
	flag.BoolVar(&o.verbose, "v", false, "show known differences and both sequences")
	flag.IntVar(&o.slots, "slots", slots, "how many scenarios run at once on each side")
	flag.StringVar(&o.podd, "podd", "build/podd", "podd to compare")
	flag.StringVar(&o.kubelet, "kubelet", "", "upstream's kubelet")
	flag.StringVar(&o.apiserver, "apiserver", "", "upstream's apiserver, for scenarios that need one")
	flag.StringVar(&o.fixture, "fixture", "", "the program that containers have as /tools/fixture")
	flag.StringVar(&o.bundle, "bundle", "build/runtime/bin", "containerd and its companions")
	flag.StringVar(&o.images, "images", "build/images", "podd's images")
	flag.StringVar(&o.here, "dir", "test/parity", "where scenarios and differences.yaml are")
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
	known, err := loadKnown(filepath.Join(o.here, "differences.yaml"))
	if err != nil {
		return false, err
	}
	sides := allSides
	switch o.agent {
	case "":
	case "none": // compare the records of the last run
		return o.report(scenarios, known)
	case "kubelet":
		sides = []string{sideKubelet}
	case "podd":
		sides = []string{sidePodd, sideOwn}
	default:
		return false, fmt.Errorf("there is no agent %q: it is podd, kubelet, or none", o.agent)
	}
	if err := o.play(ctx, sides, scenarios); err != nil {
		return false, err
	}
	return o.report(scenarios, known)
}

// play plays scenarios on the named sides, each on a node of its own, and saves
// the records. Nothing is played twice: a difference that comes and goes is one.
func (o options) play(ctx context.Context, sides []string, scenarios []*Scenario) error {
	registry, err := serveImages(o.images)
	if err != nil {
		return err
	}
	for _, g := range groups(scenarios, sides) {
		var together, single []*Scenario
		for _, s := range g.scenarios {
			if s.alone() {
				single = append(single, s)
			} else {
				together = append(together, s)
			}
		}
		err := o.withSides(ctx, g, registry, func(all []*Side) error {
			if err := o.playOn(ctx, all, together, o.slots); err != nil {
				return err
			}
			return o.playOn(ctx, all, single, 1)
		})
		if err != nil {
			return err
		}
	}
	return nil
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
				}
				if err = errors.Join(err, side.failure()); err != nil {
					cancel() // nothing that is played now shows anything
				}
				mu.Lock()
				done++
				errs = append(errs, err)
				fmt.Fprintf(os.Stderr, "%3d/%d %-8s %-38s %5.1f s %s\n", done, len(scenarios), side.Name, s.Name, record.Took.Seconds(), record.Failed)
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

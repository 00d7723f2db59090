package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"podd/test/e2e/testnode"
)

// options are those of one run.
type options struct {
	seed   uint64
	faults int
	// settle is after how many faults the node must come to rest.
	settle int
	// storm, unless 0, is how many pods with Secrets come and go for length, while podd
	// is killed so many times; then no other fault strikes.
	storm, kills int
	length       time.Duration
	// flood, unless 0, is how many pods come at once and go at once, three times.
	flood  int
	bundle testnode.Bundle
	// apiserver is the path of a kube-apiserver; with it the node is one of a cluster.
	apiserver string
	// self is the static binary of this program, which containers run.
	self string
	// keep is where the logs of a failed run are left.
	keep string
	out  io.Writer
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "contain" {
		os.Exit(contain(os.Args[2:]))
	}
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := options{out: os.Stdout}
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.Uint64Var(&o.seed, "seed", 0, "what pods and faults follow from; 0 takes the time")
	f.IntVar(&o.faults, "faults", 40, "how many faults strike")
	f.IntVar(&o.settle, "settle", 10, "after how many of them the node must come to rest")
	f.IntVar(&o.storm, "storm", 0, "how many pods with Secrets come and go, with podd killed at random; no other faults")
	f.DurationVar(&o.length, "for", 5*time.Minute, "how long they do, with -storm")
	f.IntVar(&o.kills, "kills", 20, "how often podd is killed meanwhile")
	f.IntVar(&o.flood, "flood", 0, "how many pods come at once and go at once, three times; no faults but podd and containerd killed once")
	f.StringVar(&o.apiserver, "apiserver", "", "a kube-apiserver: the node is one of a cluster then, which faults strike, too")
	f.StringVar(&o.bundle.Podd, "podd", "build/podd", "the binary to test")
	f.StringVar(&o.bundle.Bin, "bundle", "build/runtime/bin", "the bundled runtime")
	f.StringVar(&o.bundle.Images, "images", "build/images", "the images' archives")
	f.StringVar(&o.keep, "keep", "build/chaos", "where the logs of a failed run are left")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.faults < 1 || o.settle < 1 || o.storm < 0 || o.kills < 0 || o.length <= 0 || o.flood < 0 || o.flood > maxPods || o.storm+o.flood > 0 && o.apiserver != "" || o.storm > 0 && o.flood > 0 {
		return o, fmt.Errorf("usage: chaos [-seed N] [-faults N] [-settle N], each at least 1, or chaos -storm PODS [-seed N] [-for TIME] [-kills N], or chaos -flood PODS, at most %d", maxPods)
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	var err error
	if o.self, err = os.Executable(); err != nil {
		return o, err
	}
	for _, path := range []*string{&o.bundle.Podd, &o.bundle.Bin, &o.bundle.Images, &o.keep} {
		if *path, err = filepath.Abs(*path); err != nil {
			return o, err
		}
	}
	return o, nil
}

// maxPods is how many ports a Linux bridge has, less some.
const maxPods = 1000

// run makes a node, lets the faults strike and gives the node back.
func run(ctx context.Context, o options) (err error) {
	fmt.Fprintf(o.out, "chaos: seed %d, %s\n", o.seed, o.what())
	w, err := newWorld(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.start(ctx); err != nil {
		return err
	}
	began, strike := time.Now(), w.strikeAll
	switch {
	case o.storm > 0:
		strike = w.stormAll
	case o.flood > 0:
		strike = w.floodAll
	}
	step, err := strike(ctx)
	if err == nil {
		err = w.end(ctx)
	}
	if err == nil {
		if w.member != nil {
			fmt.Fprintf(o.out, "chaos: podd deleted %d pods from the apiserver, with nothing left of each\n", w.member.deleted)
		}
		fmt.Fprintf(o.out, "chaos: %s in %v, %d pods came, %d faults left podd or the runtime dead, %d canaries were mounted in emptyDirs; every promise held\n",
			o.what(), time.Since(began).Round(time.Second), w.made, w.deaths, w.bound)
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(fmt.Errorf("seed %d, after fault %d: %w", o.seed, step, err), w.keepLogs(), fmt.Errorf("to replay: %s", o.replay(step)))
}

// what the run consists of.
func (o options) what() string {
	if o.storm > 0 {
		return fmt.Sprintf("%d pods with Secrets that come and go for %v, podd killed %d times", o.storm, o.length, o.kills)
	}
	if o.flood > 0 {
		return fmt.Sprintf("%d pods that come at once and go at once, %d times", o.flood, floodRounds)
	}
	if o.apiserver != "" {
		return fmt.Sprintf("%d faults on a node of a cluster", o.faults)
	}
	return fmt.Sprintf("%d faults", o.faults)
}

// replay is the command that repeats a run up to a step.
func (o options) replay(step int) string {
	if o.storm > 0 {
		return fmt.Sprintf("make chaos SEED=%d STORM=%d FOR=%v KILLS=%d", o.seed, o.storm, o.length, o.kills)
	}
	if o.flood > 0 {
		return fmt.Sprintf("make storm N=%d", o.flood)
	}
	replay := fmt.Sprintf("make chaos SEED=%d FAULTS=%d", o.seed, max(step, 1))
	if o.apiserver != "" {
		replay += " CLUSTER=1"
	}
	return replay
}

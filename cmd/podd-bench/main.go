// Command podd-bench measures podd against the raw CRI calls on the bundled
// runtime, and against upstream's kubelet when given its binary.
//
// It runs everything in one go on one containerd of its own, alternating
// between the floor and podd, so that a machine that slows down slows both.
// A start is counted from the rename of the manifest into place to the first
// instruction of the container, which makes a file in a hostPath; never to a
// line of anybody's log.
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

type options struct {
	podd, kubelet, bundle, images, dir string
	quick, check                       bool
	output, cpuProfile, heapProfile    string
	only                               string
}

// plan is how often and how long: about six minutes, and five more with a
// kubelet. The floor's best burst has always been between widths 4 and 8.
type plan struct {
	ones, bursts, burstSize, restarts, deletes, idlePods int
	settle, idle                                         time.Duration
	widths                                               []int
}

func (o options) plan() plan {
	if o.quick {
		return plan{ones: 5, bursts: 1, burstSize: 50, restarts: 3, deletes: 1, idlePods: 58,
			settle: 5 * time.Second, idle: 15 * time.Second, widths: []int{6}}
	}
	return plan{ones: 15, bursts: 3, burstSize: 50, restarts: 7, deletes: 5, idlePods: 58,
		settle: 10 * time.Second, idle: 60 * time.Second, widths: []int{4, 8}}
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0, 1 for an error, 2 for bad usage, 3 when
// --check finds a bar missed.
func run(args []string, stdout, stderr io.Writer) int {
	opts, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	results, err := measure(ctx, opts, stderr)
	if len(results) > 0 {
		if perr := printResults(stdout, opts, results); perr != nil {
			err = errors.Join(err, perr)
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "podd-bench:", err)
		return 1
	}
	if missed := missedBars(results); opts.check && len(missed) > 0 {
		_, _ = fmt.Fprintf(stderr, "podd-bench: %d bars missed: %v\n", len(missed), missed)
		return 3
	}
	return 0
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("podd-bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.podd, "podd", "build/podd", "`path` of podd; empty measures the floor alone")
	fs.StringVar(&o.kubelet, "kubelet", os.Getenv("KUBELET"), "`path` of upstream's kubelet, to measure it too (default $KUBELET)")
	fs.StringVar(&o.bundle, "bundle", "build/runtime/bin", "`directory` of containerd, runc and the CNI plugins")
	fs.StringVar(&o.images, "images", "build/images", "`directory` of the image archives")
	fs.StringVar(&o.dir, "dir", filepath.Join(os.TempDir(), "podd-bench"), "working `directory`, emptied afterwards")
	fs.BoolVar(&o.quick, "quick", false, "fewer rounds, for a look rather than for a verdict")
	fs.StringVar(&o.only, "only", "", "measure only these `parts`, as progress names them, with commas between (\"burst,at rest\")")
	fs.BoolVar(&o.check, "check", false, "exit with 3 when a bar is missed")
	fs.StringVar(&o.output, "o", "table", "`format` of the result: table or json")
	fs.StringVar(&o.cpuProfile, "cpuprofile", "", "write podd's CPU profile during a burst to `file`")
	fs.StringVar(&o.heapProfile, "heapprofile", "", "write podd's heap profile at rest with all pods to `file`")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.output != "table" && o.output != "json" {
		_, _ = fmt.Fprintf(stderr, "podd-bench: -o %s: want table or json\n", o.output)
		return o, flag.ErrHelp
	}
	return o, nil
}

// measure makes the node, runs every row and leaves nothing behind, whatever
// ends it. Rows that were measured before an error are returned with it.
func measure(ctx context.Context, opts options, progress io.Writer) (results []result, err error) {
	abs := func(path string) string { p, _ := filepath.Abs(path); return p }
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(progress, format+"\n", args...) }
	say("starting containerd …")
	node, err := testnode.NewNode(ctx, abs(opts.dir), testnode.Bundle{Bin: abs(opts.bundle), Images: abs(opts.images)})
	if err != nil {
		return nil, err
	}
	defer func() {
		say("cleaning up …")
		err = errors.Join(err, node.Close(), removeIfEmpty(opts.dir))
	}()
	b, err := newBench(node, opts, say)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	err = b.all(ctx)
	return b.results(), err
}

// removeIfEmpty leaves the directory to a second benchmark that uses it.
func removeIfEmpty(dir string) error {
	err := os.Remove(dir)
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

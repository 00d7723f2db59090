// Command podd-bench measures podd against the raw CRI calls on the bundled
// runtime, and against upstream's kubelet when given its binary.
//
// It runs everything in one go on one containerd of its own. The floor, podd
// and the kubelet take turns, each alone, so that a machine that slows down
// slows all of them.
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
	podd, kubelet, apiserver        string
	controllerManager, scheduler    string
	bundle, images, dir             string
	quick, check                    bool
	output, cpuProfile, heapProfile string
	only, report, page              string
}

// plan is how often and how long: about five minutes for the floor and as much
// for podd, ten with a kubelet, two with its apiserver, and five minutes at rest
// for each, sixteen more for podd with objects, fifteen in clusters, and fifteen beside up
// to 1,000 pods. The floor's best burst has
// always been between widths 4 and 8. At rest podd's own jobs of
// every five minutes (the relist, the images' disk) are inside.
type plan struct {
	// turns is how often each column has its turn; the counts below are in each.
	turns                                  int
	ones, inits, restarts, deletes, bursts int
	burstSize, idlePods                    int
	shares                                 int
	// volumes are the pairs of a pod with ten volumes and one without, updates the
	// storms of updates of a ConfigMap, of so many each.
	volumes, updates, updatesOfOne int
	// crowd is the largest number of pods beside which one more is measured, more times.
	crowd, more int
	// deployments are those of fifty pods that come and go in a cluster.
	deployments  int
	settle, idle time.Duration
	widths       []int
}

func (o options) plan() plan {
	if o.quick {
		return plan{turns: 1, ones: 5, inits: 3, restarts: 3, deletes: 1, bursts: 1, burstSize: 50, idlePods: 58, shares: 5, volumes: 5, updates: 1, updatesOfOne: 3000, deployments: 1, crowd: 300, more: 5,
			settle: 5 * time.Second, idle: 15 * time.Second, widths: []int{6}}
	}
	return plan{turns: 3, ones: 5, inits: 3, restarts: 3, deletes: 2, bursts: 1, burstSize: 50, idlePods: 58, shares: 15, volumes: 20, updates: 1, updatesOfOne: 10_000, deployments: 1, crowd: 1000, more: 10,
		settle: 10 * time.Second, idle: idleOfAJob + 10*time.Second, widths: []int{4, 8}}
}

// idleOfAJob is the period of podd's rarest jobs: none of them is longer away.
const idleOfAJob = 5 * time.Minute

func main() {
	if len(os.Args) == 5 && os.Args[1] == reads {
		os.Exit(readVolume(os.Args[2], os.Args[3], os.Args[4]))
	}
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
		err = errors.Join(err, printResults(stdout, opts, results))
	}
	if err == nil {
		err = report(ctx, opts, results, stderr)
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

// report writes what was asked for beside the printed table.
func report(ctx context.Context, opts options, results []result, stderr io.Writer) error {
	if opts.report == "" && opts.page == "" {
		return nil
	}
	m := thisMachine(ctx, opts)
	if opts.report != "" {
		if err := saveReport(opts.report, m, results); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(stderr, "the report is in %s: bench.md, bench.json, bench.svg\n", opts.report)
	}
	if opts.page != "" {
		return updatePage(opts.page, m, results)
	}
	return nil
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("podd-bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.podd, "podd", "build/podd", "`path` of podd; empty measures the floor alone")
	fs.StringVar(&o.kubelet, "kubelet", os.Getenv("KUBELET"), "`path` of upstream's kubelet, to measure it too (default $KUBELET)")
	fs.StringVar(&o.apiserver, "apiserver", os.Getenv("APISERVER"), "`path` of a kube-apiserver, from which the kubelet has pods with volumes that static pods of it cannot have (default $APISERVER)")
	fs.StringVar(&o.controllerManager, "controller-manager", os.Getenv("CONTROLLERMANAGER"), "`path` of a kube-controller-manager: with it, -apiserver and -scheduler there are rows of a whole cluster (default $CONTROLLERMANAGER)")
	fs.StringVar(&o.scheduler, "scheduler", os.Getenv("SCHEDULER"), "`path` of a kube-scheduler (default $SCHEDULER)")
	fs.StringVar(&o.bundle, "bundle", "build/runtime/bin", "`directory` of containerd, runc and the CNI plugins")
	fs.StringVar(&o.images, "images", "build/images", "`directory` of the image archives")
	fs.StringVar(&o.dir, "dir", "", "working `directory`, emptied afterwards (default "+defaultDir()+", on an ext4 of its own, in memory)")
	fs.BoolVar(&o.quick, "quick", false, "fewer rounds, for a look rather than for a verdict")
	fs.StringVar(&o.only, "only", "", "measure only these `parts`, as progress names them, with commas between (\"burst,at rest\")")
	fs.BoolVar(&o.check, "check", false, "exit with 3 when a bar is missed")
	fs.StringVar(&o.output, "o", "table", "`format` of the result: table or json")
	fs.StringVar(&o.report, "report", "", "write bench.json, bench.md and bench.svg, with the machine and the date, into this `directory`")
	fs.StringVar(&o.page, "page", "", "write the table into this `file`, between its two lines that say \"make bench\"")
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
	dir, leave, err := workplace(opts.dir, say)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	say("starting containerd …")
	node, err := testnode.NewNode(ctx, dir, testnode.Bundle{Bin: abs(opts.bundle), Images: abs(opts.images)})
	if err != nil {
		return nil, err
	}
	defer func() {
		say("cleaning up …")
		err = errors.Join(err, node.Close())
	}()
	b, err := newBench(ctx, node, opts, say)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	err = b.all(ctx)
	return b.results(), err
}

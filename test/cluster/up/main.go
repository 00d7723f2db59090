// Command up starts a cluster of one node on this machine and leaves it running until it
// is told to end (make cluster), or runs upstream's end-to-end tests in it (make
// conformance). When it ends, also when it is killed, nothing of the cluster stays.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"podd/test/cluster"
	"podd/test/cluster/conformance"
	"podd/test/e2e/testnode"
)

type options struct {
	programs cluster.Programs
	bundle   testnode.Bundle
	kubectl  string
	out      string // directory of what this command writes
	images   string // archive for the node
	suite    conformance.Suite
}

func (o *options) bind() {
	flag.StringVar(&o.programs.APIServer, "apiserver", "", "binary of test/cluster/apiserver")
	flag.StringVar(&o.programs.Manager, "controller-manager", "", "upstream's kube-controller-manager")
	flag.StringVar(&o.programs.Scheduler, "scheduler", "", "upstream's kube-scheduler")
	flag.StringVar(&o.programs.Kubelet, "kubelet", "", "upstream's kubelet, to be the node in podd's place")
	flag.StringVar(&o.kubectl, "kubectl", "kubectl", "kubectl, for what is told to the user")
	flag.StringVar(&o.bundle.Podd, "podd", "build/podd", "podd's binary")
	flag.StringVar(&o.bundle.Bin, "runtime", "build/runtime/bin", "directory of the bundled runtime")
	flag.StringVar(&o.bundle.Images, "images", "build/images", "directory of podd's image archives")
	flag.StringVar(&o.images, "suite-images", "", "archive of further images")
	flag.StringVar(&o.out, "out", "build/cluster", "directory for the kubeconfig, and for the results of tests")
	flag.StringVar(&o.suite.Ginkgo, "ginkgo", "", "ginkgo's command: runs upstream's tests instead of waiting")
	flag.StringVar(&o.suite.Tests, "tests", "", "upstream's e2e.test")
	flag.StringVar(&o.suite.Focus, "focus", `\[NodeConformance\]`, "regular expression of the tests to run")
	flag.StringVar(&o.suite.Skip, "skip", `\[(Flaky|Disruptive|Slow|Serial)\]`, "regular expression of those to leave out")
	flag.IntVar(&o.suite.Procs, "procs", 6, "how many tests run at once")
	flag.StringVar(&o.suite.Expected, "expected", "test/cluster/conformance/expected.txt", "file of the tests that cannot pass")
	flag.IntVar(&o.suite.AtLeast, "at-least", 1, "fail if fewer tests run")
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == guardArg {
		if err := guard(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var o options
	o.bind()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) (err error) {
	if err := o.absolute(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	begin := time.Now()
	// Short: with /root/plugins and the longest name of upstream's drivers, a socket's path is 105 of 107 bytes.
	node, err := testnode.NewNode(ctx, filepath.Join(os.TempDir(), "podd"), o.bundle)
	if err != nil {
		return err
	}
	release, err := watchOver(node.Place)
	if err != nil {
		return errors.Join(err, node.Close())
	}
	defer func() { err = errors.Join(err, node.Close(), release()) }()
	if o.images != "" {
		if err := importSuite(ctx, node, o.images); err != nil {
			return err
		}
		if err := serveSuite(node, o.images); err != nil {
			return err
		}
	}
	whole, err := cluster.StartWhole(ctx, node, o.programs)
	defer func() { err = errors.Join(err, keepLogs(node.Dir, o.out), whole.Close()) }()
	if ctx.Err() != nil {
		return errors.New("interrupted before the cluster was ready")
	}
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(o.out, "kubeconfig")
	if err := whole.Server.Kubeconfig(kubeconfig); err != nil {
		return err
	}
	fmt.Printf("the cluster is ready after %.0f s\n", time.Since(begin).Seconds())
	if o.suite.Ginkgo != "" {
		return test(ctx, o, node.Dir, whole)
	}
	return wait(ctx, o, whole, kubeconfig)
}

// absolute makes paths independent of a working directory: the programs have their own.
func (o *options) absolute() (err error) {
	for _, path := range []*string{
		&o.programs.APIServer, &o.programs.Manager, &o.programs.Scheduler, &o.programs.Kubelet, &o.bundle.Podd, &o.bundle.Bin, &o.bundle.Images,
		&o.images, &o.out, &o.suite.Ginkgo, &o.suite.Tests, &o.suite.Expected,
	} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	return nil
}

// wait returns when the user wants the cluster to end, or a part of it ended by itself.
func wait(ctx context.Context, o *options, whole *cluster.Whole, kubeconfig string) error {
	fmt.Printf(`
In another terminal:

  export KUBECONFIG=%[1]s
  %[2]s get nodes -o wide
  %[2]s run web --image=localhost/podd/web:1 --image-pull-policy=Never
  %[2]s get pods -o wide

Images are those of podd (%[3]s) and what the node can pull. Services have no
addresses that work and there is no DNS: no kube-proxy runs. Logs are below
%[4]s. Ctrl-C ends the cluster and removes it.

`, kubeconfig, o.kubectl, o.bundle.Images, whole.Node.Dir)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			fmt.Println("ending the cluster")
			return nil
		case <-tick.C:
			if err := whole.Check(); err != nil {
				return err
			}
		}
	}
}

// test runs upstream's tests; it fails if more fail than can be expected.
func test(ctx context.Context, o *options, dir string, whole *cluster.Whole) error {
	o.suite.Out, o.suite.Kubectl = o.out, o.kubectl
	// In the directory of the test node, so that whoever sweeps it finds the processes.
	o.suite.Kubeconfig = filepath.Join(dir, "suite.kubeconfig")
	if err := whole.Server.Kubeconfig(o.suite.Kubeconfig); err != nil {
		return err
	}
	o.suite.Root = whole.Node.Root()
	if o.programs.Kubelet != "" {
		o.suite.Root = filepath.Join(dir, "kubelet", "root") // testnode.NewKubelet's
	}
	err := o.suite.Run(ctx, os.Stdout)
	return errors.Join(err, whole.Check())
}

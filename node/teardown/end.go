package teardown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"podd/bundle"
	"podd/cri"
	"podd/cri/spec"
)

// runtimeStartTimeout is how long a runtime may take to start. It first loads all its
// containers, which takes half a minute on a full machine.
const runtimeStartTimeout = 2 * time.Minute

// restartRuntimeForPods starts the runtime once more if it is gone and has left pods behind.
// Only the runtime knows all their resources (network, mounts, tasks, its own records).
func (p *Podd) restartRuntimeForPods(ctx context.Context) error {
	if _, err := bundle.ListenerPID(bundle.Socket(p.StateDir)); err == nil {
		return nil
	}
	mounts, err := mountsBelow(p.StateDir)
	if err != nil || len(mounts) == 0 {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find podd's own binary: %w", err)
	}
	fmt.Fprintln(p.Out, "the container runtime is gone and left pods behind: starting it again to end them")
	ctx, cancel := context.WithTimeoutCause(ctx, runtimeStartTimeout, fmt.Errorf("it is not ready after %v", runtimeStartTimeout))
	defer cancel()
	ctx, settle := context.WithCancelCause(ctx)
	supervisor := bundle.NewSupervisor(bundle.SupervisorConfig{
		Socket: bundle.Socket(p.StateDir), Command: append([]string{self, "runtime"}, p.Args()...), LogFile: bundle.LogFile(p.StateDir),
		OnReady: func(int, time.Time) { settle(errReady) },
		OnDown:  settle,
	})
	// Run leaves the runtime running when ctx ends.
	if err := supervisor.Run(ctx); !errors.Is(err, errReady) {
		return fmt.Errorf("%s holds what pods left behind, and the container runtime, which could remove it, does not start: %w", p.StateDir, err)
	}
	return nil
}

// errReady ends restartRuntimeForPods successfully.
var errReady = errors.New("the container runtime is ready")

// restartedBySystemd returns an error if systemd would restart the process that listens on a socket
// while podd removes the process's network and mounts.
func restartedBySystemd(socket string) error {
	pid, err := bundle.ListenerPID(socket)
	if err != nil || pid <= 1 {
		return nil
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil // it has just exited
	}
	if unit := unitOf(string(groups)); unit != "" {
		return fmt.Errorf("systemd would start %s again: systemctl stop podd.service podd-runtime.service, and then this", unit)
	}
	return nil
}

// unitOf returns the podd unit that a process belongs to, by the process's cgroups.
func unitOf(groups string) string {
	for group := range strings.Lines(groups) {
		if unit := path.Base(strings.TrimSpace(group)); unit == "podd.service" || unit == "podd-runtime.service" {
			return unit
		}
	}
	return ""
}

// endListener terminates the process that listens on a socket, with SIGTERM.
func (p *Podd) endListener(ctx context.Context, socket, what string) error {
	pid, err := bundle.ListenerPID(socket)
	if err != nil || pid <= 1 || pid == os.Getpid() {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("end %s (process %d): %w", what, pid, err)
	}
	defer unix.Close(fd)
	fmt.Fprintf(p.Out, "ending %s (process %d)\n", what, pid)
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil {
		return fmt.Errorf("end %s (process %d): %w", what, pid, err)
	}
	for limit := time.Now().Add(30 * time.Second); time.Now().Before(limit) && ctx.Err() == nil; {
		// Readable once the process has exited.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
		if err == nil && n > 0 {
			return nil
		}
	}
	return fmt.Errorf("%s (process %d) does not exit; find out why, or end it with kill -9", what, pid)
}

// callLimit bounds each call that stops something in the runtime, in addition to the grace
// period.
const callLimit = time.Minute

// listAll returns all sandboxes and running containers of the runtime, whoever created them.
func listAll(ctx context.Context, socket string) (sandboxes []cri.StopTarget, running []cri.StopTarget, err error) {
	runtime, conn, err := connect(socket)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	return runtime.ListAll(ctx)
}

func connect(socket string) (*cri.Client, *cri.Conn, error) {
	conn, err := cri.Connect("unix://"+socket, callLimit, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return nil, nil, err
	}
	return cri.NewClient(conn, spec.Options{}), conn, nil
}

// progressPeriod is how often podd prints how many pods are left.
const progressPeriod = 5 * time.Second

// endPods stops all containers, each with its pod's grace period, and then stops and removes
// all sandboxes. These are what podd has not stopped itself, because it does not run, or hangs,
// or because others created them. It tries again as long as pods end, and returns an error once
// none does. No preStop hooks run, since the pods' specs are not known here.
func endPods(ctx context.Context, socket string, out io.Writer) error {
	runtime, conn, err := connect(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	sandboxes, running, err := runtime.ListAll(ctx)
	if err != nil || len(sandboxes) == 0 {
		return err
	}
	printStopping(out, len(sandboxes), running)
	all := len(sandboxes)
	for {
		before := len(sandboxes) + len(running)
		stopProgress := printProgress(ctx, runtime, all, out)
		ended := endAll(ctx, runtime, sandboxes, running)
		stopProgress()
		if ended == nil || ctx.Err() != nil {
			return ended
		}
		if sandboxes, running, err = runtime.ListAll(ctx); err != nil {
			return errors.Join(ended, err)
		}
		if len(sandboxes)+len(running) >= before {
			return ended
		}
		fmt.Fprintf(out, "%s did not end, trying again: %v\n", count(len(sandboxes), "pod"), firstLine(ended))
	}
}

// printProgress prints how many pods have ended, until stop is called.
func printProgress(ctx context.Context, runtime *cri.Client, all int, out io.Writer) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var printer sync.WaitGroup
	printer.Go(func() {
		tick := time.NewTicker(progressPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if left, running, err := runtime.ListAll(ctx); err == nil {
				fmt.Fprintf(out, "%d of %s left, %s running\n", len(left), count(all, "pod"), count(len(running), "container"))
			}
		}
	})
	return func() { cancel(); printer.Wait() }
}

// firstLine shortens joined errors.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// endAll stops containers, and then removes the sandboxes that have no running container left.
// A container that does not stop does not keep others from being stopped.
func endAll(ctx context.Context, runtime *cri.Client, sandboxes, running []cri.StopTarget) error {
	var mu sync.Mutex
	var errs []error
	runs := map[string]bool{} // by sandbox
	each := func(items []cri.StopTarget, end func(cri.StopTarget) error) {
		var group errgroup.Group
		group.SetLimit(maxParallelStops)
		for _, item := range items {
			group.Go(func() error {
				if err := end(item); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
					runs[item.Sandbox] = true
				}
				return nil
			})
		}
		_ = group.Wait() // the errors are in errs
	}
	// Stop these first: stopping a sandbox would kill them.
	each(running, func(c cri.StopTarget) error {
		if err := runtime.StopContainer(ctx, c.ID, c.GracePeriod); err != nil {
			return fmt.Errorf("pod %s, container %s: %w", c.Pod, c.Container, err)
		}
		return nil
	})
	sandboxes = slices.DeleteFunc(slices.Clone(sandboxes), func(b cri.StopTarget) bool { return runs[b.ID] })
	each(sandboxes, func(b cri.StopTarget) error {
		if err := runtime.StopSandbox(ctx, b.ID); err != nil {
			return fmt.Errorf("pod %s: %w", b.Pod, err)
		}
		if err := runtime.RemoveSandbox(ctx, b.ID); err != nil {
			return fmt.Errorf("pod %s: %w", b.Pod, err)
		}
		return nil
	})
	return errors.Join(errs...)
}

// maxParallelStops bounds the goroutines that wait for something to stop. Package cri bounds the
// calls.
const maxParallelStops = 4096

// printStopping prints what is about to be stopped, and how long that may take.
func printStopping(out io.Writer, pods int, running []cri.StopTarget) {
	fmt.Fprintf(out, "ending %s", count(pods, "pod"))
	if len(running) > 0 {
		fmt.Fprintf(out, " (%s running, which may take %v)", count(len(running), "container"), longest(running))
	}
	fmt.Fprintln(out)
}

func mountsBelow(dir string) ([]*mountinfo.Info, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return mounts, nil
}

// count formats a number of things, in the singular or plural.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

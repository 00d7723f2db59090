package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"podd/bundle"
	"podd/cgroup"
	"podd/internal/places"
	"podd/internal/pod"
	"podd/internal/wipe"
	"podd/volumes"
)

// cleanUp removes what outlives the processes, as far as it is known to be this
// podd's. Nothing is deleted below a mount. The notes go last: what failed is
// tried again by another podd runtime stop.
func (f *runtimeFlags) cleanUp(ctx context.Context, found places.Found, cgroupRoot string, out io.Writer) error {
	facts, err := cgroup.Detect()
	if err != nil {
		return err
	}
	trees := []*cgroup.Tree{cgroup.NewTree(facts, cgroup.Cgroupfs, cgroupRoot, cgroup.Settings{})}
	if facts.Systemd {
		// Of either driver: which one the runtime used is not known any more, and it
		// may have been told another one in between.
		trees = append(trees, cgroup.NewTree(facts, cgroup.Systemd, cgroupRoot, cgroup.Settings{}))
	}
	errs := []error{f.removeVolumes(ctx, found, trees), wipe.Tree(ctx, f.rootDir, "ended")}
	if found.Runtime != nil {
		errs = append(errs, f.removeNetwork(ctx, out))
		for _, tree := range trees {
			errs = append(errs, tree.RemoveRoot(ctx))
		}
		errs = append(errs, f.removeState(ctx, out))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("not all could be taken away; podd runtime stop does the rest once what is in the way is gone:\n%w", err)
	}
	return found.Forget()
}

func (f *runtimeFlags) removeNetwork(ctx context.Context, out io.Writer) error {
	network, err := f.network("/nonexistent", slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	remark, err := network.TearDown(ctx)
	if remark != "" {
		fmt.Fprintln(out, remark)
	}
	return err
}

// removeVolumes takes away the volumes of the pods that were ended; what they
// held outside of podd's directories (hostPath) is not touched, nor what may still
// be in use.
func (f *runtimeFlags) removeVolumes(ctx context.Context, found places.Found, trees []*cgroup.Tree) error {
	mounter, err := volumes.New(volumes.Options{RootDir: f.rootDir}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return err
	}
	uids, err := mounter.Pods()
	if err != nil || len(uids) == 0 {
		return err
	}
	switch dir := filepath.Join(f.rootDir, "pods"); {
	case found.Agent != nil && found.Agent.Endpoint != "":
		return fmt.Errorf("%s is left: podd had its pods made by the container runtime at %s, which this command does not end; let podd end them: remove the manifests, and wait until podd ps is empty",
			dir, found.Agent.Endpoint)
	case found.Agent == nil && found.Runtime == nil:
		return fmt.Errorf("%s is left: it holds directories of %s, and no podd of this version has noted whose they are; start podd once with this root directory", dir, count(len(uids), "pod"))
	}
	var errs []error
	for _, uid := range uids {
		errs = append(errs, removePod(ctx, mounter, trees, uid))
	}
	return errors.Join(errs...)
}

// removePod asks the kernel first whether a process of the pod is there: whoever
// made it, its volumes are in use.
func removePod(ctx context.Context, mounter *volumes.Mounter, trees []*cgroup.Tree, uid pod.UID) error {
	var errs []error
	for _, tree := range trees {
		errs = append(errs, tree.Remove(ctx, uid))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the volumes of pod %s are left: %w", uid, err)
	}
	return mounter.Remove(ctx, uid)
}

// removeState removes from the state directory what podd and its runtime make in
// it, and then it, if somebody has not put something else there.
func (f *runtimeFlags) removeState(ctx context.Context, out io.Writer) error {
	var errs []error
	for _, path := range append(bundle.Traces(f.stateDir), agentTraces(f.stateDir)...) {
		errs = append(errs, wipe.Tree(ctx, filepath.Dir(path), filepath.Base(path)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	left, err := os.ReadDir(f.stateDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(left) > 0 {
		fmt.Fprintf(out, "%s stays: %s in it is not podd's\n", f.stateDir, left[0].Name())
		return nil
	}
	return os.Remove(f.stateDir)
}

// agentTraces is what podd run makes in its state directory, podd runtime's notes
// and leases included.
func agentTraces(stateDir string) []string {
	var all []string
	for _, name := range []string{"podd.sock", "podd.sock.lock", "probes", "cni", "runtime.json", "runtime.json.new"} {
		all = append(all, filepath.Join(stateDir, name))
	}
	return all
}

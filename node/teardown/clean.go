package teardown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"podd/bundle"
	"podd/cgroup"
	"podd/internal/pod"
	"podd/internal/wipe"
	"podd/podfs"
	"podd/volumes"
)

// cleanUp removes what outlives the processes, as far as it is known to belong to this podd. It
// deletes nothing below a mount. It removes the records last, so that another podd runtime stop
// can retry what failed.
func (p *Podd) cleanUp(ctx context.Context) error {
	facts, err := cgroup.Detect()
	if err != nil {
		return err
	}
	trees := []*cgroup.Tree{cgroup.NewTree(facts, cgroup.Cgroupfs, p.CgroupRoot, cgroup.Settings{})}
	if facts.Systemd {
		// For both drivers: the one that the runtime used is no longer known, and may have
		// changed in between.
		trees = append(trees, cgroup.NewTree(facts, cgroup.Systemd, p.CgroupRoot, cgroup.Settings{}))
	}
	root := p.Found.PodsRoot()
	errs := []error{p.removeVolumes(ctx, trees), wipe.Tree(ctx, root, "ended"), wipe.Tree(ctx, root, "allocated"), wipe.Tree(ctx, root, "accepted"),
		wipe.Tree(ctx, root, "starts")}
	if p.Found.Runtime != nil {
		errs = append(errs, p.removeNetwork(ctx))
		for _, tree := range trees {
			errs = append(errs, tree.RemoveRoot(ctx))
		}
		errs = append(errs, p.removeState(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot remove everything; run podd runtime stop again after fixing this:\n%w", err)
	}
	return p.Found.RemoveRecords()
}

func (p *Podd) removeNetwork(ctx context.Context) error {
	network, err := p.Network("/nonexistent", slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	remark, err := network.TearDown(ctx)
	if remark != "" {
		fmt.Fprintln(p.Out, remark)
	}
	return err
}

// removeVolumes removes the volumes of the pods that were stopped. It removes nothing outside
// podd's directories (hostPath), and nothing that may still be in use.
func (p *Podd) removeVolumes(ctx context.Context, trees []*cgroup.Tree) error {
	root := p.Found.PodsRoot()
	mounter, err := volumes.New(volumes.Options{RootDir: root}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return err
	}
	uids, err := mounter.Pods()
	if err != nil || len(uids) == 0 {
		return err
	}
	switch dir := (podfs.Dirs{Root: root}).Pods(); {
	case p.Found.Agent != nil && p.Found.Agent.Endpoint != "":
		return fmt.Errorf("%s is kept: podd ran its pods on the container runtime at %s, which this command does not stop; let podd end them: remove the manifests, and wait until podd ps is empty",
			dir, p.Found.Agent.Endpoint)
	case p.Found.Agent == nil && p.Found.Runtime == nil:
		return fmt.Errorf("%s is kept: it holds directories of %s, and no podd of this version has recorded whose they are; start podd once with this root directory", dir, count(len(uids), "pod"))
	}
	var errs []error
	for _, uid := range uids {
		errs = append(errs, removePodVolumes(ctx, mounter, trees, uid))
	}
	return errors.Join(errs...)
}

// removePodVolumes first checks the pod's cgroups. If a process is left, whoever started it,
// the pod's volumes are in use.
func removePodVolumes(ctx context.Context, mounter *volumes.Mounter, trees []*cgroup.Tree, uid pod.UID) error {
	var errs []error
	for _, tree := range trees {
		errs = append(errs, tree.Remove(ctx, uid))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the volumes of pod %s are kept: %w", uid, err)
	}
	return mounter.Remove(ctx, uid)
}

// removeState removes everything that podd and its runtime create in the state directory. It
// then removes the directory, unless others have put something there.
func (p *Podd) removeState(ctx context.Context) error {
	errs := []error{bundle.ReleaseMounts(ctx, p.StateDir)}
	for _, path := range append(bundle.StateFiles(p.StateDir), agentStateFiles(p.StateDir)...) {
		errs = append(errs, wipe.Tree(ctx, filepath.Dir(path), filepath.Base(path)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	left, err := os.ReadDir(p.StateDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(left) > 0 {
		fmt.Fprintf(p.Out, "%s is kept: %s in it is not podd's\n", p.StateDir, left[0].Name())
		return nil
	}
	return os.Remove(p.StateDir)
}

// agentStateFiles returns the files that podd run creates in its state directory, including podd
// runtime's records and leases.
func agentStateFiles(stateDir string) []string {
	var all []string
	for _, name := range []string{"podd.sock", "podd.sock.lock", "probes", "last-good", "objects", "cni", "runtime.json", "runtime.json.new"} {
		all = append(all, filepath.Join(stateDir, name))
	}
	return all
}

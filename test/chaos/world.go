package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/testnode"
)

// most is how many pods are desired at a time.
const most = 8

// world is the node, and what the test knows of it.
type world struct {
	o options
	// dir holds what must not be on the disk that fills up: manifests, what
	// containers write, logs. disk is that disk, with the node on it.
	dir    string
	disk   *testnode.Disk
	node   *testnode.Node
	member *member // nil unless the node is one of a cluster
	podd   *testnode.Podd
	before testnode.Snapshot
	// temporary are the runtimesTemporary of before.
	temporary []string

	desired []*wish
	made    int // pods
	deaths  int
	// ended are pods that were shown as Succeeded or Failed, by UID.
	ended map[string]end
	// objects are those that all pods may name.
	objects []*object
	// kept are the trees that nobody but their owner may touch, by where they are, as
	// they were at the beginning; bound is how often one was mounted into an emptyDir.
	kept  map[string]string
	bound int
}

// wish is a manifest.
type wish struct {
	kind kind
	name string
	pod  *v1.Pod
	life string
	lives,
	port int
	// bound: it is a pod of the cluster, and has no manifest.
	bound bool
	// own are the objects beside the pod in its file.
	own []*object
}

func (w *wish) file() string { return w.name + ".json" }

// end is what was known of a pod when it was first seen to have ended.
type end struct {
	life  string
	phase v1.PodPhase
	runs  int
}

func newWorld(ctx context.Context, o options) (w *world, err error) {
	w = &world{o: o, ended: map[string]end{}, objects: sharedObjects(), temporary: runtimesTemporary()}
	if w.dir, err = os.MkdirTemp("", "pc"); err != nil { // sockets need short paths
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	// Root in a user namespace is nobody here, and must reach its root file system.
	if err := os.Chmod(w.dir, 0o711); err != nil {
		return nil, err
	}
	for _, d := range []string{dirLocks, dirRuns, dirSaw, dirHosts} {
		if err := os.MkdirAll(filepath.Join(w.out(), d), 0o777); err != nil {
			return nil, err
		}
	}
	if err := w.layCanaries(); err != nil {
		return nil, err
	}
	if err := copyFile(o.self, w.self(), 0o755); err != nil {
		return nil, err
	}
	// A small one, which can be filled; a pod takes some eighty inodes, which are 1.3 MiB.
	size := int64(700+2*o.flood) << 20
	if w.disk, err = testnode.NewDisk(filepath.Join(w.dir, "d"), filepath.Join(w.dir, "disk"), size); err != nil {
		return nil, err
	}
	if w.node, err = testnode.NewNode(ctx, w.disk.Dir, o.bundle); err != nil {
		return nil, err
	}
	if w.podd, err = testnode.NewPodd(w.node.Place, o.bundle, filepath.Join(w.dir, "podd")); err != nil {
		return nil, err
	}
	// Logs fill the disk, too.
	w.podd.Config["podLogsDir"] = filepath.Join(w.node.Root(), "log")
	if o.flood > 0 {
		w.podd.Config["maxPods"] = o.flood
	}
	archives, err := filepath.Glob(filepath.Join(o.bundle.Images, "*.tar"))
	for _, a := range archives {
		// What podd removes from a full disk comes back from here.
		err = errors.Join(err, copyFile(a, filepath.Join(w.podd.Images(), filepath.Base(a)), 0o644))
	}
	return w, err
}

func (w *world) out() string  { return filepath.Join(w.dir, "out") }
func (w *world) self() string { return filepath.Join(w.dir, "chaos") }

// dirHosts is below out: what pods have as hostPaths besides out itself.
const dirHosts = "hosts"

// start runs podd and notes what is on the node before any pod.
func (w *world) start(ctx context.Context) (err error) {
	for _, o := range w.objects {
		if err := w.writeObject(o); err != nil {
			return err
		}
	}
	if w.o.apiserver != "" {
		if err := w.join(ctx); err != nil {
			return err
		}
	}
	if w.before, err = w.scope().Take(ctx); err != nil {
		return err
	}
	if err := w.podd.Start(); err != nil {
		return err
	}
	return w.podd.WaitReady(ctx)
}

func (w *world) scope() testnode.Scope {
	root, state := w.node.Root(), w.node.State()
	scope := w.node.Scope([]int{w.podd.Pid()}, filepath.Join(root, "pods"), filepath.Join(root, "ended"), filepath.Join(root, "accepted"), filepath.Join(root, "starts"), filepath.Join(state, "probes"),
		filepath.Join(root, "manifests"), filepath.Join(state, "last-good", "manifests"))
	scope.LogRemovals, scope.Logs = filepath.Join(root, "log-removals"), filepath.Join(root, "log")
	return scope
}

// close ends all of the node, whatever state it is in.
func (w *world) close() error {
	var errs []error
	if w.podd != nil {
		errs = append(errs, w.podd.Signal(unix.SIGKILL))
	}
	errs = append(errs, w.member.close())
	if w.node != nil {
		w.thaw()
		errs = append(errs, w.node.KillAll(), w.node.Close())
	}
	if w.disk != nil {
		errs = append(errs, w.disk.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return err // something may still be mounted: remove nothing
	}
	return os.RemoveAll(w.dir)
}

// keepLogs copies what tells about a failure.
func (w *world) keepLogs() error {
	to := fmt.Sprintf("%s-%d", w.o.keep, w.o.seed)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, from := range []string{w.podd.LogFile(), w.node.Containerd.LogPath(), filepath.Join(w.dir, "apiserver", "apiserver.log")} {
		if _, err := os.Stat(from); err == nil {
			errs = append(errs, copyFile(from, filepath.Join(to, filepath.Base(from)), 0o644))
		}
	}
	if body, err := w.podd.Get(context.Background(), "/pods"); err == nil {
		errs = append(errs, os.WriteFile(filepath.Join(to, "pods.json"), body, 0o644))
	}
	fmt.Fprintf(w.o.out, "chaos: logs are in %s\n", to)
	return errors.Join(errs...)
}

// say prints a line of progress.
func (w *world) say(step int, format string, args ...any) {
	fmt.Fprintf(w.o.out, "%4d %s  %s\n", step, time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

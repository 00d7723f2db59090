package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fault is something that happens to a node.
type fault struct {
	name   string
	weight int
	// strike lets it happen. meanwhile lets a pod come or go, in the middle of it.
	// What it returns says to what it happened, or why the test cannot go on.
	strike func(ctx context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error)
}

var faults = []fault{
	{"kill podd", 12, func(ctx context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return "", w.without(ctx, rng, meanwhile, func() error { return w.podd.Signal(unix.SIGKILL) })
	}},
	{"restart podd", 4, func(ctx context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return "", w.without(ctx, rng, meanwhile, func() error { return w.podd.Signal(unix.SIGTERM) })
	}},
	{"freeze podd", 6, func(_ context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return freeze(w.podd.Pid(), rng, meanwhile)
	}},
	{"kill containerd", 8, func(_ context.Context, w *world, _ *rand.Rand, meanwhile func() error) (string, error) {
		return "", errors.Join(w.node.Containerd.Signal(unix.SIGKILL), meanwhile())
	}},
	{"freeze containerd", 6, func(_ context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return freeze(w.node.Containerd.Pid(), rng, meanwhile)
	}},
	{"kill podd and containerd", 6, func(ctx context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return "", w.without(ctx, rng, meanwhile, func() error {
			return errors.Join(w.podd.Signal(unix.SIGKILL), w.node.Containerd.Signal(unix.SIGKILL))
		})
	}},
	{"kill a shim", 8, func(_ context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		p := pick(rng, w.shims())
		return p.kill(meanwhile)
	}},
	{"freeze a shim", 4, func(_ context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		p := pick(rng, w.shims())
		what, err := freeze(p.pid, rng, meanwhile)
		return p.what + what, err
	}},
	{"kill a container", 12, func(_ context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return pick(rng, w.containers()).kill(meanwhile)
	}},
	{"freeze a container", 4, func(_ context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		p := pick(rng, w.containers())
		what, err := freeze(p.pid, rng, meanwhile)
		return p.what + what, err
	}},
	{"kill a sandbox's process", 4, func(_ context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return pick(rng, w.pauses()).kill(meanwhile)
	}},
	{"stop a sandbox behind podd's back", 6, behind(func(ctx context.Context, w *world, rng *rand.Rand) (string, error) {
		return w.anySandbox(ctx, rng, func(id string) error {
			_, err := w.node.CRI.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
			return err
		})
	})},
	{"remove a sandbox behind podd's back", 6, behind(func(ctx context.Context, w *world, rng *rand.Rand) (string, error) {
		return w.anySandbox(ctx, rng, func(id string) error {
			_, err := w.node.CRI.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
			if err == nil {
				_, err = w.node.CRI.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
			}
			return err
		})
	})},
	{"stop a container behind podd's back", 4, behind(func(ctx context.Context, w *world, rng *rand.Rand) (string, error) {
		return w.anyContainer(ctx, rng, func(id string) error {
			_, err := w.node.CRI.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 1})
			return err
		})
	})},
	{"remove a container behind podd's back", 8, behind(func(ctx context.Context, w *world, rng *rand.Rand) (string, error) {
		return w.anyContainer(ctx, rng, func(id string) error {
			_, err := w.node.CRI.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
			return err
		})
	})},
	{"fill the disk", 5, func(_ context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return w.fill(rng, meanwhile)
	}},
	{"mount a canary in an emptyDir", 6, func(_ context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return w.bind(rng, meanwhile)
	}},
	{"cut the power", 2, func(ctx context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		return "", w.without(ctx, rng, meanwhile, func() error {
			return errors.Join(w.podd.Signal(unix.SIGKILL), w.node.PowerOff())
		})
	}},
}

// draw chooses one of some faults by its weight.
func draw(rng *rand.Rand, faults []fault) fault {
	sum := 0
	for _, f := range faults {
		sum += f.weight
	}
	n := rng.IntN(sum)
	for _, f := range faults {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("unreachable: n is below the sum")
}

// without ends podd, and starts another after a while, as its supervisor would.
func (w *world) without(_ context.Context, rng *rand.Rand, meanwhile, end func() error) error {
	if err := errors.Join(end(), meanwhile()); err != nil {
		return err
	}
	time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
	w.deaths++
	return w.podd.Start()
}

// freeze stops a process for up to 3 s.
func freeze(pid int, rng *rand.Rand, meanwhile func() error) (string, error) {
	long := time.Duration(rng.IntN(3000)) * time.Millisecond
	if pid == 0 || unix.Kill(pid, unix.SIGSTOP) != nil {
		return " (there is none)", meanwhile()
	}
	err := meanwhile()
	time.Sleep(long)
	_ = unix.Kill(pid, unix.SIGCONT)
	return " for " + long.String(), err
}

// thaw lets everything of the node go on.
func (w *world) thaw() {
	for _, p := range slices.Concat(w.shims(), w.containers(), w.pauses()) {
		_ = unix.Kill(p.pid, unix.SIGCONT)
	}
}

// behind is a fault by way of CRI, which may be refused: the runtime is busy with
// the same thing, or away.
func behind(act func(ctx context.Context, w *world, rng *rand.Rand) (string, error)) func(context.Context, *world, *rand.Rand, func() error) (string, error) {
	return func(ctx context.Context, w *world, rng *rand.Rand, meanwhile func() error) (string, error) {
		within, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		what, err := act(within, w, rng)
		if err != nil {
			what += fmt.Sprintf(" (refused: %.100s)", err.Error())
		}
		return what, meanwhile()
	}
}

func (w *world) anySandbox(ctx context.Context, rng *rand.Rand, act func(id string) error) (string, error) {
	all, err := w.node.CRI.Sandboxes(ctx)
	slices.SortFunc(all, func(a, b *runtimeapi.PodSandbox) int {
		return strings.Compare(a.Metadata.GetName(), b.Metadata.GetName())
	})
	one := pick(rng, all)
	if err != nil || one == nil {
		return "(there is none)", err
	}
	return one.Metadata.GetName(), act(one.Id)
}

func (w *world) anyContainer(ctx context.Context, rng *rand.Rand, act func(id string) error) (string, error) {
	all, err := w.node.CRI.Containers(ctx)
	title := func(c *runtimeapi.Container) string {
		return c.Labels["io.kubernetes.pod.name"] + "/" + c.Metadata.GetName()
	}
	slices.SortFunc(all, func(a, b *runtimeapi.Container) int { return strings.Compare(title(a), title(b)) })
	one := pick(rng, all)
	if err != nil || one == nil {
		return "(there is none)", err
	}
	return fmt.Sprintf("%s (%v)", title(one), one.State), act(one.Id)
}

// fill takes all room of the node's disk, for up to 2 s.
func (w *world) fill(rng *rand.Rand, meanwhile func() error) (string, error) {
	long := time.Duration(200+rng.IntN(2000)) * time.Millisecond
	path := filepath.Join(w.disk.Dir, "full")
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("fill the disk: %w", err)
	}
	var st unix.Statfs_t
	for range 100 { // the last blocks come one by one
		if unix.Fstatfs(int(f.Fd()), &st) != nil || st.Bavail == 0 {
			break
		}
		info, err := f.Stat()
		if err != nil || unix.Fallocate(int(f.Fd()), 0, info.Size(), max(1, int64(st.Bavail)-8)*st.Bsize) != nil {
			break
		}
	}
	// What is left of the last blocks.
	_, _ = f.Write(make([]byte, 1<<20))
	err = errors.Join(f.Close(), meanwhile())
	time.Sleep(long)
	return "for " + long.String(), errors.Join(err, os.Remove(path))
}

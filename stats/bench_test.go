package stats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/cgroup"
	"podd/internal/child"
	"podd/internal/pod"
	"podd/stats/kernel"
)

// BenchmarkScrape reads pods of a sandbox, with a process in a network of its own, and a
// container, from the kernel's cgroups: as root only.
func BenchmarkScrape(b *testing.B) {
	for _, pods := range []int{58, 300, 600, 1000} {
		b.Run(strconv.Itoa(pods)+"pods", func(b *testing.B) { scrapeOf(b, pods) })
	}
}

func scrapeOf(b *testing.B, pods int) {
	c := realPods(b, pods)
	for name, scrape := range map[string]func(context.Context) error{
		"summary":  func(ctx context.Context) error { _, err := c.Summary(ctx, false); return err },
		"resource": func(ctx context.Context) error { return c.Resource(ctx, io.Discard) },
		"cadvisor": func(ctx context.Context) error { return c.Cadvisor(ctx, io.Discard) },
	} {
		b.Run(name, func(b *testing.B) {
			for range 2 { // what stays open, and what is not read again
				if err := scrape(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			var before, after syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before) // cannot fail
			for b.Loop() {
				if err := scrape(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after) // cannot fail
			used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
			b.ReportMetric(float64(used)/1e6/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(used)/1e6/float64(b.N)/float64(pods), "cpu-ms/pod")
		})
	}
}

// realPods makes n pods' cgroups, in every hierarchy, and removes them at the end.
func realPods(b *testing.B, n int) *Collector {
	facts, err := cgroup.Detect()
	if err != nil || os.Geteuid() != 0 {
		b.Skipf("needs root and cgroups: %v", err)
	}
	root := "/podd-bench-" + strconv.Itoa(os.Getpid()) + "/kubepods"
	var known []pod.Identity
	var pods []*v1.Pod
	var made []string
	add := func(rel string) {
		for _, mount := range facts.Mounts {
			dir := filepath.Join(mount, rel)
			made = append(made, dir)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Cleanup(func() {
		for _, dir := range made { // those below first
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				b.Error(err)
			}
		}
		for _, mount := range facts.Mounts {
			_, _ = syscall.Rmdir(filepath.Join(mount, root)), syscall.Rmdir(filepath.Join(mount, filepath.Dir(root)))
		}
	})
	for i := range n {
		uid := fmt.Sprintf("uid-%d", i)
		box, main := "box"+strconv.Itoa(i), "main"+strconv.Itoa(i)
		add(root + "/pod" + uid + "/" + main)
		add(root + "/pod" + uid + "/" + box)
		add(root + "/pod" + uid)
		known = append(known, pod.Identity{ID: box, UID: pod.UID(uid), Pod: uid, Namespace: "default", Image: "pause"},
			pod.Identity{ID: main, UID: pod.UID(uid), Pod: uid, Namespace: "default", Image: "image", Container: "main"})
		p := &v1.Pod{}
		p.Name, p.Namespace, p.UID = uid, "default", pod.UID(uid)
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", ContainerID: "x://" + main, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
		pods = append(pods, p)
		sandbox(b, facts, root+"/pod"+uid+"/"+box)
	}
	tree := cgroup.NewTree(facts, cgroup.Cgroupfs, root, cgroup.Settings{})
	reader := kernel.New(kernel.Config{V2: facts.Version == cgroup.V2, Controllers: facts.Controllers})
	b.Cleanup(func() { // the next ones need the files
		reader.Sweep()
		reader.Sweep()
	})
	return New(Config{
		Node: "n", RootCgroup: root, Kernel: reader,
		Groups: func() (all []Group) {
			for _, g := range tree.Groups() {
				all = append(all, Group(g))
			}
			return all
		},
		Identify: func(context.Context) ([]pod.Identity, error) { return known, nil },
		Pods:     func() []*v1.Pod { return pods }, Storage: disks{}, Disk: "/",
	})
}

// sandbox starts a process in a network of its own and in a cgroup.
func sandbox(b *testing.B, facts cgroup.Facts, rel string) {
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := child.Start(cmd); err != nil {
		b.Skipf("needs network namespaces: %v", err)
	}
	b.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() }) // it is ours, and sleeps
	for _, mount := range facts.Mounts {
		// A cpuset is empty until it is set up: nothing can be in it.
		err := os.WriteFile(filepath.Join(mount, rel, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
		if err != nil && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EINVAL) {
			b.Fatal(err)
		}
	}
}

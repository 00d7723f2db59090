package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/testnode"
)

// podd is the subject.
type podd struct {
	*testnode.Podd
	begun time.Time // its last start
}

func newPodd(node *testnode.Node, binary string) (*podd, error) {
	path, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("no podd to measure (run `make build` first): %w", err)
	}
	b := node.Bundle
	b.Podd = path
	p, err := testnode.NewPodd(node.Place, b, filepath.Join(node.Dir, "podd"))
	if err != nil {
		return nil, err
	}
	// The node is looked at, as everywhere, but evicts nobody on a full machine.
	p.Config["evictionHard"] = map[string]string{
		"memory.available": "1", "nodefs.available": "1", "nodefs.inodesFree": "1", "imagefs.available": "1", "imagefs.inodesFree": "1", "pid.available": "1",
	}
	return &podd{Podd: p}, nil
}

func (p *podd) start(ctx context.Context) error {
	p.begun = time.Now()
	if err := p.Start(); err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

func (p *podd) stop() error { return p.Signal(unix.SIGTERM) }
func (p *podd) pid() int    { return p.Pid() }

func (p *podd) apply(manifests map[string]string) (time.Time, error) {
	return applyAll(p.Dir, p.Manifests(), manifests)
}
func (p *podd) remove(files []string) (time.Time, error) { return p.Delete(files...) }
func (p *podd) object(name, text string) (time.Time, error) {
	return p.Apply(name+".yaml", text)
}
func (p *podd) pods(ctx context.Context) ([]v1.Pod, error) { return p.Pods(ctx) }

// applyAll writes everything beside the directory first, so that the renames
// follow one another at once.
func applyAll(tmp, dir string, manifests map[string]string) (time.Time, error) {
	for file, text := range manifests {
		if err := os.WriteFile(filepath.Join(tmp, ".new-"+file), []byte(text), 0o644); err != nil {
			return time.Time{}, fmt.Errorf("write manifest %s: %w", file, err)
		}
	}
	begin := time.Now()
	for file := range manifests {
		if err := os.Rename(filepath.Join(tmp, ".new-"+file), filepath.Join(dir, file)); err != nil {
			return begin, fmt.Errorf("put manifest %s into place: %w", file, err)
		}
	}
	return begin, nil
}

// kubelet is upstream's, standalone on the same runtime.
type kubelet struct{ *testnode.Kubelet }

func newKubelet(node *testnode.Node, binary string) *kubelet {
	k := testnode.NewKubelet(node.Place, node.Containerd.Endpoint(), binary)
	k.Config = map[string]any{"localStorageCapacityIsolation": false}
	k.Args = []string{"--hostname-override", "kubelet"}
	return &kubelet{k}
}

func (k *kubelet) start(ctx context.Context) error            { return k.Start(ctx) }
func (k *kubelet) stop() error                                { return k.Stop() }
func (k *kubelet) pid() int                                   { return k.Pid() }
func (k *kubelet) pods(ctx context.Context) ([]v1.Pod, error) { return k.Pods(ctx) }

func (k *kubelet) apply(manifests map[string]string) (time.Time, error) {
	return applyAll(k.Dir, k.Manifests(), manifests)
}

func (k *kubelet) remove(files []string) (time.Time, error) {
	begin := time.Now()
	for _, file := range files {
		if err := os.Remove(filepath.Join(k.Manifests(), file)); err != nil {
			return begin, err
		}
	}
	return begin, nil
}

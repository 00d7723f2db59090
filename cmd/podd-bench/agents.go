package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"podd/test/e2e/testnode"
)

// podd is the subject.
type podd struct{ *testnode.Podd }

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
	return &podd{p}, err
}

func (p *podd) start(ctx context.Context) error {
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
func (p *podd) remove(files []string) (time.Time, error)   { return p.Delete(files...) }
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
type kubelet struct {
	node   *testnode.Node
	binary string
	dir    string
	cmd    *exec.Cmd
	done   chan struct{}
}

func newKubelet(node *testnode.Node, binary string) *kubelet {
	return &kubelet{node: node, binary: binary, dir: filepath.Join(node.Dir, "kubelet")}
}

func (k *kubelet) manifests() string { return filepath.Join(k.dir, "manifests") }

// config is what makes the kubelet run on a machine that may have cgroup v1,
// lack CAP_SYS_RESOURCE and be short of disk, and stay below the node's cgroup.
func (k *kubelet) config() map[string]any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupRoot": k.node.CgroupRoot,
		"oomScoreAdj": 0, "failSwapOn": false, "enforceNodeAllocatable": []string{},
		"staticPodPath": k.manifests(), "podLogsDir": filepath.Join(k.dir, "podlogs"),
		"containerRuntimeEndpoint": k.node.Containerd.Endpoint(),
		"authentication":           map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":            map[string]any{"mode": "AlwaysAllow"},
		"address":                  "127.0.0.1", "healthzBindAddress": "127.0.0.1",
		"port": k.node.Port + 5, "readOnlyPort": k.node.Port + 6, "healthzPort": k.node.Port + 7,
		"evictionHard": map[string]string{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%", "pid.available": "0%",
		},
		"imageGCHighThresholdPercent": 100, "localStorageCapacityIsolation": false,
		// Its chains would stay on the machine.
		"makeIPTablesUtilChains": false,
	}
}

func (k *kubelet) start(ctx context.Context) error {
	if err := os.MkdirAll(k.manifests(), 0o755); err != nil {
		return err
	}
	if err := k.node.MakeCgroupRoot(); err != nil {
		return err
	}
	text, err := yaml.Marshal(k.config())
	if err != nil {
		return err
	}
	config := filepath.Join(k.dir, "config.yaml")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(k.dir, "kubelet.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	k.cmd = exec.Command(k.binary, "--config", config, "--root-dir", filepath.Join(k.dir, "root"),
		"--cert-dir", filepath.Join(k.dir, "certs"), "--hostname-override", "kubelet")
	k.cmd.Stdout, k.cmd.Stderr = log, log
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := k.cmd.Start(); err != nil {
		return fmt.Errorf("start the kubelet: %w", err)
	}
	k.done = make(chan struct{})
	go func() { _ = k.cmd.Wait(); close(k.done) }()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return testnode.Poll(ctx, 20*time.Millisecond, func() error {
		if k.pid() == 0 {
			text, _ := os.ReadFile(log.Name())
			return testnode.Stop(fmt.Errorf("the kubelet ended: %s", text[max(0, len(text)-3000):]))
		}
		_, err := k.pods(ctx)
		return err
	})
}

// stop ends the kubelet and removes the links to logs that it makes in a
// directory that no flag of it names.
func (k *kubelet) stop() error {
	if k.pid() == 0 {
		return nil
	}
	errs := []error{unix.Kill(k.pid(), unix.SIGTERM)}
	select {
	case <-k.done:
	case <-time.After(15 * time.Second):
		errs = append(errs, k.cmd.Process.Kill())
		<-k.done
	}
	links, _ := filepath.Glob("/var/log/containers/*")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && within(target, k.dir) {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

func (k *kubelet) pid() int {
	if k.cmd == nil || k.done == nil {
		return 0
	}
	select {
	case <-k.done:
		return 0
	default:
		return k.cmd.Process.Pid
	}
}

func (k *kubelet) apply(manifests map[string]string) (time.Time, error) {
	return applyAll(k.dir, k.manifests(), manifests)
}

func (k *kubelet) remove(files []string) (time.Time, error) {
	begin := time.Now()
	for _, file := range files {
		if err := os.Remove(filepath.Join(k.manifests(), file)); err != nil {
			return begin, err
		}
	}
	return begin, nil
}

func (k *kubelet) pods(ctx context.Context) ([]v1.Pod, error) {
	body, err := testnode.GetLoopback(ctx, k.node.Port+6, "/pods")
	if err != nil {
		return nil, err
	}
	return testnode.DecodePods(body)
}

package testnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Kubelet is upstream's, standalone in a place, to compare podd with. Its ports
// are the last five of the place's ten.
type Kubelet struct {
	Place *Place
	// Endpoint is the runtime's, unix://…; Binary is the kubelet's path.
	Endpoint, Binary string
	// Dir holds what is the kubelet's alone: configuration, manifests, logs and
	// its root directory.
	Dir string
	// Config is laid over the KubeletConfiguration that Start writes.
	Config map[string]any
	// Args are added to the command line.
	Args []string

	cmd  *exec.Cmd
	done chan struct{}
}

// NewKubelet starts nothing.
func NewKubelet(place *Place, endpoint, binary string) *Kubelet {
	return &Kubelet{Place: place, Endpoint: endpoint, Binary: binary, Dir: filepath.Join(place.Dir, "kubelet")}
}

func (k *Kubelet) Manifests() string { return filepath.Join(k.Dir, "manifests") }
func (k *Kubelet) LogFile() string   { return filepath.Join(k.Dir, "kubelet.log") }

// Root and PodLogs are where it keeps pods' volumes and containers' logs.
func (k *Kubelet) Root() string    { return filepath.Join(k.Dir, "root") }
func (k *Kubelet) PodLogs() string { return filepath.Join(k.Dir, "podlogs") }

// IdleNode is the KubeletConfiguration of a node whose own state decides
// nothing: how full the machine's disk or memory is, and what this process may
// not do in a container.
func IdleNode() map[string]any {
	return map[string]any{
		"evictionHard":                NoEviction(),
		"enforceNodeAllocatable":      []string{},
		"oomScoreAdj":                 0, // may need a capability that a container lacks
		"failSwapOn":                  false,
		"imageGCHighThresholdPercent": 100,
	}
}

// NoEviction is evictionHard of a node that evicts nobody: a test must not fail, and its
// images not be removed, because the machine that it runs on is full.
func NoEviction() map[string]string {
	return map[string]string{
		"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
		"imagefs.available": "0%", "imagefs.inodesFree": "0%", "pid.available": "0%",
	}
}

// noEvictionFlag is NoEviction for --eviction-hard.
func noEvictionFlag() string {
	var all []string
	for signal, none := range NoEviction() {
		all = append(all, signal+"<"+none)
	}
	return strings.Join(all, ",")
}

// NodeIP is an address of the machine for --node-ip, or loopback's: the kubelet looks a
// name up that no resolver knows where it is not told.
func NodeIP() string {
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

func (k *Kubelet) config() map[string]any {
	config := IdleNode()
	maps.Copy(config, map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupRoot": k.Place.CgroupRoot,
		"staticPodPath": k.Manifests(), "podLogsDir": k.PodLogs(),
		"containerRuntimeEndpoint": k.Endpoint,
		"authentication":           map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":            map[string]any{"mode": "AlwaysAllow"},
		"address":                  "127.0.0.1", "healthzBindAddress": "127.0.0.1",
		"port": k.Place.Port + 5, "readOnlyPort": k.Place.Port + 6, "healthzPort": k.Place.Port + 7,
		// Its chains would stay on the machine.
		"makeIPTablesUtilChains": false,
	})
	maps.Copy(config, k.Config)
	return config
}

// Start runs the kubelet and returns when it answers, at most a minute later.
// It begins a new log.
func (k *Kubelet) Start(ctx context.Context) error {
	if err := os.MkdirAll(k.Manifests(), 0o755); err != nil {
		return fmt.Errorf("make the kubelet's directories: %w", err)
	}
	if err := k.Place.MakeCgroupRoot(); err != nil {
		return err
	}
	text, err := yaml.Marshal(k.config())
	if err != nil {
		return fmt.Errorf("write the kubelet's configuration: %w", err)
	}
	config := filepath.Join(k.Dir, "config.yaml")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return fmt.Errorf("write the kubelet's configuration: %w", err)
	}
	log, err := os.Create(k.LogFile())
	if err != nil {
		return fmt.Errorf("make the kubelet's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	k.cmd = exec.Command(k.Binary, append([]string{"--config", config, "--root-dir", k.Root(),
		"--cert-dir", filepath.Join(k.Dir, "certs")}, k.Args...)...)
	k.cmd.Stdout, k.cmd.Stderr = log, log
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := k.cmd.Start(); err != nil {
		return fmt.Errorf("start the kubelet: %w", err)
	}
	k.done = make(chan struct{})
	go func() { _ = k.cmd.Wait(); close(k.done) }()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return Poll(ctx, 20*time.Millisecond, func() error {
		if k.Pid() == 0 {
			return Stop(fmt.Errorf("the kubelet ended: %s", k.LogTail(3000)))
		}
		_, err := k.Pods(ctx)
		return err
	})
}

// Kill ends the kubelet by SIGKILL and returns when the process is gone.
func (k *Kubelet) Kill() error {
	if k.Pid() == 0 {
		return nil
	}
	err := k.cmd.Process.Kill()
	<-k.done
	return err
}

// Stop ends the kubelet and removes the links to logs that it makes in a
// directory that no flag of it names. It blocks for at most 15 s.
func (k *Kubelet) Stop() error {
	if k.Pid() == 0 {
		return nil
	}
	errs := []error{k.cmd.Process.Signal(unix.SIGTERM)}
	select {
	case <-k.done:
	case <-time.After(15 * time.Second):
		errs = append(errs, k.cmd.Process.Kill())
		<-k.done
	}
	links, _ := filepath.Glob("/var/log/containers/*")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && within(target, k.Dir) {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}

// Pid is 0 when the kubelet does not run.
func (k *Kubelet) Pid() int {
	if k.done == nil {
		return 0
	}
	select {
	case <-k.done:
		return 0
	default:
		return k.cmd.Process.Pid
	}
}

// Pods asks the read-only port.
func (k *Kubelet) Pods(ctx context.Context) ([]v1.Pod, error) {
	body, err := GetLoopback(ctx, k.Place.Port+6, "/pods")
	if err != nil {
		return nil, err
	}
	return DecodePods(body)
}

// LogTail is the end of the log, at most n bytes.
func (k *Kubelet) LogTail(n int) string { return tail(k.LogFile(), n) }

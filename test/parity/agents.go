package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"podd/test/e2e/testnode"
)

const (
	imageBusybox = testnode.ImageBusybox
	// nodeName is both agents' name of their node, and so the end of their pods'
	// names.
	nodeName = "parity"
)

// Agent is what both sides have in common.
type Agent interface {
	Start(ctx context.Context) error
	Stop() error
	// Manifests is the directory that it watches.
	Manifests() string
	Pods(ctx context.Context) ([]v1.Pod, error)
	// Events are those of one pod, by first occurrence.
	Events(ctx context.Context, pod string) ([]Event, error)
	// Running says whether the process is there.
	Running() bool
	LogTail() string
}

// Event is one event, times and repeats aside.
type Event struct {
	Path    string `json:"path,omitempty"` // spec.containers{app}; empty for the pod
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (e Event) String() string { return fmt.Sprintf("%s %s %q", e.Type, e.Reason, e.Message) }

// nodeConfig is what both agents are told alike.
func nodeConfig() map[string]any {
	return map[string]any{
		// The machine's own state of fill is nothing to compare.
		"evictionHard": map[string]string{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%", "pid.available": "0%",
		},
		"enforceNodeAllocatable":      []string{},
		"oomScoreAdj":                 0, // may need a capability that a container lacks
		"failSwapOn":                  false,
		"imageGCHighThresholdPercent": 100,
		"allowedUnsafeSysctls":        []string{"net.core.somaxconn"},
	}
}

// nodeIP is an address of the machine, or loopback's: the kubelet looks a name up
// that no resolver knows where it is not told.
func nodeIP() string {
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

type podd struct {
	*testnode.Podd

	mu   sync.Mutex
	seen map[string]map[string]v1.Event // by pod, by the event's name
}

func newPodd(node *testnode.Node) (Agent, error) {
	p, err := testnode.NewPodd(node.Place, node.Bundle, filepath.Join(node.Dir, "podd"))
	if err != nil {
		return nil, err
	}
	p.Config = nodeConfig()
	p.Config["containerRuntimeEndpoint"] = node.Containerd.Endpoint()
	p.Args = []string{"--hostname-override", nodeName, "--node-ip", nodeIP()}
	return &podd{Podd: p, seen: map[string]map[string]v1.Event{}}, nil
}

func (p *podd) Start(ctx context.Context) error {
	if err := p.Podd.Start(); err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

func (p *podd) Stop() error     { return p.Signal(unix.SIGTERM) }
func (p *podd) Running() bool   { return p.Pid() != 0 }
func (p *podd) LogTail() string { return p.Podd.LogTail(2000) }

func (p *podd) Pods(ctx context.Context) ([]v1.Pod, error) {
	body, err := testnode.GetLoopback(ctx, p.ReadOnlyPort(), "/pods")
	if err != nil {
		return nil, err
	}
	return testnode.DecodePods(body)
}

func (p *podd) Events(ctx context.Context, pod string) ([]Event, error) {
	body, err := p.Get(ctx, "/podd/v1/events?namespace=default&name="+pod)
	if err != nil {
		return nil, err
	}
	var list v1.EventList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode podd's events: %w", err)
	}
	// podd keeps a thousand events, fewer than a run has: those of a pod that has
	// had its time make room.
	p.mu.Lock()
	if p.seen[pod] == nil {
		p.seen[pod] = map[string]v1.Event{}
	}
	for _, e := range list.Items {
		p.seen[pod][e.Name] = e
	}
	list.Items = slices.Collect(maps.Values(p.seen[pod]))
	p.mu.Unlock()
	// The time of the first occurrence is in whole seconds; the name's end has
	// it to the nanosecond.
	slices.SortStableFunc(list.Items, func(a, b v1.Event) int {
		return strings.Compare(bornAt(a), bornAt(b))
	})
	var events []Event
	for _, e := range list.Items {
		events = append(events, Event{e.InvolvedObject.FieldPath, e.Type, e.Reason, e.Message})
	}
	return events, nil
}

func bornAt(e v1.Event) string { return e.Name[strings.LastIndex(e.Name, ".")+1:] }

// kubelet is upstream's, standalone.
type kubelet struct {
	node   *testnode.Node
	binary string
	dir    string
	cmd    *exec.Cmd
	done   chan struct{}
	log    *kubeletLog
}

func newKubelet(node *testnode.Node, binary string) Agent {
	dir := filepath.Join(node.Dir, "kubelet")
	return &kubelet{node: node, binary: binary, dir: dir, log: &kubeletLog{path: filepath.Join(dir, "kubelet.log")}}
}

func (k *kubelet) Manifests() string { return filepath.Join(k.dir, "manifests") }

func (k *kubelet) config() map[string]any {
	config := nodeConfig()
	for key, value := range map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupRoot": k.node.CgroupRoot,
		"staticPodPath": k.Manifests(), "podLogsDir": filepath.Join(k.dir, "podlogs"),
		"containerRuntimeEndpoint": k.node.Containerd.Endpoint(),
		"authentication":           map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":            map[string]any{"mode": "AlwaysAllow"},
		"address":                  "127.0.0.1", "healthzBindAddress": "127.0.0.1",
		"port": k.node.Port + 5, "readOnlyPort": k.node.Port + 6, "healthzPort": k.node.Port + 7,
		// Its chains would stay on the machine.
		"makeIPTablesUtilChains": false,
		// One JSON object a line, the events among them.
		"logging": map[string]any{"format": "json", "verbosity": 3},
	} {
		config[key] = value
	}
	return config
}

func (k *kubelet) Start(ctx context.Context) error {
	if err := os.MkdirAll(k.Manifests(), 0o755); err != nil {
		return fmt.Errorf("make the kubelet's directories: %w", err)
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
		return fmt.Errorf("write the kubelet's configuration: %w", err)
	}
	log, err := os.Create(k.log.path)
	if err != nil {
		return fmt.Errorf("make the kubelet's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	k.cmd = exec.Command(k.binary, "--config", config, "--root-dir", filepath.Join(k.dir, "root"),
		"--cert-dir", filepath.Join(k.dir, "certs"), "--hostname-override", nodeName, "--node-ip", nodeIP())
	k.cmd.Stdout, k.cmd.Stderr = log, log
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := k.cmd.Start(); err != nil {
		return fmt.Errorf("start the kubelet: %w", err)
	}
	k.done = make(chan struct{})
	go func() { _ = k.cmd.Wait(); close(k.done) }()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return testnode.Poll(ctx, 50*time.Millisecond, func() error {
		if !k.Running() {
			return testnode.Stop(fmt.Errorf("the kubelet ended: %s", k.LogTail()))
		}
		_, err := k.Pods(ctx)
		return err
	})
}

func (k *kubelet) Running() bool {
	select {
	case <-k.done:
		return false
	default:
		return true
	}
}

// Stop ends the kubelet and removes the links to logs that it makes in a
// directory that no flag of it names.
func (k *kubelet) Stop() error {
	if k.done == nil || !k.Running() {
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
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, k.dir+"/") {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}

func (k *kubelet) LogTail() string {
	text, _ := os.ReadFile(k.log.path)
	return string(text[max(0, len(text)-3000):])
}

func (k *kubelet) Pods(ctx context.Context) ([]v1.Pod, error) {
	body, err := testnode.GetLoopback(ctx, k.node.Port+6, "/pods")
	if err != nil {
		return nil, err
	}
	return testnode.DecodePods(body)
}

func (k *kubelet) Events(_ context.Context, pod string) ([]Event, error) { return k.log.events(pod) }

// port is the first of the ports that a scenario may use on the host, on one of
// the sides.
func port(side string, number int) string {
	base := 24000
	if side == "podd" {
		base = 26000
	}
	return strconv.Itoa(base + 4*number)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/testnode"
)

const (
	imageBusybox = testnode.ImageBusybox
	// nodeName is all agents' name of their node, and so the end of their pods'
	// names, and namespace is where these are. In an apiserver the side's name comes
	// after either.
	nodeName  = "parity"
	namespace = "default"
)

// Agent is what both sides have in common.
type Agent interface {
	// Start returns when the agent answers. Stop and Kill return when the process
	// is gone; its pods run on.
	Start(ctx context.Context) error
	Stop() error
	Kill() error
	// Close is Stop, and ends whatever else belongs to it.
	Close() error
	// Manifests is the directory that it watches, if documents come from there.
	Manifests() string
	documents
	Pods(ctx context.Context) ([]v1.Pod, error)
	// Events are those of one pod, by first occurrence.
	Events(ctx context.Context, pod string) ([]Event, error)
	// Running says whether the process is there.
	Running() bool
	// LogFile is what it writes, LogTail the end of that.
	LogFile() string
	LogTail() string
}

// Event is one event, times and repeats aside.
type Event struct {
	Path    string `json:"path,omitempty"` // spec.containers{app}; empty for the pod
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Count is how often it was told, as far as the agent says.
	Count int `json:"count"`
}

// nodeConfig is what both agents are told alike.
func nodeConfig(url string) map[string]any {
	config := testnode.IdleNode()
	config["allowedUnsafeSysctls"] = []string{"net.core.somaxconn"}
	config["staticPodURL"], config["httpCheckFrequency"] = url, "1s"
	config["systemReserved"] = map[string]string{"memory": "128Mi"} // so that a pod may have less than there is
	return config
}

// podd is what is compared, standalone: under the kubelet's name, or under its own.
type podd struct {
	*testnode.Podd
	directory

	mu   sync.Mutex
	seen map[string]map[string]v1.Event // by pod, by the event's name
}

func newPodd(node *testnode.Node, url string) (*podd, error) {
	p, err := testnode.NewPodd(node.Place, node.Bundle, filepath.Join(node.Dir, "podd"))
	if err != nil {
		return nil, err
	}
	p.Config = nodeConfig(url)
	p.Config["containerRuntimeEndpoint"] = node.Containerd.Endpoint()
	p.Args = []string{"--hostname-override", nodeName, "--node-ip", testnode.NodeIP()}
	return &podd{Podd: p, directory: directory(p.Manifests()), seen: map[string]map[string]v1.Event{}}, nil
}

func (p *podd) Start(ctx context.Context) error {
	if err := p.Podd.Start(); err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

func (p *podd) Stop() error     { return p.Signal(unix.SIGTERM) }
func (p *podd) Close() error    { return p.Stop() }
func (p *podd) Kill() error     { return p.Signal(unix.SIGKILL) }
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
	return eventsOf(list.Items), nil
}

// eventsOf are events by first occurrence.
func eventsOf(all []v1.Event) (events []Event) {
	// The time of the first occurrence is in whole seconds; the name's end has
	// it to the nanosecond.
	slices.SortStableFunc(all, func(a, b v1.Event) int { return strings.Compare(bornAt(a), bornAt(b)) })
	for _, e := range all {
		events = append(events, Event{e.InvolvedObject.FieldPath, e.Type, e.Reason, e.Message, int(e.Count)})
	}
	return events
}

func bornAt(e v1.Event) string { return e.Name[strings.LastIndex(e.Name, ".")+1:] }

// kubelet is upstream's, standalone.
type kubelet struct {
	*testnode.Kubelet
	directory
	log kubeletLog
}

func newKubelet(node *testnode.Node, url, binary string) *kubelet {
	k := testnode.NewKubelet(node.Place, node.Containerd.Endpoint(), binary)
	k.Config = nodeConfig(url)
	// One JSON object a line, the events among them.
	k.Config["logging"] = map[string]any{"format": "json", "verbosity": 3}
	k.Args = []string{"--hostname-override", nodeName, "--node-ip", testnode.NodeIP()}
	return &kubelet{Kubelet: k, directory: directory(k.Manifests()), log: kubeletLog{path: k.LogFile()}}
}

// Start begins a new log: what the last one told has been taken in by then.
func (k *kubelet) Start(ctx context.Context) error {
	k.log.begin()
	return k.Kubelet.Start(ctx)
}

func (k *kubelet) Stop() error  { return errors.Join(k.Kubelet.Stop(), k.log.read()) }
func (k *kubelet) Close() error { return k.Stop() }
func (k *kubelet) Kill() error  { return errors.Join(k.Kubelet.Kill(), k.log.read()) }

func (k *kubelet) Running() bool   { return k.Pid() != 0 }
func (k *kubelet) LogTail() string { return k.Kubelet.LogTail(3000) }

func (k *kubelet) Events(_ context.Context, pod string) ([]Event, error) { return k.log.events(pod) }

// port is one of the four that a scenario may use on the host, on one of the sides.
func port(side string, number, which int) string {
	return strconv.Itoa(24000 + 2000*slices.Index(allSides, side) + 4*number + which)
}

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"podd/test/e2e/testnode"
)

// Programs are the binaries of a whole cluster. With a Kubelet, upstream's is the node, in
// podd's place.
type Programs struct {
	APIServer, Manager, Scheduler, Kubelet string
	// Audit has the node's requests noted (APIServer.Requests).
	Audit bool
}

// Whole is a cluster of one node that is all there: apiserver, controllers, and podd or
// upstream's kubelet on a test node. Pods reach the node by the address of their bridge.
type Whole struct {
	Node        *testnode.Node
	Server      *APIServer
	Controllers *Controllers

	name string
	pid  func() int   // of the agent
	stop func() error // of the agent
	// check returns an error if the agent has ended.
	check func() error
}

// StartWhole starts everything on a test node that has nothing else, and returns when the
// node takes pods. When it fails, Close is still to be called.
func StartWhole(ctx context.Context, node *testnode.Node, programs Programs) (*Whole, error) {
	w := &Whole{Node: node, name: "node" + strconv.Itoa(node.Number)}
	w.Server = &APIServer{Binary: programs.APIServer, Dir: filepath.Join(node.Dir, "apiserver"), Port: node.Port + 8, Nodes: []string{w.name}, Accounts: true, Audit: programs.Audit}
	w.Controllers = &Controllers{Server: w.Server, Manager: programs.Manager, Scheduler: programs.Scheduler, PodCIDR: node.Subnet}
	address, err := bridgeAddress(node)
	if err != nil {
		return w, err
	}
	if err := w.Server.Start(ctx); err != nil {
		return w, err
	}
	if err := w.Controllers.Start(ctx); err != nil {
		return w, err
	}
	kubeconfig := filepath.Join(node.Dir, "node.kubeconfig")
	if err := w.Server.NodeKubeconfig(kubeconfig, w.name); err != nil {
		return w, err
	}
	start := w.startPodd
	if programs.Kubelet != "" {
		start = func(args []string) error { return w.startKubelet(ctx, programs.Kubelet, args) }
	}
	err = start([]string{"--kubeconfig=" + kubeconfig, "--node-ip=" + address.String()})
	if err != nil {
		return w, err
	}
	return w, w.Controllers.NodeReady(ctx, w.name)
}

// bridgeAddress gives the bridge of the pods the address that its plugin would give it with
// the first pod: the node's, before there is a pod.
func bridgeAddress(node *testnode.Node) (netip.Addr, error) {
	address := node.Subnet.Addr().Next()
	bridge, err := netlink.LinkByName(node.Bridge)
	if err != nil {
		return address, fmt.Errorf("look for bridge %s: %w", node.Bridge, err)
	}
	a, err := netlink.ParseAddr(netip.PrefixFrom(address, node.Subnet.Bits()).String())
	if err != nil {
		return address, err
	}
	if err := netlink.AddrReplace(bridge, a); err != nil {
		return address, fmt.Errorf("give bridge %s the address %s: %w", node.Bridge, address, err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return address, fmt.Errorf("set bridge %s up: %w", node.Bridge, err)
	}
	return address, nil
}

func (w *Whole) startPodd(args []string) error {
	p, err := testnode.NewPodd(w.Node.Place, w.Node.Bundle, filepath.Join(w.Node.Dir, "podd"))
	if err != nil {
		return err
	}
	maps.Copy(p.Config, testnode.IdleNode())
	p.Config["address"] = nil // of all ports; the apiserver comes by the node's address
	p.Args = append(args, "--client-ca-file="+w.Server.ClientCA(), "--cert-dir="+filepath.Join(p.Dir, "pki"), "--port="+strconv.Itoa(w.Node.Port+9))
	w.pid, w.stop = p.Pid, func() error { return p.Signal(unix.SIGTERM) }
	w.check = func() error {
		if ended, how := p.Ended(); ended {
			return fmt.Errorf("podd ended (%s): %s", how, p.LogTail(3000))
		}
		return nil
	}
	return p.Start()
}

func (w *Whole) startKubelet(ctx context.Context, binary string, args []string) error {
	k := testnode.NewKubelet(w.Node.Place, w.Node.Containerd.Endpoint(), binary)
	k.Config = map[string]any{
		"address": "0.0.0.0", "port": w.Node.Port + 9, "staticPodPath": "",
		"authentication": map[string]any{"x509": map[string]any{"clientCAFile": w.Server.ClientCA()}, "anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}},
		"authorization":  map[string]any{"mode": "Webhook"},
	}
	k.Args = append(args, "--hostname-override="+w.name)
	w.pid, w.stop = k.Pid, k.Stop
	w.check = func() error {
		if k.Pid() == 0 {
			return fmt.Errorf("the kubelet ended: %s", k.LogTail(3000))
		}
		return nil
	}
	return k.Start(ctx)
}

// Name is the node's. Pid is its agent's; 0 when it does not run.
func (w *Whole) Name() string { return w.name }
func (w *Whole) Pid() int     { return w.pid() }

// Check returns an error if something has ended that should run.
func (w *Whole) Check() error {
	var server error
	if !w.Server.Running() {
		server = fmt.Errorf("the apiserver ended: %s", w.Server.LogTail())
	}
	return cmp.Or(server, w.Controllers.Check(), w.check())
}

// Close ends all of it but the test node, which has the pods.
func (w *Whole) Close() error {
	var errs []error
	if w.stop != nil {
		errs = append(errs, w.stop())
	}
	return errors.Join(append(errs, w.Controllers.Stop(), w.Server.Stop())...)
}

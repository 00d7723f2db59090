package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"

	"podd/internal/pod"
	"podd/internal/wipe"
)

// Network is the default pod network of this node.
type Network struct {
	cfg Config
	log *slog.Logger
	cni *libcni.CNIConfig
	// proc is /proc, except in tests, as find is findTool.
	proc string
	find func(tool string) string
}

// New checks the configuration and does nothing else.
func New(cfg Config, log *slog.Logger) (*Network, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	exec := &invoke.DefaultExec{
		RawExec:       &invoke.RawExec{Stderr: os.Stderr},
		PluginDecoder: version.PluginDecoder{},
	}
	return &Network{
		cfg: cfg, log: log, proc: "/proc", find: findTool,
		cni: libcni.NewCNIConfigWithCacheDir(cfg.BinDirs, cfg.CacheDir, exec),
	}, nil
}

// rules are the rules that pods of a pod CIDR share.
func (n *Network) rules(cidr netip.Prefix) *rules {
	r := newRules(n.cfg.Bridge, cidr)
	r.find = n.find
	return r
}

// SetUp writes the configuration of the default network and sets up what its pods
// share: forwarding, the bridge and the rules. It is idempotent, and must be called
// before the runtime starts. If the administrator's own configuration takes precedence,
// the node's rules are left alone. While the cluster is yet to assign the pod CIDR, there
// is no network, which is no error.
func (n *Network) SetUp(ctx context.Context) error {
	cidr, err := n.cidr()
	if err != nil {
		return err
	}
	if !cidr.IsValid() {
		n.log.Info("the pod network waits for the podCIDR that the cluster gives to this node")
		return n.removeUnusedConf()
	}
	if kept, err := n.keepsOldNetwork(cidr); err != nil || kept {
		return err
	}
	rules := n.rules(cidr)
	backend, err := rules.backend()
	if err != nil {
		return err
	}
	if err := n.cfg.writeConf(backend, cidr); err != nil {
		return err
	}
	if own, err := n.isEffective(); err != nil || !own {
		return err
	}
	if err := n.enableForwarding(); err != nil {
		return err
	}
	if err := n.ensureBridge(ctx, cidr); err != nil {
		return err
	}
	remark, err := rules.apply(ctx)
	if remark != "" {
		n.log.Warn("the pod network may be blocked", "reason", remark)
	}
	return err
}

// TearDown removes what SetUp and the plugins created, including the bridge if podd
// created it; remark says what stays and why. No pod of this network may be left. If the
// bridge belongs to another podd, so does the rest, and TearDown removes nothing.
func (n *Network) TearDown(ctx context.Context) (remark string, err error) {
	b, err := n.inspectBridge(ctx)
	if err != nil {
		return "", err
	}
	if n.isOtherPodds(b) {
		return fmt.Sprintf("network %s is kept: it belongs to another podd (%q)", n.cfg.Bridge, b.alias), nil
	}
	cidr, err := n.cidr()
	err = errors.Join(err, n.rules(cidr).remove(ctx))
	if rmErr := os.Remove(n.cfg.confFile()); rmErr != nil && !errors.Is(rmErr, os.ErrNotExist) {
		err = errors.Join(err, rmErr)
	}
	remark, bridgeErr := n.removeBridge(ctx, b)
	return remark, errors.Join(err, bridgeErr, wipe.Tree(ctx, n.cfg.LeaseDir, n.cfg.Bridge))
}

// Ready returns nil if pods can get a network, and otherwise an error of class
// pod.ErrNetworkNotReady that says what is missing and what to do. It checks files, and
// calls the plugins (STATUS) only if the CNI version of the configuration has that.
func (n *Network) Ready(ctx context.Context) error {
	list, file, err := n.load()
	if err != nil {
		return err
	}
	for _, p := range list.Plugins {
		types := []string{p.Network.Type}
		if p.Network.IPAM.Type != "" {
			types = append(types, p.Network.IPAM.Type)
		}
		for _, kind := range types {
			if _, err := invoke.FindInPath(kind, n.cfg.BinDirs); err != nil {
				return notReady("%s names the CNI plugin %q, which is not in %s", file, kind, strings.Join(n.cfg.BinDirs, ", "))
			}
		}
	}
	if err := n.cni.GetStatusNetworkList(ctx, list); err != nil {
		return notReady("%s: a CNI plugin says: %v", file, err)
	}
	return nil
}

func notReady(format string, args ...any) error {
	return fmt.Errorf("%w: %w", pod.ErrNetworkNotReady, fmt.Errorf(format, args...))
}

// load reads the effective configuration, which is the first by name, as in
// containerd.
func (n *Network) load() (*libcni.NetworkConfigList, string, error) {
	files, err := libcni.ConfFiles(n.cfg.ConfDir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, "", notReady("read the CNI configuration: %v", err)
	}
	if len(files) == 0 {
		if cidr, err := n.cidr(); err == nil && !cidr.IsValid() {
			return nil, "", notReady("this node has no podCIDR yet: the cluster assigns it (kube-controller-manager --allocate-node-cidrs), or --pod-cidr says it")
		}
		return nil, "", notReady("no CNI configuration in %s; \"podd runtime\" writes the default one at its start", n.cfg.ConfDir)
	}
	// The same order as containerd's: by name.
	file := files[0]
	for _, f := range files {
		file = min(file, f)
	}
	if filepath.Ext(file) != ".conflist" {
		//lint:ignore SA1019 containerd reads these files, so what it uses must be read alike.
		conf, err := libcni.ConfFromFile(file)
		if err != nil {
			return nil, "", notReady("%s: %v", file, err)
		}
		//lint:ignore SA1019 see above.
		list, err := libcni.ConfListFromConf(conf)
		if err != nil {
			return nil, "", notReady("%s: %v", file, err)
		}
		return list, file, nil
	}
	list, err := libcni.ConfListFromFile(file)
	if err != nil {
		return nil, "", notReady("%s: %v", file, err)
	}
	return list, file, nil
}

// isEffective says whether podd's network is the effective one.
func (n *Network) isEffective() (bool, error) {
	_, file, err := n.load()
	if err != nil {
		return false, err
	}
	if file != n.cfg.confFile() {
		n.log.Info("using the administrator's pod network configuration", "file", file)
		return false, nil
	}
	return true, nil
}

// enableForwarding enables IP forwarding on the node.
func (n *Network) enableForwarding() error {
	path := filepath.Join(n.proc, "sys/net/ipv4/ip_forward")
	if now, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(now)) == "1" {
		return nil
	}
	if err := os.WriteFile(path, []byte("1"), 0o644); err != nil {
		return fmt.Errorf("enable forwarding of pods' packets (sysctl net.ipv4.ip_forward=1): %w", err)
	}
	return nil
}

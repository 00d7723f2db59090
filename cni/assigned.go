package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"podd/internal/atomicfile"
)

// maxAssigned bounds what is read of Config.AssignedFile: a prefix has 18 characters at most.
const maxAssigned = 64

// ErrAddressesInUse is the class of an assignment that fails because pods have older
// addresses.
var ErrAddressesInUse = errors.New("pods of this node have addresses of another network")

// cidr is where pods get their addresses from now: what was configured, or else what the
// cluster has assigned, or else the default. It is invalid (the zero value) while the
// cluster is yet to assign it.
func (n *Network) cidr() (netip.Prefix, error) {
	if n.cfg.PodCIDR.IsValid() {
		return n.cfg.PodCIDR, nil
	}
	fallback := netip.MustParsePrefix(DefaultPodCIDR)
	if n.cfg.AssignedFile == "" {
		return fallback, nil
	}
	text, err := readStart(n.cfg.AssignedFile, maxAssigned)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fallback, nil
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("read which pod CIDR the cluster has assigned: %w", err)
	}
	cidr, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil || n.cfg.checkPodCIDR(cidr) != nil {
		return netip.Prefix{}, nil // none yet, or damaged: the cluster says it again
	}
	return cidr, nil
}

// readStart reads at most limit bytes of a file.
func readStart(path string, limit int) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text := make([]byte, limit)
	read, err := f.Read(text)
	if err != nil && read == 0 {
		return "", nil // empty
	}
	return string(text[:read]), nil
}

// AwaitAssignment makes the network wait for the cluster's assignment (Assign): until then
// SetUp makes no network. It does not wait if there was an assignment, even in an earlier
// run, or if the pod CIDR was configured. It leaves alone what pods of an earlier network
// have.
func (n *Network) AwaitAssignment() error {
	if n.cfg.PodCIDR.IsValid() || n.cfg.AssignedFile == "" || fileExists(n.cfg.AssignedFile) {
		return nil
	}
	return n.saveAssigned("")
}

func (n *Network) saveAssigned(text string) error {
	if err := os.MkdirAll(filepath.Dir(n.cfg.AssignedFile), 0o700); err != nil {
		return fmt.Errorf("record the pod CIDR that the cluster assigns: %w", err)
	}
	if err := atomicfile.WriteDurably(n.cfg.AssignedFile, []byte(text), 0o600); err != nil {
		return fmt.Errorf("record the pod CIDR that the cluster assigns: %w", err)
	}
	return nil
}

// Unassign removes what AwaitAssignment and Assign have recorded, because the node is in no
// cluster. The network stays as it is until the next SetUp.
func (n *Network) Unassign() error {
	if err := os.Remove(n.cfg.AssignedFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the pod CIDR that a cluster had assigned: %w", err)
	}
	return nil
}

// Assign sets the network to the first IPv4 prefix of cidrs, which the cluster has given to
// this node, and remembers it for later starts. It does nothing if the network is that
// already, or if the administrator's own configuration takes precedence. While pods have
// addresses outside of the prefix, Assign changes nothing and its error is of class
// ErrAddressesInUse: the bridge would lose the address by which these pods reach others. It
// must not be called concurrently with SetUp.
func (n *Network) Assign(ctx context.Context, cidrs []netip.Prefix) error {
	if n.cfg.PodCIDR.IsValid() {
		return fmt.Errorf("pod CIDR %s was configured (--pod-cidr): %v of the cluster cannot be used", n.cfg.PodCIDR, cidrs)
	}
	if _, file, err := n.load(); err == nil && file != n.cfg.confFile() {
		return nil
	}
	i := slices.IndexFunc(cidrs, func(c netip.Prefix) bool { return c.Addr().Is4() })
	if i < 0 {
		return fmt.Errorf("the cluster gives this node the pod CIDR %v, and the default pod network is IPv4 only: give the cluster an IPv4 --cluster-cidr, or put a CNI configuration of your own into %s", cidrs, n.cfg.ConfDir)
	}
	cidr := cidrs[i].Masked()
	if err := n.cfg.checkPodCIDR(cidr); err != nil {
		return err
	}
	old, err := n.cidr()
	if err != nil || old == cidr && fileExists(n.cfg.confFile()) {
		return err
	}
	stray, err := n.leasesOutside(cidr)
	if err != nil {
		return err
	}
	if len(stray) > 0 {
		return fmt.Errorf("%w: the cluster gives this node the pod CIDR %s, and %d of its pods have other addresses (%s, for example): end the pods that are not on the node's own network (kubectl drain, and their static manifests), and it is taken up",
			ErrAddressesInUse, cidr, len(stray), stray[0])
	}
	if old.IsValid() {
		n.rules(old).removeCIDRRules(ctx)
	}
	if err := n.saveAssigned(cidr.String() + "\n"); err != nil {
		return err
	}
	return n.SetUp(ctx)
}

// leasesOutside returns the addresses that pods have outside of a network.
func (n *Network) leasesOutside(cidr netip.Prefix) ([]netip.Addr, error) {
	entries, err := os.ReadDir(filepath.Join(n.cfg.LeaseDir, n.cfg.Bridge))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list address leases: %w", err)
	}
	var out []netip.Addr
	for _, e := range entries {
		if a, err := netip.ParseAddr(e.Name()); err == nil && !cidr.Contains(a) {
			out = append(out, a)
		}
	}
	return out, nil
}

// removeUnusedConf removes the configuration of an earlier network, so that no more pods
// start in it. It keeps the configuration while pods have addresses of that network: they
// cannot be released without it.
func (n *Network) removeUnusedConf() error {
	held, err := n.leasesOutside(netip.Prefix{})
	if err != nil || len(held) > 0 {
		return err
	}
	if err := os.Remove(n.cfg.confFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the pod network's configuration: %w", err)
	}
	return nil
}

// keepsOldNetwork says whether the network of an earlier start stays because pods still have
// addresses of it. For example, the node has left its cluster, and its pods run on.
func (n *Network) keepsOldNetwork(cidr netip.Prefix) (bool, error) {
	if n.cfg.PodCIDR.IsValid() || !fileExists(n.cfg.confFile()) {
		return false, nil
	}
	stray, err := n.leasesOutside(cidr)
	if err != nil || len(stray) == 0 {
		return false, err
	}
	n.log.Warn("the pod network stays as it was: pods have addresses of it; the new one is made when podd or its runtime is started without them",
		"pod_cidr", cidr, "pods", len(stray), "address", stray[0])
	return true, nil
}

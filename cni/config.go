package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"

	"podd/internal/atomicfile"
)

const (
	// DefaultBridge is the name of the bridge and of the network.
	DefaultBridge = "podd0"
	// DefaultPodCIDR is where pods get their addresses from.
	DefaultPodCIDR = "10.88.0.0/16"
	// confName sorts last, so that any configuration of an administrator wins.
	confName = "99-podd.conflist"
	// confVersion is CNI 1.0.0 on purpose: from 1.1.0 on containerd executes
	// every plugin again (STATUS) for each CRI Status call, and these plugins
	// have nothing to say to it.
	confVersion = "1.0.0"
)

// Config is what a Network needs to know. Bridge must be unique on the machine:
// it names the network, so that two instances never collect one another's.
type Config struct {
	// Bridge defaults to DefaultBridge; at most 15 characters, the kernel's limit.
	Bridge string
	// Owner tells this podd from others of the machine, and is written on the
	// bridge: the root directory, resolved.
	Owner string
	// PodCIDR is IPv4, with room for at least one pod. The zero value is that of
	// AssignedFile, or else DefaultPodCIDR.
	PodCIDR netip.Prefix
	// AssignedFile is a file for the pod CIDR that a cluster gives to this node; see
	// AwaitAssignment and Assign. Empty: none does. It should survive a boot, so that pods
	// have a network before the cluster responds.
	AssignedFile string
	// BinDirs hold the plugins, first match wins.
	BinDirs []string
	// ConfDir is where the runtime reads the network's configuration.
	ConfDir string
	// LeaseDir is where host-local keeps addresses. It should not survive a boot.
	LeaseDir string
	// CacheDir is where the runtime's libcni keeps attachments; empty for its
	// default, /var/lib/cni, which containerd uses.
	CacheDir string
	// NetNSDir is where the runtime mounts network namespaces; see
	// bundle.NetNSDir. Empty: namespaces are not collected.
	NetNSDir string
	// NetNSPrefix is what the names in NetNSDir start with; empty for "cni-".
	NetNSPrefix string
}

var bridgeName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]{0,14}$`)

func (c *Config) complete() error {
	if c.Bridge == "" {
		c.Bridge = DefaultBridge
	}
	if c.CacheDir == "" {
		c.CacheDir = "/var/lib/cni"
	}
	if c.NetNSPrefix == "" {
		c.NetNSPrefix = "cni-"
	}
	var errs []error
	if !bridgeName.MatchString(c.Bridge) {
		errs = append(errs, fmt.Errorf("bridge name %q: a network interface has 1 to 15 letters, digits, dots, dashes or underscores, a letter first", c.Bridge))
	}
	if c.PodCIDR.IsValid() {
		if err := c.checkPodCIDR(c.PodCIDR); err != nil {
			errs = append(errs, err)
		}
	}
	if masked := c.PodCIDR.Masked(); c.PodCIDR.IsValid() && masked != c.PodCIDR && c.PodCIDR.Addr().Is4() {
		errs = append(errs, fmt.Errorf("pod CIDR %s has host bits set; did you mean %s?", c.PodCIDR, masked))
	}
	for what, dir := range map[string]string{"CNI configuration": c.ConfDir, "address lease": c.LeaseDir} {
		if !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("%s directory %q is not an absolute path", what, dir))
		}
	}
	return errors.Join(errs...)
}

// checkPodCIDR says why pods cannot get their addresses from a network.
func (c *Config) checkPodCIDR(cidr netip.Prefix) error {
	switch {
	case !cidr.Addr().Is4():
		return fmt.Errorf("pod CIDR %s: the default network is IPv4 only; for IPv6 put a CNI configuration of your own into %s", cidr, c.ConfDir)
	case cidr.Bits() > 30:
		return fmt.Errorf("pod CIDR %s has no room for a pod; the smallest is a /30", cidr)
	}
	return nil
}

type object = map[string]any

// conflist is the default network for the plugins. backend is portmap's.
func (c *Config) conflist(backend string, cidr netip.Prefix) ([]byte, error) {
	text, err := json.MarshalIndent(object{
		"cniVersion": confVersion,
		"name":       c.Bridge,
		"plugins": []object{
			{
				"type":             "bridge",
				"bridge":           c.Bridge,
				"isDefaultGateway": true,
				"forceAddress":     true, // a new pod CIDR replaces the bridge's old address
				"hairpinMode":      true, // a pod reaches itself through its own hostPort
				"ipam": object{
					"type":    "host-local",
					"dataDir": c.LeaseDir,
					"ranges":  [][]object{{{"subnet": cidr.String()}}},
				},
			},
			{
				"type":         "portmap",
				"backend":      backend,
				"capabilities": object{"portMappings": true},
			},
		},
	}, "", "  ")
	return append(text, '\n'), err
}

func (c *Config) confFile() string { return filepath.Join(c.ConfDir, confName) }

// writeConf replaces the file in one step, and not at all when it says the same
// already: the runtime watches the directory.
func (c *Config) writeConf(backend string, cidr netip.Prefix) error {
	text, err := c.conflist(backend, cidr)
	if err != nil {
		return fmt.Errorf("make the pod network's configuration: %w", err)
	}
	if old, err := os.ReadFile(c.confFile()); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := os.MkdirAll(c.ConfDir, 0o755); err != nil {
		return fmt.Errorf("make the pod network's directory: %w", err)
	}
	if err := atomicfile.Write(c.confFile(), text, 0o644); err != nil {
		return fmt.Errorf("write the pod network's configuration: %w", err)
	}
	return nil
}

package cri

import (
	"context"
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// Version identifies the runtime.
type Version struct {
	// Name and Version are the runtime's: containerd, v2.4.2.
	Name, Version string
	// APIVersion is CRI's: v1.
	APIVersion string
}

// Version queries the runtime's name and version.
func (c *Conn) Version(ctx context.Context) (Version, error) {
	r, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{Version: "v1"})
	if err != nil {
		return Version{}, mapError("ask the runtime for its version", err)
	}
	return Version{Name: r.RuntimeName, Version: r.RuntimeVersion, APIVersion: r.RuntimeApiVersion}, nil
}

// Alive is nil if the runtime responds to a cheap call.
func (c *Conn) Alive(ctx context.Context) error {
	_, err := c.Version(ctx)
	return err
}

// Condition is one of the runtime's own statements about itself.
type Condition struct {
	OK      bool
	Reason  string
	Message string
}

// Status says whether the runtime can run containers, and whether pods get a network.
type Status struct {
	Runtime Condition
	Network Condition
	// Handlers are the handlers that a RuntimeClass may name; empty if the runtime is too
	// old to report them.
	Handlers []Handler
	// RecursiveReadOnly is the default handler's.
	RecursiveReadOnly bool
	// StrictGroups: the runtime honours supplementalGroupsPolicy: Strict.
	StrictGroups bool
}

// Handler is one way in which the runtime can run pods.
type Handler struct {
	// Name is "" for the default one.
	Name string
	// RecursiveReadOnly: it can make the mounts below a read-only mount
	// read-only too.
	RecursiveReadOnly bool
	// UserNamespaces: it can run pods with hostUsers: false on this kernel.
	UserNamespaces bool
}

// Status queries the runtime's status.
func (c *Conn) Status(ctx context.Context) (Status, error) {
	r, err := c.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return Status{}, mapError("ask the runtime for its status", err)
	}
	s := Status{
		Runtime: Condition{Reason: "RuntimeNotReady", Message: "the runtime does not report that it is ready"},
		Network: Condition{Reason: "NetworkNotReady", Message: "the runtime does not report that its network is ready"},
	}
	for _, cond := range r.GetStatus().GetConditions() {
		v := Condition{OK: cond.Status, Reason: cond.Reason, Message: cond.Message}
		switch cond.Type {
		case runtimeapi.RuntimeReady:
			s.Runtime = v
		case runtimeapi.NetworkReady:
			s.Network = v
		}
	}
	for _, h := range r.GetRuntimeHandlers() {
		s.Handlers = append(s.Handlers, Handler{
			Name: h.Name, RecursiveReadOnly: h.GetFeatures().GetRecursiveReadOnlyMounts(), UserNamespaces: h.GetFeatures().GetUserNamespaces(),
		})
		if h.Name == "" {
			s.RecursiveReadOnly = h.GetFeatures().GetRecursiveReadOnlyMounts()
		}
	}
	s.StrictGroups = r.GetFeatures().GetSupplementalGroupsPolicy()
	return s, nil
}

// DefaultRuntime returns the program that runs containers of the default handler: the path
// of runc, or of its replacement. It is "" for a runtime that does not report it.
// containerd reports it as information for people, in a form that no specification
// promises.
func (c *Conn) DefaultRuntime(ctx context.Context) (string, error) {
	r, err := c.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return "", mapError("ask the runtime for its settings", err)
	}
	var settings struct {
		Containerd struct {
			DefaultRuntimeName string
			Runtimes           map[string]struct{ Options struct{ BinaryName string } }
		}
	}
	if err := json.Unmarshal([]byte(r.GetInfo()["config"]), &settings); err != nil {
		return "", nil // another runtime, or another form
	}
	return settings.Containerd.Runtimes[settings.Containerd.DefaultRuntimeName].Options.BinaryName, nil
}

// RuntimeConfig is the part of its configuration that the runtime reports.
type RuntimeConfig struct {
	// CgroupDriver is "systemd" or "cgroupfs".
	CgroupDriver string
}

// RuntimeConfig queries the cgroup driver; pod.ErrUnimplemented if the runtime is too
// old to report it.
func (c *Conn) RuntimeConfig(ctx context.Context) (RuntimeConfig, error) {
	r, err := c.runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if err != nil {
		return RuntimeConfig{}, mapError("ask the runtime for its configuration", err)
	}
	if r.GetLinux() == nil {
		return RuntimeConfig{}, &callError{call: "ask the runtime for its configuration", message: "it does not report its cgroup driver", class: pod.ErrUnimplemented}
	}
	driver := "systemd"
	if r.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_CGROUPFS {
		driver = "cgroupfs"
	}
	return RuntimeConfig{CgroupDriver: driver}, nil
}

// UpdateRuntimeConfig tells the runtime the pod CIDR of this node: networks in CIDR
// notation, separated by commas. A runtime that configures pods' networks by itself ignores
// it.
func (c *Conn) UpdateRuntimeConfig(ctx context.Context, podCIDR string) error {
	_, err := c.runtime.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: podCIDR}},
	})
	if err != nil {
		return mapError("tell the runtime the pod CIDR", err)
	}
	return nil
}

package node

import (
	"context"
	"slices"

	"podd/cgroup"
	"podd/cri"
	"podd/status"
)

// Facts are what is known of the node only when the runtime has answered for the
// first time. They are read-only, and hold until podd ends.
type Facts struct {
	// Runtime is who answered.
	Runtime cri.Version
	// CgroupDriver is the runtime's where it tells, else the configuration's.
	CgroupDriver cgroup.Driver
	// Handlers are what a RuntimeClass may name, with what each can do (recursive
	// read-only mounts, user namespaces); empty where the runtime does not say.
	Handlers []cri.Handler
	// RecursiveReadOnly is the default handler's.
	RecursiveReadOnly bool
	// StrictGroups: the runtime honours supplementalGroupsPolicy Strict.
	StrictGroups bool
	// Addresses are the node's, primary first, at most one of each family; none
	// where it has no network. Whoever names them to pods or people goes by these.
	Addresses []string
}

// imports says whether archives can be imported into this runtime.
func (f Facts) imports() bool { return f.Runtime.Name == "containerd" }

// status is what statuses show of them.
func (f Facts) status() status.Options {
	return status.Options{RuntimeName: f.Runtime.Name, HostIPs: slices.Clone(f.Addresses), RecursiveReadOnly: f.RecursiveReadOnly}
}

// learn asks a runtime that has answered for the rest.
func (n *Node) learn(ctx context.Context, version cri.Version) Facts {
	f := Facts{Runtime: version, CgroupDriver: cgroup.Driver(n.cfg.CgroupDriver), Addresses: addresses(n.cfg)}
	s, err := n.conn.Status(ctx)
	if err != nil {
		n.log.Info("runtime does not report its features", "error", err)
	}
	f.Handlers, f.RecursiveReadOnly, f.StrictGroups = s.Handlers, s.RecursiveReadOnly, s.StrictGroups
	// The runtime's word for the cgroup driver counts more than the configuration's,
	// as in the kubelet (KEP-4033).
	switch rc, err := n.conn.RuntimeConfig(ctx); {
	case err != nil:
		n.log.Info("runtime does not report its cgroup driver: using the configured one", "driver", n.cfg.CgroupDriver, "error", err)
	default:
		f.CgroupDriver = cgroup.Driver(rc.CgroupDriver)
		n.log.Debug("cgroup driver", "driver", rc.CgroupDriver)
	}
	if !f.imports() {
		n.log.Info("ignoring the image directory: archives can only be imported into containerd", "runtime", version.Name)
	}
	return f
}

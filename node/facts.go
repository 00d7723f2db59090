package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"podd/bundle"
	"podd/cgroup"
	"podd/cri"
	"podd/internal/pod"
	"podd/status"
)

// Facts are the properties of the node that podd knows only once the runtime has responded for
// the first time. They do not change while podd runs, and are read-only.
type Facts struct {
	// Runtime is the runtime's name and version.
	Runtime cri.Version
	// CgroupDriver is the driver that the runtime reports, or else the configured one.
	CgroupDriver cgroup.Driver
	// Handlers are the runtime handlers that a RuntimeClass may name, with their
	// features (recursive read-only mounts, user namespaces); empty if the runtime
	// does not report them.
	Handlers []cri.Handler
	// RecursiveReadOnly says that the default handler supports recursive read-only mounts.
	RecursiveReadOnly bool
	// StrictGroups says that the runtime honours supplementalGroupsPolicy Strict.
	StrictGroups bool
	// PauseProfile is the seccomp profile of sandboxes; "" for the runtime's default.
	PauseProfile string
}

// importsArchives reports whether this runtime can import image archives.
func (f Facts) importsArchives() bool { return f.Runtime.Name == "containerd" }

// status returns the facts that pods' statuses show, with the node's addresses.
func (f Facts) status(addresses []string) status.Options {
	return status.Options{RuntimeName: f.Runtime.Name, HostIPs: slices.Clone(addresses), RecursiveReadOnly: f.RecursiveReadOnly}
}

// queryFacts queries the other facts of a runtime that has responded.
func (n *Node) queryFacts(ctx context.Context, version cri.Version) Facts {
	f := Facts{Runtime: version, CgroupDriver: cgroup.Driver(n.cfg.CgroupDriver)}
	s, err := n.conn.Status(ctx)
	if err != nil {
		n.log.Info("runtime does not report its features", "error", err)
	}
	f.Handlers, f.RecursiveReadOnly, f.StrictGroups = s.Handlers, s.RecursiveReadOnly, s.StrictGroups
	// The runtime's cgroup driver takes precedence over the configured one, as in the
	// kubelet (KEP-4033).
	switch rc, err := n.conn.RuntimeConfig(ctx); {
	case err != nil:
		n.log.Info("runtime does not report its cgroup driver: using the configured one", "driver", n.cfg.CgroupDriver, "error", err)
		if errors.Is(err, pod.ErrUnimplemented) {
			n.losingSupport.WithLabelValues(needsRuntimeConfig).Set(1)
		}
	default:
		f.CgroupDriver = cgroup.Driver(rc.CgroupDriver)
		n.losingSupport.Reset()
		n.log.Debug("cgroup driver", "driver", rc.CgroupDriver)
	}
	f.PauseProfile = n.pauseProfile(ctx)
	if !f.importsArchives() {
		n.log.Info("ignoring the image directory: archives can only be imported into containerd", "runtime", version.Name)
	}
	return f
}

// pauseProfile writes the seccomp profile of the pause process. It does so only if podd knows
// how that process is started and what it needs: by the bundled runtime, from podd's own image.
// It asks the runtime, because an administrator may have changed its settings.
func (n *Node) pauseProfile(ctx context.Context) (path string) {
	if n.network == nil || n.options.SandboxImage != bundle.PauseImage {
		return ""
	}
	programs, err := bundle.Find(n.options.RuntimeDir)
	var runs string
	if err == nil {
		runs, err = n.conn.DefaultRuntime(ctx)
	}
	if own := filepath.Join(programs, "runc"); err == nil && runs != own {
		err = fmt.Errorf("containers are run by %s instead of %s", cmp.Or(runs, "an unknown program"), own)
	}
	if err == nil {
		path, err = bundle.WritePauseProfile(n.cfg.StateDir)
	}
	if err != nil {
		n.log.Info("sandboxes get the runtime's default seccomp profile, which costs processor time when a pod starts", "why", err)
	}
	return path
}

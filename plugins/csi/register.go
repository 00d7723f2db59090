package csi

import (
	"context"
	"fmt"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"podd/internal/text"
	"podd/plugins/registry"
)

// maxDriverName is CSI's limit, in bytes.
const maxDriverName = 63

// Register registers the driver of a plugin. It asks the driver for its identity and its node ID,
// and blocks until the driver has answered, for 2 minutes at most.
func (v *Volumes) Register(ctx context.Context, p *registry.Plugin) error {
	d, err := v.drivers.identify(ctx, p)
	if err != nil {
		return err
	}
	return v.drivers.add(d)
}

// Deregister ends what Register has registered. Volumes that are mounted stay.
func (v *Volumes) Deregister(p *registry.Plugin) { v.drivers.remove(p) }

// identify validates what a registrar says about its driver, and asks the driver itself for
// its identity and its node ID.
func (r *drivers) identify(ctx context.Context, p *registry.Plugin) (*driver, error) {
	if err := checkName(p.Name); err != nil {
		return nil, err
	}
	highest, err := version.HighestSupportedVersion(p.Versions)
	if err != nil {
		return nil, fmt.Errorf("plugin validation failed with err: none of the versions specified %q are supported: %w", p.Versions, err)
	}
	d := &driver{name: p.Name, endpoint: p.Endpoint, plugin: p, version: highest.String()}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	conn, err := connect(d.endpoint)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := checkIdentity(ctx, conn, d); err != nil {
		return nil, err
	}
	if err := d.fetchNodeInfo(ctx, conn); err != nil {
		return nil, fmt.Errorf("plugin registration failed with err: %w", err)
	}
	return d, nil
}

// fetchNodeInfo asks the driver for its facts about the node.
func (d *driver) fetchNodeInfo(ctx context.Context, conn *grpc.ClientConn) error {
	node, err := csipb.NewNodeClient(conn).NodeGetInfo(ctx, &csipb.NodeGetInfoRequest{})
	if err != nil {
		return fmt.Errorf("NodeGetInfo of the driver at %s: %w", d.endpoint, redacted(err, nil))
	}
	d.nodeID, d.topology, d.maxVolumes = node.GetNodeId(), node.GetAccessibleTopology().GetSegments(), node.GetMaxVolumesPerNode()
	return nil
}

// refreshAttachLimit asks a registered driver again how many volumes can be attached. It takes over
// none of the driver's other facts about the node; those wait until the driver registers
// again, because an apiserver allows no other change of a driver in a CSINode.
func (r *drivers) refreshAttachLimit(ctx context.Context, name string) error {
	r.mu.Lock()
	before := r.byName[name]
	r.mu.Unlock()
	if before == nil {
		return nil // it is asked when it registers
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	conn, err := connect(before.endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	now := *before
	if err := now.fetchNodeInfo(ctx, conn); err != nil {
		return err
	}
	now.nodeID, now.topology = before.nodeID, before.topology
	r.mu.Lock()
	news := r.byName[name] == before && now.maxVolumes != before.maxVolumes
	if news {
		r.byName[name] = &now
	}
	r.mu.Unlock()
	if news {
		r.log.Info("CSI driver has another limit of attached volumes", "driver", name, "max_volumes", now.maxVolumes, "before", before.maxVolumes)
		r.onChange()
	}
	return nil
}

// checkIdentity checks the driver's own name: no other driver may serve its volumes.
func checkIdentity(ctx context.Context, conn *grpc.ClientConn, d *driver) error {
	who, err := csipb.NewIdentityClient(conn).GetPluginInfo(ctx, &csipb.GetPluginInfoRequest{})
	if err != nil {
		return fmt.Errorf("plugin registration failed with err: GetPluginInfo of the driver at %s: %w", d.endpoint, redacted(err, nil))
	}
	if who.GetName() != d.name {
		return fmt.Errorf("plugin validation failed with err: the driver at %s says that it is %q, and its registrar that it is %q", d.endpoint, shorten(who.GetName()), d.name)
	}
	return nil
}

// checkName checks the name of a driver, which becomes the name of a directory, by
// upstream's rule (ValidateCSIDriverName).
func checkName(name string) error {
	if len(name) > maxDriverName {
		return fmt.Errorf("plugin validation failed with err: driver name %q: must be no more than %d characters", shorten(name), maxDriverName)
	}
	if msgs := validation.IsDNS1123Subdomain(strings.ToLower(name)); len(msgs) > 0 {
		return fmt.Errorf("plugin validation failed with err: driver name %q: %s", name, msgs[0])
	}
	return nil
}

// newer says whether version a is higher than b; both are valid.
func newer(a, b string) bool {
	return version.MustParseGeneric(b).LessThan(version.MustParseGeneric(a))
}

func shorten(s string) string { return text.Truncate(s, 100) }

package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podd/internal/pluginconn"
	"podd/internal/text"
	"podd/internal/wake"
)

var errRemoved = errors.New("the socket was removed meanwhile")

// maxDriverName is CSI's limit, in bytes.
const maxDriverName = 63

// register registers the driver behind a socket. It retries until it succeeds or ctx
// ends, which it does when the socket is removed.
func (r *registry) register(ctx context.Context, path string, s *socket) {
	for delay := r.times.retry.First; ; delay = r.times.retry.Next(delay) {
		name, err := r.attempt(ctx, path, s)
		if err == nil || ctx.Err() != nil {
			return
		}
		if r.fail(s, name, err) {
			r.log.Warn("cannot register plugin: trying again", "socket", path, "plugin", shorten(name), "error", err)
		}
		if !wake.Sleep(ctx, delay) {
			return
		}
	}
}

// attempt tries to register once; name is the driver's name, if the registrar told it.
func (r *registry) attempt(ctx context.Context, path string, s *socket) (name string, err error) {
	conn, err := connect(path)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := pluginconn.AwaitReady(ctx, conn, r.times.dial); err != nil {
		return "", fmt.Errorf("dial failed at socket %s: %w", path, err)
	}
	client := registration.NewRegistrationClient(conn)
	within, cancel := context.WithTimeout(ctx, r.times.info)
	info, err := client.GetInfo(within, &registration.InfoRequest{})
	cancel()
	if err != nil {
		return "", fmt.Errorf("failed to get plugin info using RPC GetInfo at socket %s: %w", path, err)
	}
	if handler := r.handlers[info.GetType()]; handler != nil {
		err = r.pass(ctx, path, s, info, handler)
	} else {
		var d *driver
		if d, err = r.check(ctx, path, info); err == nil {
			err = r.add(s, d)
		}
	}
	status := &registration.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		status.Error = "RegisterPlugin error -- " + err.Error()
	}
	within, cancel = context.WithTimeout(ctx, r.times.notify)
	defer cancel()
	if _, notifyErr := client.NotifyRegistrationStatus(within, status); notifyErr != nil && err == nil {
		r.remove(path)
		r.takeBack(s)
		err = fmt.Errorf("failed to send registration status at socket %s: %w", path, notifyErr)
	}
	return info.GetName(), err
}

// pass passes a plugin of another kind on to its handler.
func (r *registry) pass(ctx context.Context, path string, s *socket, info *registration.PluginInfo, handler PluginHandler) error {
	endpoint := strings.TrimPrefix(info.GetEndpoint(), "unix://")
	if endpoint == "" {
		endpoint = path
	}
	if err := handler.Register(ctx, info.GetName(), endpoint, info.GetSupportedVersions()); err != nil {
		return err
	}
	r.mu.Lock()
	there := r.sockets[path] == s
	s.name, s.problem, s.handler, s.endpoint = info.GetName(), "", handler, endpoint
	r.mu.Unlock()
	if !there {
		r.takeBack(s)
		return errRemoved
	}
	return nil
}

// takeBack unregisters the plugin of another kind that a socket has registered, if any.
func (r *registry) takeBack(s *socket) {
	r.mu.Lock()
	name, handler, endpoint := s.name, s.handler, s.endpoint
	s.handler = nil
	r.mu.Unlock()
	if handler != nil {
		handler.Deregister(name, endpoint)
	}
}

// check validates what a registrar says about its driver, and asks the driver itself for
// its identity and its node ID.
func (r *registry) check(ctx context.Context, path string, info *registration.PluginInfo) (*driver, error) {
	if info.GetType() != registration.CSIPlugin {
		return nil, fmt.Errorf("no handler registered for plugin type: %s at socket %s", shorten(info.GetType()), path)
	}
	d := &driver{name: info.GetName(), endpoint: strings.TrimPrefix(info.GetEndpoint(), "unix://"), registrar: path}
	if d.endpoint == "" {
		d.endpoint = path
	}
	if err := checkName(d.name); err != nil {
		return nil, err
	}
	highest, err := version.HighestSupportedVersion(info.GetSupportedVersions())
	if err != nil {
		return nil, fmt.Errorf("plugin validation failed with err: none of the versions specified %q are supported: %w", info.GetSupportedVersions(), err)
	}
	d.version = highest.String()
	ctx, cancel := context.WithTimeout(ctx, r.times.node)
	defer cancel()
	conn, err := connect(d.endpoint)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := checkIdentity(ctx, conn, d); err != nil {
		return nil, err
	}
	if err := d.look(ctx, conn); err != nil {
		return nil, fmt.Errorf("plugin registration failed with err: %w", err)
	}
	return d, nil
}

// look asks the driver what the node is to it.
func (d *driver) look(ctx context.Context, conn *grpc.ClientConn) error {
	node, err := csipb.NewNodeClient(conn).NodeGetInfo(ctx, &csipb.NodeGetInfoRequest{})
	if err != nil {
		return fmt.Errorf("NodeGetInfo of the driver at %s: %w", d.endpoint, redacted(err, nil))
	}
	d.nodeID, d.topology, d.maxVolumes = node.GetNodeId(), node.GetAccessibleTopology().GetSegments(), node.GetMaxVolumesPerNode()
	return nil
}

// refresh asks a registered driver again how many volumes can be attached. Nothing else of
// what it says of the node is taken over before it registers again: an apiserver allows no
// other change of a driver in a CSINode.
func (r *registry) refresh(ctx context.Context, name string) error {
	r.mu.Lock()
	before := r.drivers[name]
	r.mu.Unlock()
	if before == nil {
		return nil // it is asked when it registers
	}
	ctx, cancel := context.WithTimeout(ctx, r.times.node)
	defer cancel()
	conn, err := connect(before.endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	now := *before
	if err := now.look(ctx, conn); err != nil {
		return err
	}
	now.nodeID, now.topology = before.nodeID, before.topology
	r.mu.Lock()
	news := r.drivers[name] == before && now.maxVolumes != before.maxVolumes
	if news {
		r.drivers[name] = &now
	}
	r.mu.Unlock()
	if news {
		r.log.Info("CSI driver has another limit of attached volumes", "driver", name, "max_volumes", now.maxVolumes, "before", before.maxVolumes)
		r.changed()
	}
	return nil
}

// checkIdentity checks the driver's own name: its volumes must not be served by another
// driver.
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

func shorten(s string) string { return text.Cut(s, 100) }

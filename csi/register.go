package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

var errRemoved = errors.New("the socket was removed meanwhile")

// maxDriverName is CSI's bound, in bytes.
const maxDriverName = 63

// register registers the driver behind a socket, and tries again until it succeeds
// or ctx ends, with the socket.
func (r *registry) register(ctx context.Context, path string, s *socket) {
	for delay := r.times.firstRetry; ; delay = min(2*delay, r.times.lastRetry) {
		name, err := r.attempt(ctx, path, s)
		if err == nil || ctx.Err() != nil {
			return
		}
		if r.fail(s, name, err) {
			r.log.Warn("cannot register CSI driver: trying again", "socket", path, "driver", name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// attempt is one registration; name is who it said it is, if it did.
func (r *registry) attempt(ctx context.Context, path string, s *socket) (name string, err error) {
	conn, err := connect(path)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := awaitReady(ctx, conn, r.times.dial); err != nil {
		return "", fmt.Errorf("dial failed at socket %s: %w", path, err)
	}
	client := registration.NewRegistrationClient(conn)
	within, cancel := context.WithTimeout(ctx, r.times.info)
	info, err := client.GetInfo(within, &registration.InfoRequest{})
	cancel()
	if err != nil {
		return "", fmt.Errorf("failed to get plugin info using RPC GetInfo at socket %s: %w", path, err)
	}
	d, err := r.check(ctx, path, info)
	if err == nil {
		err = r.add(s, d)
	}
	status := &registration.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		status.Error = "RegisterPlugin error -- " + err.Error()
	}
	within, cancel = context.WithTimeout(ctx, r.times.notify)
	defer cancel()
	if _, said := client.NotifyRegistrationStatus(within, status); said != nil && err == nil {
		r.remove(path)
		err = fmt.Errorf("failed to send registration status at socket %s: %w", path, said)
	}
	return info.GetName(), err
}

// check makes the driver of what a registrar says of it, and asks the driver itself.
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
	node, err := csipb.NewNodeClient(conn).NodeGetInfo(ctx, &csipb.NodeGetInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("plugin registration failed with err: NodeGetInfo of the driver at %s: %w", d.endpoint, clean(err, nil))
	}
	d.nodeID = node.GetNodeId()
	return d, nil
}

// checkIdentity asks the driver who it is: its volumes must not be served by
// another.
func checkIdentity(ctx context.Context, conn *grpc.ClientConn, d *driver) error {
	who, err := csipb.NewIdentityClient(conn).GetPluginInfo(ctx, &csipb.GetPluginInfoRequest{})
	if err != nil {
		return fmt.Errorf("plugin registration failed with err: GetPluginInfo of the driver at %s: %w", d.endpoint, clean(err, nil))
	}
	if who.GetName() != d.name {
		return fmt.Errorf("plugin validation failed with err: the driver at %s says that it is %q, and its registrar that it is %q", d.endpoint, shorten(who.GetName()), d.name)
	}
	return nil
}

// checkName is upstream's rule for the name of a driver (ValidateCSIDriverName),
// which becomes the name of a directory.
func checkName(name string) error {
	if len(name) > maxDriverName {
		return fmt.Errorf("plugin validation failed with err: driver name %q: must be no more than %d characters", shorten(name), maxDriverName)
	}
	if msgs := validation.IsDNS1123Subdomain(strings.ToLower(name)); len(msgs) > 0 {
		return fmt.Errorf("plugin validation failed with err: driver name %q: %s", name, msgs[0])
	}
	return nil
}

// newer compares versions that check has found good.
func newer(a, b string) bool {
	return version.MustParseGeneric(b).LessThan(version.MustParseGeneric(a))
}

// awaitReady waits for a connection: a socket's file is there before somebody
// listens.
func awaitReady(ctx context.Context, conn *grpc.ClientConn, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn.Connect()
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if state == connectivity.Idle {
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return context.Cause(ctx)
		}
	}
}

func shorten(text string) string {
	const most = 100
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

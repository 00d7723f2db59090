package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podd/internal/pluginconn"
	"podd/internal/text"
	"podd/internal/wake"
)

const (
	// maxResponse bounds the response of a registrar, in bytes.
	maxResponse = 4 << 20
	// maxShown bounds the part of a response that messages show, in characters.
	maxShown = 100
)

var errSocketRemoved = errors.New("the socket was removed meanwhile")

// register registers the plugin behind a socket. It retries until it succeeds or ctx ends.
// ctx ends when the socket is removed.
func (r *Registry) register(ctx context.Context, path string, s *socket) {
	for delay := r.times.retry.Initial; ; delay = r.times.retry.Next(delay) {
		name, err := r.tryRegister(ctx, path, s)
		if err == nil || ctx.Err() != nil {
			return
		}
		if r.recordFailure(s, name, err) {
			r.log.Warn("cannot register plugin: trying again", "socket", path, "plugin", text.Truncate(name, maxShown), "error", err)
		}
		if !wake.Sleep(ctx, delay) {
			return
		}
	}
}

// tryRegister tries to register once; name is the plugin's name, if the registrar gave it.
func (r *Registry) tryRegister(ctx context.Context, path string, s *socket) (name string, err error) {
	conn, err := pluginconn.Dial(path, maxResponse)
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
	err = r.callHandler(ctx, path, s, info)
	status := &registration.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		status.Error = "RegisterPlugin error -- " + err.Error()
	}
	within, cancel = context.WithTimeout(ctx, r.times.notify)
	defer cancel()
	if _, notifyErr := client.NotifyRegistrationStatus(within, status); notifyErr != nil && err == nil {
		r.deregister(s)
		err = fmt.Errorf("failed to send registration status at socket %s: %w", path, notifyErr)
	}
	return info.GetName(), err
}

// callHandler registers a plugin with the handler of its type.
func (r *Registry) callHandler(ctx context.Context, path string, s *socket, info *registration.PluginInfo) error {
	handler := r.handlers[info.GetType()]
	if handler == nil {
		return fmt.Errorf("no handler registered for plugin type: %s at socket %s", text.Truncate(info.GetType(), maxShown), path)
	}
	p := &Plugin{Name: info.GetName(), Endpoint: strings.TrimPrefix(info.GetEndpoint(), "unix://"), Socket: path, Versions: info.GetSupportedVersions()}
	if p.Endpoint == "" {
		p.Endpoint = path
	}
	if err := handler.Register(ctx, p); err != nil {
		return err
	}
	r.mu.Lock()
	there := r.sockets[path] == s
	s.name, s.problem, s.plugin, s.handler = p.Name, "", p, handler
	r.mu.Unlock()
	if !there {
		r.deregister(s)
		return errSocketRemoved
	}
	return nil
}

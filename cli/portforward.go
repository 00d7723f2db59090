package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/spdystream"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// PortForwardOptions are the options of podd port-forward. They are kubectl's.
type PortForwardOptions struct {
	StateDir, Namespace string
	// Pod is a name as given on the command line.
	Pod string
	// Ports are [LOCAL:]REMOTE. A remote port may be the name of a container's port. A local
	// port that is 0 or empty means any port.
	Ports []string
	// Addresses are the addresses to listen on: IP addresses, or localhost.
	Addresses []string
}

// portMapping is a port of a pod and its local port; 0 for any.
type portMapping struct{ local, remote uint16 }

// Run forwards connections until ctx, the pod or podd ends.
func (o *PortForwardOptions) Run(ctx context.Context, out, errs io.Writer) error {
	c := newClient(o.StateDir)
	info, err := c.selectPod(ctx, o.Pod, o.Namespace)
	if err != nil {
		return err
	}
	var ports []portMapping
	for _, text := range o.Ports {
		p, err := parsePortMapping(text, &info.Pod.Spec)
		if err != nil {
			return err
		}
		ports = append(ports, p)
	}
	conn, err := c.open(ctx, fmt.Sprintf("/portForward/%s/%s", url.PathEscape(info.Pod.Namespace), url.PathEscape(info.Pod.Name)), forwardProtocol, url.Values{})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	f := &forwarder{conn: conn, errs: errs}
	for _, p := range ports {
		if err := f.listen(o.Addresses, p, out); err != nil {
			f.close()
			return err
		}
	}
	select {
	case <-ctx.Done():
	case <-conn.CloseChan():
		err = errors.New("lost connection to pod")
	}
	f.close()
	return err
}

// parsePortMapping parses [LOCAL:]REMOTE.
func parsePortMapping(text string, spec *v1.PodSpec) (f portMapping, err error) {
	local, remote, two := strings.Cut(text, ":")
	if !two {
		remote = local
	}
	n, err := strconv.ParseUint(remote, 10, 16)
	if err != nil || n == 0 {
		if n = portNamed(spec, remote); n == 0 {
			return f, UsageErrorf("%q: give [LOCAL:]REMOTE, where REMOTE is a port from 1 to 65535 or the name of a container's port", printable(text))
		}
		if !two {
			local = strconv.FormatUint(n, 10)
		}
	}
	f.remote = uint16(n)
	if local == "" {
		return f, nil
	}
	m, err := strconv.ParseUint(local, 10, 16)
	if err != nil {
		return f, UsageErrorf("%q: give [LOCAL:]REMOTE, where LOCAL is a port from 0 to 65535", printable(text))
	}
	f.local = uint16(m)
	return f, nil
}

func portNamed(spec *v1.PodSpec, name string) uint64 {
	for c := range pod.ContainerSpecs(spec) {
		for _, p := range c.Ports {
			if p.Name == name && name != "" {
				return uint64(p.ContainerPort)
			}
		}
	}
	return 0
}

// forwarder forwards connections over one session.
type forwarder struct {
	conn *spdystream.Connection
	errs io.Writer

	listeners []net.Listener
	work      sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	request int
}

func (f *forwarder) close() {
	for _, l := range f.listeners {
		_ = l.Close()
	}
	_ = f.conn.Close()
	f.work.Wait()
}

// listen listens on the same port of each address.
func (f *forwarder) listen(addresses []string, p portMapping, out io.Writer) error {
	var ips []string
	for _, a := range addresses {
		if a == "localhost" {
			ips = append(ips, "127.0.0.1", "::1")
			continue
		}
		if net.ParseIP(a) == nil {
			return UsageErrorf("--address %s: give IP addresses or localhost", printable(a))
		}
		ips = append(ips, a)
	}
	var failures []error
	for _, ip := range ips {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(int(p.local))))
		if err != nil {
			failures = append(failures, err)
			continue
		}
		address, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			_ = l.Close()
			continue
		}
		p.local = uint16(address.Port)
		f.listeners = append(f.listeners, l)
		_, _ = fmt.Fprintf(out, "Forwarding from %s -> %d\n", l.Addr(), p.remote)
		f.work.Go(func() { f.accept(l, p, out) })
	}
	if len(failures) == len(ips) {
		return fmt.Errorf("unable to listen on any of the requested ports: %w", errors.Join(failures...))
	}
	return nil
}

func (f *forwarder) accept(l net.Listener, p portMapping, out io.Writer) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(out, "Handling connection for %d\n", p.local)
		f.work.Go(func() {
			defer func() { _ = conn.Close() }()
			if err := f.forward(conn, p); err != nil {
				_, _ = fmt.Fprintf(f.errs, "an error occurred forwarding %d -> %d: %v\n", p.local, p.remote, err)
			}
		})
	}
}

// forward passes one connection over two streams: one for its bytes, one for errors.
func (f *forwarder) forward(conn net.Conn, p portMapping) error {
	f.mu.Lock()
	f.request++
	headers := http.Header{}
	headers.Set(v1.PortHeader, strconv.Itoa(int(p.remote)))
	headers.Set(v1.PortForwardRequestIDHeader, strconv.Itoa(f.request))
	f.mu.Unlock()
	open := func(kind string) (*spdystream.Stream, error) {
		h := headers.Clone()
		h.Set(v1.StreamType, kind)
		s, err := f.conn.CreateStream(h, nil, false)
		if err != nil {
			return nil, err
		}
		return s, s.Wait()
	}
	wrong, err := open(v1.StreamTypeError)
	if err != nil {
		return err
	}
	defer func() { _ = wrong.Reset() }()
	_ = wrong.Close() // podd writes nothing to it
	data, err := open(v1.StreamTypeData)
	if err != nil {
		return err
	}
	defer func() { _ = data.Reset() }()
	reported := make(chan error, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(wrong, 4<<10))
		if err == nil && len(text) > 0 {
			err = errors.New(printable(string(text)))
		}
		reported <- err
	}()
	from, broken := startCopy(conn, data), make(chan struct{})
	go func() {
		defer func() { _ = data.Close() }()
		if _, err := io.Copy(data, conn); err != nil {
			close(broken)
		}
	}()
	select {
	case <-from: // the pod has sent everything, or nobody listens
	case <-broken:
	}
	// Data that the pod still sends would fill the session and block the error stream.
	_ = data.Reset()
	return <-reported
}

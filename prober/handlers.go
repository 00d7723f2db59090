package prober

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/features"
	"podd/internal/httpget"
	"podd/internal/pod"
)

// execGrace is how long podd waits for a command beyond its timeout. The runtime kills
// the command, but processes that it left in the background may keep its output open, and
// containerd waits for them.
const execGrace = 2 * time.Second

// handlers runs the handlers of probes.
type handlers struct {
	execer    Execer
	gate      *gate
	transport http.RoundTripper
	// h2c is the transport for httpGet.protocol: HTTP2; nil if its gate is off. grpcTLS says
	// that the gate of grpc.mode: TLS is on.
	h2c     http.RoundTripper
	grpcTLS bool
}

func newHandlers(execer Execer, g *gate) *handlers {
	return &handlers{execer: execer, gate: g, transport: httpget.NewProbeTransport()}
}

// withFeatures makes the handlers obey the feature gates.
func (h *handlers) withFeatures(gates features.Set) *handlers {
	if gates.Enabled(features.H2CContainerProbe) {
		h.h2c = httpget.NewH2CTransport()
	}
	h.grpcTLS = gates.Enabled(features.GRPCContainerProbeTLS)
	return h
}

// transportFor returns the transport for an action.
func (h *handlers) transportFor(action *v1.HTTPGetAction) http.RoundTripper {
	if h.h2c != nil && action.Protocol != nil && *action.Protocol == v1.HTTPProtocolHTTP2 {
		return h.h2c
	}
	return h.transport
}

// run runs a probe's handler once. It ends with ctx, and soon after j.timeout.
func (h *handlers) run(ctx context.Context, j job) attemptResult {
	switch p := j.probe; {
	case p.Exec != nil:
		return h.exec(ctx, j)
	case p.HTTPGet != nil:
		return h.http(ctx, j)
	case p.TCPSocket != nil:
		port, err := httpget.Port(p.TCPSocket.Port, j.container)
		if err != nil {
			return attemptResult{verdict: unknown, err: err}
		}
		host := p.TCPSocket.Host
		if host == "" {
			host = j.ip
		}
		return h.tcp(ctx, host, port, j.timeout)
	case p.GRPC != nil:
		return h.grpc(ctx, j)
	}
	return attemptResult{verdict: unknown, err: fmt.Errorf("missing probe handler for %s_%s(%s):%s",
		j.pod.Name, j.pod.Namespace, j.pod.UID, j.container.Name)}
}

// errNoIP keeps a probe without a target from probing this node's own loopback.
var errNoIP = errors.New("the pod has no IP address yet")

// exec runs a command in the container. Its $(NAME) are expanded from the
// variables that the container's spec gives a plain value, as upstream does.
func (h *handlers) exec(ctx context.Context, j job) attemptResult {
	release, err := h.gate.acquire(ctx, j.pod.UID)
	if err != nil {
		return attemptResult{verdict: unknown, err: err}
	}
	defer release()
	command := make([]string, len(j.probe.Exec.Command))
	for i, arg := range j.probe.Exec.Command {
		command[i] = pod.Expand(arg, j.variable)
	}
	patient, cancel := context.WithTimeout(ctx, j.timeout+execGrace)
	defer cancel()
	result, err := h.execer.ExecSync(patient, j.containerID, command, j.timeout)
	switch {
	case errors.Is(err, pod.ErrTimeout), err != nil && patient.Err() != nil && ctx.Err() == nil:
		return attemptResult{verdict: failure, message: fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(command, " "), j.timeout)}
	case err != nil:
		return attemptResult{verdict: unknown, err: err}
	}
	output := string(result.Output[:min(len(result.Output), httpget.MaxBody)])
	if result.ExitCode != 0 {
		return attemptResult{verdict: failure, message: output}
	}
	return attemptResult{verdict: success, message: output}
}

// variable is the container's own, where the spec has its value.
func (j job) variable(name string) (value string, ok bool) {
	for _, e := range j.container.Env { // the last of a name counts
		if e.Name == name {
			value, ok = e.Value, true
		}
	}
	return value, ok
}

// http sends one request; redirects on the same host are followed. Any status from
// 200 to 399 is a success, with a warning for a redirect that was not followed.
func (h *handlers) http(ctx context.Context, j job) attemptResult {
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	req, err := httpget.NewRequest(ctx, j.probe.HTTPGet, j.container, j.ip, "probe")
	if err != nil {
		return attemptResult{verdict: unknown, err: err}
	}
	client := http.Client{Transport: h.transportFor(j.probe.HTTPGet), CheckRedirect: httpget.CheckRedirect}
	resp, err := client.Do(req)
	switch {
	case err != nil && ctx.Err() != nil: // in the words of http.Client.Timeout, which upstream sets
		return attemptResult{verdict: failure, message: err.Error() + " (Client.Timeout exceeded while awaiting headers)"}
	case err != nil:
		return attemptResult{verdict: failure, message: err.Error()}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := httpget.ReadBody(resp.Body)
	switch {
	case err != nil && ctx.Err() != nil:
		// As upstream, a probe that could not be run, not one that failed: a path that
		// streams, less than MaxBody in that time, restarts no container.
		return attemptResult{verdict: failure, err: fmt.Errorf("%w (Client.Timeout or context cancellation while reading body)", err)}
	case err != nil:
		return attemptResult{verdict: failure, err: err}
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest:
		return attemptResult{verdict: warning, message: "Probe terminated redirects, Response body: " + string(body)}
	case resp.StatusCode >= http.StatusOK && resp.StatusCode < http.StatusMultipleChoices:
		return attemptResult{verdict: success, message: string(body)}
	}
	// Without the body, which may contain what readers of events must not see.
	return attemptResult{verdict: failure, message: fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode)}
}

func (h *handlers) tcp(ctx context.Context, host string, port int, timeout time.Duration) attemptResult {
	if host == "" {
		return attemptResult{verdict: unknown, err: errNoIP}
	}
	d := httpget.Dialer()
	d.Timeout = timeout
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return attemptResult{verdict: failure, message: err.Error()}
	}
	_ = conn.Close() // it was there, which is all that counts
	return attemptResult{verdict: success}
}

package cri

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// maxExecOutput bounds a command's output: the kubelet's bound for exec probes
// (pkg/kubelet/prober, which truncates it to maxProbeMessageLength).
const maxExecOutput = 10 << 10

// maxExecReply bounds the runtime's reply with that output: the reply is one message, and
// many commands may write much at once. The kubelet accepts four times as much.
const maxExecReply = 4 << 20

// ExecSync runs a command in a running container and waits until it exits, for at most
// timeout; then the runtime kills it. CRI counts in whole seconds: a timeout is rounded up,
// and 0 means none. ExecSync keeps the first 10 KiB of the command's output: stdout and
// then stderr.
//
// An exit code other than 0 is no error. Errors: pod.ErrTimeout for a command that exceeded
// its timeout, an error without a class for one that wrote more than 4 MiB, pod.ErrNotFound
// for a missing container, and the runtime's own for a command that could not be started.
func (c *Client) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error) {
	r, err := c.execute(ctx, id, cmd, timeout)
	if err != nil {
		return pod.ExecResult{}, err
	}
	// Copied, so that a large output does not stay in memory for the sake of its beginning.
	out := slices.Clone(r.Stdout[:min(len(r.Stdout), maxExecOutput)])
	out = append(out, r.Stderr[:min(len(r.Stderr), maxExecOutput-len(out))]...)
	return pod.ExecResult{ExitCode: r.ExitCode, Output: out}, nil
}

// Run is ExecSync without a timeout, for a caller that wants all of the output.
func (c *Client) Run(ctx context.Context, id string, cmd []string) (pod.ExecResult, error) {
	r, err := c.execute(ctx, id, cmd, 0)
	if err != nil {
		return pod.ExecResult{}, err
	}
	return pod.ExecResult{ExitCode: r.ExitCode, Output: append(r.Stdout, r.Stderr...)}, nil
}

func (c *Client) execute(ctx context.Context, id string, cmd []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	seconds := int64(math.Ceil(max(timeout, 0).Seconds()))
	r, err := c.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: seconds}, grpc.MaxCallRecvMsgSize(maxExecReply))
	if err == nil {
		return r, nil
	}
	if status.Code(err) == codes.ResourceExhausted {
		return nil, fmt.Errorf("%q wrote more than %d MiB", strings.Join(cmd, " "), maxExecReply>>20)
	}
	err = c.containerError(ctx, id, err)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("command %w: %q timed out after %s", pod.ErrTimeout, strings.Join(cmd, " "), timeout)
	}
	return nil, err
}

// SessionStreams are the streams of a session in a container. A terminal has no stderr of
// its own.
type SessionStreams struct{ Stdin, Stdout, Stderr, TTY bool }

// ExecURL prepares a command in a running container, and returns the URL at which the
// runtime serves it over SPDY and WebSocket: once, to the first client that connects,
// within a minute.
//
// Errors: pod.ErrNotFound for a missing container, and the runtime's own for one that does
// not run.
func (c *Client) ExecURL(ctx context.Context, id string, cmd []string, s SessionStreams) (*url.URL, error) {
	r, err := c.runtime.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: cmd, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Tty: s.TTY})
	return sessionURL("run a command in container "+id, r.GetUrl(), err)
}

// AttachURL is ExecURL for the streams of the container's own process.
func (c *Client) AttachURL(ctx context.Context, id string, s SessionStreams) (*url.URL, error) {
	r, err := c.runtime.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Tty: s.TTY})
	return sessionURL("attach to container "+id, r.GetUrl(), err)
}

// PortForwardURL is ExecURL for connections to ports of a sandbox.
func (c *Client) PortForwardURL(ctx context.Context, sandbox string, ports []int32) (*url.URL, error) {
	r, err := c.runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandbox, Port: ports})
	return sessionURL("forward ports of sandbox "+sandbox, r.GetUrl(), err)
}

func sessionURL(what, text string, err error) (*url.URL, error) {
	if err != nil {
		return nil, mapError(what, err)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("%s: the runtime named %q, which is no http URL", what, text)
	}
	return u, nil
}

package cri

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// maxExecReply bounds what the runtime may send of it: it is one message, and many
// commands may write much at once. The kubelet accepts four times as much.
const maxExecReply = 4 << 20

// ExecSync runs a command in a running container and waits until it exits, for at
// most timeout, after which the runtime kills it. CRI counts in whole seconds: a
// timeout is rounded up, and 0 is none. Of what the command wrote, stdout and then
// stderr, the first 10 KiB are kept.
//
// An exit code other than 0 is no error. Errors: pod.ErrTimeout for a command that
// exceeded its timeout, an error without a class for one that wrote more than 4 MiB,
// pod.ErrNotFound for a container that does not exist, and the runtime's own for a
// command that could not be started.
func (c *Client) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error) {
	seconds := int64(math.Ceil(max(timeout, 0).Seconds()))
	r, err := c.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: seconds}, grpc.MaxCallRecvMsgSize(maxExecReply))
	if err != nil {
		if status.Code(err) == codes.ResourceExhausted {
			return pod.ExecResult{}, fmt.Errorf("%q wrote more than %d MiB", strings.Join(cmd, " "), maxExecReply>>20)
		}
		err = mapError("", err)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("command %w: %q timed out after %s", pod.ErrTimeout, strings.Join(cmd, " "), timeout)
		}
		return pod.ExecResult{}, err
	}
	// Copied, so that a large output is not kept in memory for the sake of its
	// beginning.
	out := slices.Clone(r.Stdout[:min(len(r.Stdout), maxExecOutput)])
	out = append(out, r.Stderr[:min(len(r.Stderr), maxExecOutput-len(out))]...)
	return pod.ExecResult{ExitCode: r.ExitCode, Output: out}, nil
}

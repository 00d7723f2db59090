package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listens says whether a container whose script begins with a trap has set it. An agent
// shows a container as running once its process was started: on a busy machine a step that
// ends the pod would come before the trap, and which agent's container hears its SIGTERM
// would be a matter of luck.
func (p *play) listens(ctx context.Context, podName, container string) (bool, error) {
	containers, err := p.side.Node.CRI.Containers(ctx)
	if err != nil {
		return false, err
	}
	for _, c := range containers {
		name, _ := p.ours(c.Labels)
		if name != podName || c.Metadata.Name != container || c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		if ok, err := p.handlesTerm(ctx, c.Id); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// handlesTerm says whether a container's first process catches or ignores SIGTERM, or is
// none that is about to.
func (p *play) handlesTerm(ctx context.Context, id string) (bool, error) {
	seen, err := p.side.Node.CRI.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if status.Code(err) == codes.NotFound { // gone since it was listed
		return true, nil
	}
	if err != nil {
		return false, err
	}
	var info struct {
		Pid         int
		RuntimeSpec struct{ Process struct{ Args []string } }
	}
	if err := json.Unmarshal([]byte(seen.Info["info"]), &info); err != nil {
		return false, fmt.Errorf("the runtime does not tell the process of container %s: %w", id, err)
	}
	args := info.RuntimeSpec.Process.Args
	if info.Pid <= 1 || len(args) == 0 || !strings.HasPrefix(args[len(args)-1], "trap ") {
		return true, nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", info.Pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) { // it has ended
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return handles(string(text), unix.SIGTERM), nil
}

// handles reads from a process's /proc/PID/status whether it catches or ignores a signal
// (proc_pid_status(5), SigCgt and SigIgn).
func handles(text string, signal unix.Signal) bool {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		if key != "SigCgt" && key != "SigIgn" {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err == nil && mask&(1<<(signal-1)) != 0 {
			return true
		}
	}
	return false
}

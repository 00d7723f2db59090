package critest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/critest/state"
)

// Exec is what a command does when ExecSync runs it. The zero Exec exits at once with code
// 0 and no output.
type Exec struct {
	Code           int32
	Stdout, Stderr string
	// Takes is how long the command runs. The runtime kills it at the call's timeout, when
	// the caller leaves, and when the container ends.
	Takes time.Duration
	// IgnoreTimeout means that a process left behind by the command holds its output open.
	// The runtime answers only when that process has ended too (after Takes), or when the
	// caller leaves.
	IgnoreTimeout bool
	// Error is the runtime's message about a command that cannot be started.
	Error string
}

// ScriptExec says what commands in containers of that name do from now on.
func (s *Server) ScriptExec(containerName string, x Exec) {
	s.ScriptExecFunc(containerName, func([]string) Exec { return x })
}

// ScriptExecFunc is ScriptExec by command. It must not call the Server.
func (s *Server) ScriptExecFunc(containerName string, x func(cmd []string) Exec) {
	s.rt.Lock()
	defer s.rt.Unlock()
	s.execs[containerName] = x
}

// ExecSync runs the scripted command.
func (s *Server) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	x, dead, err := s.exec(r)
	if err != nil {
		return nil, err
	}
	if x.Error != "" {
		return nil, status.Errorf(codes.Unknown, "failed to exec in container: failed to start exec %q: %s", "critest", x.Error)
	}
	end := time.NewTimer(x.Takes)
	defer end.Stop()
	var timeout <-chan time.Time
	if r.Timeout > 0 && !x.IgnoreTimeout {
		t := time.NewTimer(time.Duration(r.Timeout) * time.Second)
		defer t.Stop()
		timeout = t.C
	}
	started := time.Now()
	select {
	case <-end.C:
	case <-dead:
		return &runtimeapi.ExecSyncResponse{ExitCode: 137}, nil
	case <-timeout:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if limit := time.Duration(r.Timeout) * time.Second; limit > 0 && time.Since(started) >= limit {
		return nil, status.Errorf(codes.DeadlineExceeded, "failed to exec in container: timeout %v exceeded: context deadline exceeded", limit)
	}
	return &runtimeapi.ExecSyncResponse{ExitCode: x.Code, Stdout: []byte(x.Stdout), Stderr: []byte(x.Stderr)}, nil
}

// exec returns the script, and the channel that is closed when the container ends.
func (s *Server) exec(r *runtimeapi.ExecSyncRequest) (Exec, <-chan struct{}, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	c := s.rt.Container(r.ContainerId)
	switch {
	case c == nil:
		return Exec{}, nil, status.Errorf(codes.NotFound, "failed to exec in container: failed to find container %q in store: not found", r.ContainerId)
	case c.State != state.Running:
		return Exec{}, nil, status.Errorf(codes.Unknown, "failed to exec in container: container is in %s state", states[c.State])
	}
	if script := s.execs[c.Name]; script != nil {
		return script(r.Cmd), c.Dead(), nil
	}
	return Exec{}, c.Dead(), nil
}

// ReopenContainerLog creates a new log at the container's log path.
func (s *Server) ReopenContainerLog(_ context.Context, r *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	c := s.rt.Container(r.ContainerId)
	switch {
	case c == nil:
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", r.ContainerId)
	case c.State != state.Running:
		return nil, status.Error(codes.Unknown, "container is not running")
	}
	if path := logPath(c); path != "" {
		f, err := os.OpenFile(filepath.Clean(path), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
		if err != nil {
			return nil, status.Error(codes.Unknown, fmt.Sprintf("failed to create container loggers: %v", err))
		}
		_ = f.Close()
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// UpdateContainerResources stores the requested resources; a field of 0 leaves the old
// value, as in containerd.
func (s *Server) UpdateContainerResources(_ context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	c := s.rt.Container(r.ContainerId)
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "failed to find container: not found")
	}
	merged := &runtimeapi.LinuxContainerResources{}
	if c.Data.resources != nil {
		merged = proto.Clone(c.Data.resources).(*runtimeapi.LinuxContainerResources)
	}
	if r.GetLinux().GetHugepageLimits() != nil {
		merged.HugepageLimits = nil
	}
	proto.Merge(merged, r.GetLinux())
	c.Data.resources = merged // answers that are being sent keep the old one
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

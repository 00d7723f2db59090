package critest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

type container struct {
	id       string
	name     string // reserved
	sandbox  *sandbox
	config   *runtimeapi.ContainerConfig
	imageRef string
	// resources are the config's, or the last update's.
	resources *runtimeapi.LinuxContainerResources
	state     runtimeapi.ContainerState
	created   time.Time
	started   time.Time
	finished  time.Time
	end       exit
	script    Script
	timer     *time.Timer
	dead      chan struct{} // closed at the end of the process
}

type exit struct {
	code            int32
	reason, message string
}

func (c *container) stopTimer() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

func (c *container) logPath() string {
	if c.config.LogPath == "" || c.sandbox.config.LogDirectory == "" {
		return ""
	}
	return filepath.Join(c.sandbox.config.LogDirectory, c.config.LogPath)
}

// CreateContainer makes a container in a ready sandbox, of an image that is there.
func (s *Server) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	m := r.GetConfig().GetMetadata()
	s.mu.Lock()
	b := s.sandboxes[r.PodSandboxId]
	c, err := s.newContainerLocked(b, r)
	if err == nil {
		pm := b.config.Metadata
		c.name = strings.Join([]string{m.Name, pm.Name, pm.Namespace, pm.Uid, fmt.Sprint(m.Attempt)}, "_")
		err = s.reserveLocked("container", c.name, c.id)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	err = s.pause(ctx, "CreateContainer", true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[c.name] != c.id {
		return nil, status.Error(codes.Unavailable, "the runtime was restarted")
	}
	if err != nil {
		delete(s.names, c.name)
		return nil, err
	}
	s.containers[c.id] = c
	s.emitLocked(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, c.id, b)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

func (s *Server) newContainerLocked(b *sandbox, r *runtimeapi.CreateContainerRequest) (*container, error) {
	if b == nil {
		return nil, status.Errorf(codes.NotFound, "failed to find sandbox id %q: not found", r.PodSandboxId)
	}
	if !b.ready {
		return nil, status.Errorf(codes.Unknown, "sandbox container %q is not running", b.id)
	}
	if r.Config.GetMetadata().GetName() == "" {
		return nil, status.Error(codes.Unknown, "container config must include metadata")
	}
	img := s.imageLocked(r.Config.GetImage().GetImage())
	if img == nil {
		return nil, status.Errorf(codes.NotFound, "failed to resolve image %q: not found", r.Config.GetImage().GetImage())
	}
	return &container{
		id: s.newIDLocked(), sandbox: b, config: r.Config, imageRef: img.digest(), resources: r.Config.GetLinux().GetResources(),
		state: created, created: time.Now(), dead: make(chan struct{}),
	}, nil
}

// StartContainer starts the scripted process.
func (s *Server) StartContainer(_ context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[r.ContainerId]
	switch {
	case c == nil:
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", r.ContainerId)
	case c.state != created:
		return nil, status.Errorf(codes.Unknown, "failed to set starting state for container %q: container is in %s state", c.id, c.state)
	case !c.sandbox.ready:
		return nil, status.Errorf(codes.Unknown, "sandbox container %q is not running", c.sandbox.id)
	}
	if script := s.scripts[c.config.Metadata.Name]; script != nil {
		c.script = script(c.config.Metadata.Attempt)
	}
	c.started = time.Now()
	if text := c.script.StartError; text != "" {
		s.finishLocked(c, exit{code: 128, reason: "StartError", message: text})
		return nil, status.Error(codes.Unknown, text)
	}
	c.state = running
	s.writeLog(c)
	s.emitLocked(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.id, c.sandbox)
	if c.script.ExitAfter > 0 {
		c.timer = time.AfterFunc(c.script.ExitAfter, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.endLocked(c, c.script.exit())
		})
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

// endLocked ends a process, if it runs. Nobody knows how one that was lost ended.
func (s *Server) endLocked(c *container, e exit) {
	switch c.state {
	case running:
		s.finishLocked(c, e)
	case unknown:
		s.finishLocked(c, exit{code: 255, reason: "Unknown"})
	}
}

func (s *Server) finishLocked(c *container, e exit) {
	c.stopTimer()
	c.state, c.end, c.finished = exited, e, time.Now()
	s.writeMessage(c)
	close(c.dead)
	s.emitLocked(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.id, c.sandbox)
}

// StopContainer sends TERM, and KILL after the timeout.
func (s *Server) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	s.mu.Lock()
	c := s.containers[r.ContainerId]
	if c == nil || c.state != running && c.state != unknown {
		s.mu.Unlock()
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if c.state == unknown {
		s.endLocked(c, exit{})
		s.mu.Unlock()
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if r.Timeout > 0 && !c.script.IgnoreTERM {
		if c.script.StopTakes == 0 {
			s.endLocked(c, c.script.termExit())
		} else {
			c.stopTimer()
			c.timer = time.AfterFunc(c.script.StopTakes, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.endLocked(c, c.script.termExit())
			})
		}
	}
	s.mu.Unlock()
	kill := time.NewTimer(time.Duration(r.Timeout) * time.Second)
	defer kill.Stop()
	select {
	case <-c.dead:
	case <-kill.C:
		s.mu.Lock()
		s.endLocked(c, exit{code: 137, reason: "Error"})
		s.mu.Unlock()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// RemoveContainer removes it, killing first what runs.
func (s *Server) RemoveContainer(_ context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[r.ContainerId]; c != nil {
		s.endLocked(c, exit{code: 137, reason: "Error"})
		s.removeLocked(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (s *Server) removeLocked(c *container) {
	c.stopTimer()
	delete(s.containers, c.id)
	delete(s.names, c.name)
	s.emitLocked(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.id, c.sandbox)
}

// ContainerStatus answers NotFound for what is not there.
func (s *Server) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[r.ContainerId]
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", r.ContainerId)
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

func (c *container) status() *runtimeapi.ContainerStatus {
	st := &runtimeapi.ContainerStatus{
		Id:          c.id,
		Metadata:    c.config.Metadata,
		State:       c.state,
		CreatedAt:   c.created.UnixNano(),
		Image:       &runtimeapi.ImageSpec{Image: c.config.Image.GetUserSpecifiedImage()},
		ImageRef:    c.imageRef,
		ImageId:     c.config.Image.GetImage(),
		Labels:      c.config.Labels,
		Annotations: c.config.Annotations,
		Mounts:      c.config.Mounts,
		LogPath:     c.logPath(),
		StopSignal:  c.config.StopSignal,
	}
	if st.StopSignal == runtimeapi.Signal_RUNTIME_DEFAULT {
		st.StopSignal = runtimeapi.Signal_SIGTERM
	}
	if c.resources != nil {
		st.Resources = &runtimeapi.ContainerResources{Linux: c.resources}
	}
	if c.state == running || c.state == exited {
		st.StartedAt = c.started.UnixNano()
	}
	if c.state == unknown {
		st.ExitCode, st.Reason = 255, "Unknown"
	}
	if c.state == exited {
		st.FinishedAt = c.finished.UnixNano()
		st.ExitCode, st.Reason, st.Message = c.end.code, c.end.reason, c.end.message
	}
	return st
}

// ListContainers lists by ID, sandbox, state and labels.
func (s *Server) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f := r.GetFilter()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &runtimeapi.ListContainersResponse{}
	for _, c := range s.containers {
		if (f.GetId() != "" && !strings.HasPrefix(c.id, f.GetId())) || (f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id) ||
			(f.GetState() != nil && f.State.State != c.state) || !selects(f.GetLabelSelector(), c.config.Labels) {
			continue
		}
		out.Containers = append(out.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.Metadata, Image: c.config.Image, ImageRef: c.imageRef,
			State: c.state, CreatedAt: c.created.UnixNano(), Labels: c.config.Labels, Annotations: c.config.Annotations,
		})
	}
	slices.SortFunc(out.Containers, func(a, b *runtimeapi.Container) int { return strings.Compare(a.Id, b.Id) })
	return out, nil
}

func (s *Server) containersOfLocked(sandbox string) []*container {
	var out []*container
	for _, c := range s.containers {
		if c.sandbox.id == sandbox {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *container) int { return a.created.Compare(b.created) })
	return out
}

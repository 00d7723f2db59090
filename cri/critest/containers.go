package critest

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/critest/state"
)

// containerData is what CRI knows about a container besides its state.
type containerData struct {
	config   *runtimeapi.ContainerConfig
	imageRef string
	// resources are the config's, or the last update's.
	resources *runtimeapi.LinuxContainerResources
	script    Script
}

type container = state.Container[sandboxData, containerData]

// states maps a process's state to CRI's.
var states = map[state.Process]runtimeapi.ContainerState{
	state.Created: runtimeapi.ContainerState_CONTAINER_CREATED,
	state.Running: runtimeapi.ContainerState_CONTAINER_RUNNING,
	state.Exited:  runtimeapi.ContainerState_CONTAINER_EXITED,
	state.Lost:    runtimeapi.ContainerState_CONTAINER_UNKNOWN,
}

func logPath(c *container) string {
	if c.Data.config.LogPath == "" || c.Sandbox.Data.config.LogDirectory == "" {
		return ""
	}
	return filepath.Join(c.Sandbox.Data.config.LogDirectory, c.Data.config.LogPath)
}

// CreateContainer makes a container in a ready sandbox, from a present image.
func (s *Server) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	c, err := s.beginContainer(r)
	if err != nil {
		return nil, err
	}
	err = wait(ctx, true)
	s.rt.Lock()
	defer s.rt.Unlock()
	if err != nil {
		s.rt.AbandonContainer(c)
		return nil, err
	}
	if err := s.rt.CreateContainer(c); err != nil {
		return nil, answer(err)
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: c.ID}, nil
}

func (s *Server) beginContainer(r *runtimeapi.CreateContainerRequest) (*container, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	b := s.rt.Sandbox(r.PodSandboxId)
	if b == nil {
		return nil, status.Errorf(codes.NotFound, "failed to find sandbox id %q: not found", r.PodSandboxId)
	}
	if r.Config.GetMetadata().GetName() == "" {
		return nil, status.Error(codes.Unknown, "container config must include metadata")
	}
	img := s.imageLocked(r.Config.GetImage().GetImage())
	if img == nil {
		return nil, status.Errorf(codes.NotFound, "failed to resolve image %q: not found", r.Config.GetImage().GetImage())
	}
	c, err := s.rt.BeginContainer(b, container{
		Name: r.Config.Metadata.Name, Attempt: r.Config.Metadata.Attempt,
		Data: containerData{config: r.Config, imageRef: img.digest(), resources: r.Config.GetLinux().GetResources()},
	})
	return c, answer(err)
}

// StartContainer starts the scripted process.
func (s *Server) StartContainer(_ context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	c := s.rt.Container(r.ContainerId)
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", r.ContainerId)
	}
	if err := s.rt.CanStart(c); err != nil {
		return nil, answer(err)
	}
	if script := s.scripts[c.Name]; script != nil {
		c.Data.script = script(c.Attempt)
	}
	script := c.Data.script
	if text := script.StartError; text != "" {
		s.rt.FailStart(c, state.Exit{Code: 128, Reason: "StartError", Message: text})
		return nil, status.Error(codes.Unknown, text)
	}
	if err := s.rt.StartContainer(c); err != nil {
		return nil, answer(err)
	}
	if script.ExitAfter > 0 {
		s.rt.EndAfter(c, script.ExitAfter, script.exit())
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

// StopContainer sends TERM, and KILL after the timeout.
func (s *Server) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	s.rt.Lock()
	c := s.rt.Container(r.ContainerId)
	if c == nil || c.State != state.Running && c.State != state.Lost {
		s.rt.Unlock()
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if c.State == state.Lost {
		s.rt.End(c, state.Killed)
		s.rt.Unlock()
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if script := c.Data.script; r.Timeout > 0 && !script.IgnoreTERM {
		if script.StopTakes == 0 {
			s.rt.End(c, state.ExitWith(script.TERMCode))
		} else {
			s.rt.EndAfter(c, script.StopTakes, state.ExitWith(script.TERMCode))
		}
	}
	s.rt.Unlock()
	kill := time.NewTimer(time.Duration(r.Timeout) * time.Second)
	defer kill.Stop()
	select {
	case <-c.Dead():
	case <-kill.C:
		s.rt.Lock()
		s.rt.End(c, state.Killed)
		s.rt.Unlock()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// RemoveContainer removes a container, and kills it first if it runs.
func (s *Server) RemoveContainer(_ context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	if c := s.rt.Container(r.ContainerId); c != nil {
		s.rt.RemoveContainer(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// ContainerStatus answers NotFound for a missing container.
func (s *Server) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	c := s.rt.Container(r.ContainerId)
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", r.ContainerId)
	}
	answer := &runtimeapi.ContainerStatusResponse{Status: containerStatus(c)}
	info := c.Data.script.Info
	if c.Data.script.TellSpec {
		info = specOf(c.Data.config)
	}
	if info != "" && r.Verbose {
		answer.Info = map[string]string{"info": info}
	}
	return answer, nil
}

// specOf returns containerd's information about a container: its specification, as far as
// the configuration determines it.
func specOf(config *runtimeapi.ContainerConfig) string {
	process := &specs.Process{Args: slices.Concat(config.Command, config.Args)}
	for _, e := range config.Envs {
		process.Env = append(process.Env, e.Key+"="+string(e.Value))
	}
	text, err := json.Marshal(map[string]any{"runtimeSpec": &specs.Spec{Process: process}})
	if err != nil {
		panic(err) // a value of the test's own
	}
	return string(text)
}

// ContainerStats reports the writable layer only, and answers NotFound for a missing
// container.
func (s *Server) ContainerStats(_ context.Context, r *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	c := s.rt.Container(r.ContainerId)
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "failed to find container: an error occurred when try to find container %q: not found", r.ContainerId)
	}
	return &runtimeapi.ContainerStatsResponse{Stats: &runtimeapi.ContainerStats{WritableLayer: &runtimeapi.FilesystemUsage{
		FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: LayersOn},
		UsedBytes: &runtimeapi.UInt64Value{Value: c.Data.script.Layer}, InodesUsed: &runtimeapi.UInt64Value{Value: 1},
	}}}, nil
}

func containerStatus(c *container) *runtimeapi.ContainerStatus {
	st := &runtimeapi.ContainerStatus{
		Id:          c.ID,
		Metadata:    c.Data.config.Metadata,
		State:       states[c.State],
		CreatedAt:   c.CreatedAt.UnixNano(),
		Image:       &runtimeapi.ImageSpec{Image: c.Data.config.Image.GetUserSpecifiedImage()},
		ImageRef:    c.Data.imageRef,
		ImageId:     c.Data.config.Image.GetImage(),
		Labels:      c.Data.config.Labels,
		Annotations: c.Data.config.Annotations,
		Mounts:      c.Data.config.Mounts,
		LogPath:     logPath(c),
		StopSignal:  c.Data.config.StopSignal,
	}
	if st.StopSignal == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		st.StopSignal = runtimeapi.Signal_SIGNAL_SIGTERM
	}
	if c.Data.resources != nil {
		st.Resources = &runtimeapi.ContainerResources{Linux: c.Data.resources}
	}
	if c.State == state.Running || c.State == state.Exited {
		st.StartedAt = c.StartedAt.UnixNano()
	}
	if c.State == state.Lost {
		st.ExitCode, st.Reason = 255, "Unknown"
	}
	if c.State == state.Exited {
		st.FinishedAt = c.FinishedAt.UnixNano()
		st.ExitCode, st.Reason, st.Message = c.Exit.Code, c.Exit.Reason, c.Exit.Message
	}
	return st
}

// ListContainers lists by ID, sandbox, state and labels.
func (s *Server) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f := r.GetFilter()
	s.rt.Lock()
	defer s.rt.Unlock()
	out := &runtimeapi.ListContainersResponse{}
	for _, c := range s.rt.Containers() {
		if (f.GetId() != "" && !strings.HasPrefix(c.ID, f.GetId())) || (f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.Sandbox.ID) ||
			(f.GetState() != nil && f.State.State != states[c.State]) || !selects(f.GetLabelSelector(), c.Data.config.Labels) {
			continue
		}
		out.Containers = append(out.Containers, &runtimeapi.Container{
			Id: c.ID, PodSandboxId: c.Sandbox.ID, Metadata: c.Data.config.Metadata, Image: c.Data.config.Image, ImageRef: c.Data.imageRef,
			State: states[c.State], CreatedAt: c.CreatedAt.UnixNano(), Labels: c.Data.config.Labels, Annotations: c.Data.config.Annotations,
		})
	}
	slices.SortFunc(out.Containers, func(a, b *runtimeapi.Container) int { return strings.Compare(a.Id, b.Id) })
	return out, nil
}

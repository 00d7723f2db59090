package critest

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandbox is what the Server knows of a sandbox.
type Sandbox struct {
	ID, Pod, Namespace, UID string
	Attempt                 uint32
	Ready                   bool
	IP                      string
	Config                  *runtimeapi.PodSandboxConfig
	Created                 time.Time
}

// Container is what the Server knows of a container.
type Container struct {
	ID, Name, Pod, SandboxID string
	Attempt                  uint32
	State                    runtimeapi.ContainerState
	ExitCode                 int32
	Config                   *runtimeapi.ContainerConfig
	Created, Started         time.Time
	Finished                 time.Time
}

// Running says that its process lives.
func (c Container) Running() bool { return c.State == running }

// Sandboxes are all sandboxes, oldest first. Their Configs are read-only.
func (s *Server) Sandboxes() []Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Sandbox
	for _, b := range s.sandboxes {
		m := b.config.Metadata
		out = append(out, Sandbox{ID: b.id, Pod: m.Name, Namespace: m.Namespace, UID: m.Uid, Attempt: m.Attempt, Ready: b.ready, IP: b.ip, Config: b.config, Created: b.created})
	}
	slices.SortFunc(out, func(a, b Sandbox) int { return a.Created.Compare(b.Created) })
	return out
}

// Containers are all containers, oldest first. Their Configs are read-only.
func (s *Server) Containers() []Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Container
	for _, c := range s.containers {
		out = append(out, Container{
			ID: c.id, Name: c.config.Metadata.Name, Pod: c.sandbox.config.Metadata.Name, SandboxID: c.sandbox.id,
			Attempt: c.config.Metadata.Attempt, State: c.state, ExitCode: c.end.code, Config: c.config,
			Created: c.created, Started: c.started, Finished: c.finished,
		})
	}
	slices.SortFunc(out, func(a, b Container) int { return a.Created.Compare(b.Created) })
	return out
}

// RunningContainers are those whose process lives, oldest first.
func (s *Server) RunningContainers() []Container {
	return slices.DeleteFunc(s.Containers(), func(c Container) bool { return !c.Running() })
}

// Addresses are the pod addresses that are given out.
func (s *Server) Addresses() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.addresses)
}

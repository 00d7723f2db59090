package critest

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandbox is what the Server knows about a sandbox.
type Sandbox struct {
	ID, Pod, Namespace, UID string
	Attempt                 uint32
	Ready                   bool
	IP                      string
	Config                  *runtimeapi.PodSandboxConfig
	Created                 time.Time
}

// Container is what the Server knows about a container.
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
func (c Container) Running() bool { return c.State == runtimeapi.ContainerState_CONTAINER_RUNNING }

// Sandboxes returns all sandboxes, oldest first. Their Configs are read-only.
func (s *Server) Sandboxes() []Sandbox {
	s.rt.Lock()
	defer s.rt.Unlock()
	var out []Sandbox
	for _, b := range s.rt.Sandboxes() {
		out = append(out, Sandbox{ID: b.ID, Pod: b.Pod, Namespace: b.Namespace, UID: b.UID, Attempt: b.Attempt, Ready: b.Ready, IP: b.IP, Config: b.Data.config, Created: b.CreatedAt})
	}
	return out
}

// Containers returns all containers, oldest first. Their Configs are read-only.
func (s *Server) Containers() []Container {
	s.rt.Lock()
	defer s.rt.Unlock()
	var out []Container
	for _, c := range s.rt.Containers() {
		out = append(out, Container{
			ID: c.ID, Name: c.Name, Pod: c.Sandbox.Pod, SandboxID: c.Sandbox.ID,
			Attempt: c.Attempt, State: states[c.State], ExitCode: c.Exit.Code, Config: c.Data.config,
			Created: c.CreatedAt, Started: c.StartedAt, Finished: c.FinishedAt,
		})
	}
	return out
}

// RunningContainers returns the containers with a living process, oldest first.
func (s *Server) RunningContainers() []Container {
	return slices.DeleteFunc(s.Containers(), func(c Container) bool { return !c.Running() })
}

// Addresses returns the number of pod addresses that are given out.
func (s *Server) Addresses() int {
	s.rt.Lock()
	defer s.rt.Unlock()
	return s.rt.Addresses()
}

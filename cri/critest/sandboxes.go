package critest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/critest/state"
)

// sandboxData is what CRI knows about a sandbox besides its state.
type sandboxData struct {
	config  *runtimeapi.PodSandboxConfig
	handler string
}

type sandbox = state.Sandbox[sandboxData]

func hostNetwork(c *runtimeapi.PodSandboxConfig) bool {
	return c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

// answer converts an error of the state to one with containerd's code.
func answer(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, state.ErrRestarted):
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Unknown, err.Error())
}

// handlerLocked returns an error for a handler that does not exist.
func (s *Server) handlerLocked(name string) error {
	if name == "" || slices.ContainsFunc(s.handlers, func(h *runtimeapi.RuntimeHandler) bool { return h.Name == name }) {
		return nil
	}
	return status.Errorf(codes.Unknown, "failed to get sandbox runtime: no runtime for %q is configured", name)
}

// RunPodSandbox makes a ready sandbox.
func (s *Server) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	m := r.GetConfig().GetMetadata()
	if m.GetName() == "" || m.GetUid() == "" {
		return nil, status.Error(codes.Unknown, "sandbox config must include metadata")
	}
	b, err := s.beginSandbox(r)
	if err != nil {
		return nil, err
	}
	err = wait(ctx, true)
	s.rt.Lock()
	defer s.rt.Unlock()
	if err == nil && !b.HostNetwork && !s.network.Status {
		err = status.Errorf(codes.Unknown, "failed to setup network for sandbox %q: cni plugin not initialized", b.ID)
	}
	if err != nil {
		s.rt.AbandonSandbox(b)
		return nil, err
	}
	if err := s.rt.RunSandbox(b); err != nil {
		return nil, answer(err)
	}
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: b.ID}, nil
}

func (s *Server) beginSandbox(r *runtimeapi.RunPodSandboxRequest) (*sandbox, error) {
	m := r.Config.Metadata
	s.rt.Lock()
	defer s.rt.Unlock()
	if err := s.handlerLocked(r.RuntimeHandler); err != nil {
		return nil, err
	}
	b, err := s.rt.BeginSandbox(sandbox{
		Pod: m.Name, Namespace: m.Namespace, UID: m.Uid, Attempt: m.Attempt,
		HostNetwork: hostNetwork(r.Config), Data: sandboxData{r.Config, r.RuntimeHandler},
	})
	return b, answer(err)
}

// StopPodSandbox kills what runs in the sandbox and gives its address back.
func (s *Server) StopPodSandbox(_ context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	if b := s.rt.Sandbox(r.PodSandboxId); b != nil {
		s.rt.StopSandbox(b)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox removes the sandbox with its containers, and first stops what runs.
func (s *Server) RemovePodSandbox(_ context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	if b := s.rt.Sandbox(r.PodSandboxId); b != nil {
		s.rt.RemoveSandbox(b)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// UpdatePodSandboxResources only checks that the sandbox exists. Calls has the request.
func (s *Server) UpdatePodSandboxResources(_ context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	if s.rt.Sandbox(r.PodSandboxId) == nil {
		return nil, status.Errorf(codes.NotFound, "failed to find sandbox: not found")
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// KillSandbox makes a pod's sandbox die with everything that runs in it, as when its pause
// process is killed. It finds the sandbox by ID or by pod name.
func (s *Server) KillSandbox(idOrPod string) {
	s.t.Helper()
	s.rt.Lock()
	defer s.rt.Unlock()
	found := false
	for _, b := range s.rt.Sandboxes() {
		if b.Ready && (b.ID == idOrPod || b.Pod == idOrPod) {
			found = true
			s.rt.KillSandbox(b)
		}
	}
	if !found {
		s.t.Errorf("critest: no ready sandbox %q to kill", idOrPod)
	}
}

// PodSandboxStatus answers NotFound for a missing sandbox.
func (s *Server) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	b := s.rt.Sandbox(r.PodSandboxId)
	if b == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find sandbox: not found")
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: sandboxStatus(b)}, nil
}

func sandboxState(b *sandbox) runtimeapi.PodSandboxState {
	if b.Ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func sandboxStatus(b *sandbox) *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id:             b.ID,
		Metadata:       b.Data.config.Metadata,
		State:          sandboxState(b),
		CreatedAt:      b.CreatedAt.UnixNano(),
		Network:        &runtimeapi.PodSandboxNetworkStatus{Ip: b.IP},
		Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: b.Data.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels:         b.Data.config.Labels,
		Annotations:    b.Data.config.Annotations,
		RuntimeHandler: b.Data.handler,
	}
}

// ListPodSandbox lists by ID, state and labels.
func (s *Server) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f := r.GetFilter()
	s.rt.Lock()
	defer s.rt.Unlock()
	out := &runtimeapi.ListPodSandboxResponse{}
	for _, b := range s.rt.Sandboxes() {
		if (f.GetId() != "" && !strings.HasPrefix(b.ID, f.GetId())) || (f.GetState() != nil && f.State.State != sandboxState(b)) || !selects(f.GetLabelSelector(), b.Data.config.Labels) {
			continue
		}
		out.Items = append(out.Items, &runtimeapi.PodSandbox{
			Id: b.ID, Metadata: b.Data.config.Metadata, State: sandboxState(b), CreatedAt: b.CreatedAt.UnixNano(),
			Labels: b.Data.config.Labels, Annotations: b.Data.config.Annotations, RuntimeHandler: b.Data.handler,
		})
	}
	slices.SortFunc(out.Items, func(a, b *runtimeapi.PodSandbox) int { return strings.Compare(a.Id, b.Id) })
	return out, nil
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

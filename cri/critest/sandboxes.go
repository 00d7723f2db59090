package critest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type sandbox struct {
	id      string
	name    string // reserved
	config  *runtimeapi.PodSandboxConfig
	handler string
	created time.Time
	ready   bool
	ip      string
}

func (b *sandbox) hostNetwork() bool {
	return b.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

// reserveLocked is containerd's name registry, and its words.
func (s *Server) reserveLocked(kind, name, id string) error {
	if holder, taken := s.names[name]; taken {
		return status.Errorf(codes.Unknown, "failed to reserve %s name %q: name %q is reserved for %q", kind, name, name, holder)
	}
	s.names[name] = id
	return nil
}

// handlerLocked refuses a handler that is not there.
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
	b := &sandbox{
		name:    strings.Join([]string{m.Name, m.Namespace, m.Uid, fmt.Sprint(m.Attempt)}, "_"),
		config:  r.Config,
		handler: r.RuntimeHandler,
		created: time.Now(),
		ready:   true,
	}
	s.mu.Lock()
	b.id = s.newIDLocked()
	err := s.handlerLocked(r.RuntimeHandler)
	if err == nil {
		err = s.reserveLocked("sandbox", b.name, b.id)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	err = s.pause(ctx, "RunPodSandbox", true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[b.name] != b.id {
		return nil, status.Error(codes.Unavailable, "the runtime was restarted")
	}
	if err == nil && !b.hostNetwork() && !s.network.Status {
		err = status.Errorf(codes.Unknown, "failed to setup network for sandbox %q: cni plugin not initialized", b.id)
	}
	if err != nil {
		delete(s.names, b.name)
		return nil, err
	}
	if !b.hostNetwork() {
		b.ip = s.addressLocked()
	}
	s.sandboxes[b.id] = b
	s.emitLocked(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, b.id, b)
	s.emitLocked(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, b.id, b)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: b.id}, nil
}

func (s *Server) addressLocked() string {
	for {
		s.nextIP++
		ip := fmt.Sprintf("10.99.%d.%d", s.nextIP/250%256, s.nextIP%250+2)
		if !s.addresses[ip] {
			s.addresses[ip] = true
			return ip
		}
	}
}

// StopPodSandbox kills what runs in it and gives its address back.
func (s *Server) StopPodSandbox(_ context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.sandboxes[r.PodSandboxId]; b != nil {
		s.stopSandboxLocked(b)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (s *Server) stopSandboxLocked(b *sandbox) {
	for _, c := range s.containersOfLocked(b.id) {
		s.endLocked(c, exit{code: 137, reason: "Error"})
	}
	delete(s.addresses, b.ip)
	b.ip = ""
	if b.ready {
		b.ready = false
		s.emitLocked(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, b.id, b)
	}
}

// RemovePodSandbox removes it with its containers, stopping first what runs.
func (s *Server) RemovePodSandbox(_ context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.sandboxes[r.PodSandboxId]
	if b == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	s.stopSandboxLocked(b)
	for _, c := range s.containersOfLocked(b.id) {
		s.removeLocked(c)
	}
	delete(s.sandboxes, b.id)
	delete(s.names, b.name)
	s.emitLocked(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, b.id, nil)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// KillSandbox makes the sandbox of a pod die, with all that runs in it, as when
// its pause process is killed. It is found by ID or by pod name.
func (s *Server) KillSandbox(idOrPod string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	found := false
	for _, b := range s.sandboxes {
		if b.ready && (b.id == idOrPod || b.config.Metadata.Name == idOrPod) {
			found = true
			ip := b.ip
			s.stopSandboxLocked(b)
			if ip != "" { // a dead sandbox keeps its address until it is stopped
				b.ip = ip
				s.addresses[ip] = true
			}
		}
	}
	if !found {
		s.t.Errorf("critest: no ready sandbox %q to kill", idOrPod)
	}
}

// PodSandboxStatus answers NotFound for what is not there.
func (s *Server) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.sandboxes[r.PodSandboxId]
	if b == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find sandbox: not found")
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: b.status()}, nil
}

func (b *sandbox) state() runtimeapi.PodSandboxState {
	if b.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (b *sandbox) status() *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id:             b.id,
		Metadata:       b.config.Metadata,
		State:          b.state(),
		CreatedAt:      b.created.UnixNano(),
		Network:        &runtimeapi.PodSandboxNetworkStatus{Ip: b.ip},
		Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: b.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels:         b.config.Labels,
		Annotations:    b.config.Annotations,
		RuntimeHandler: b.handler,
	}
}

// ListPodSandbox lists by ID, state and labels.
func (s *Server) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f := r.GetFilter()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &runtimeapi.ListPodSandboxResponse{}
	for _, b := range s.sandboxes {
		if (f.GetId() != "" && !strings.HasPrefix(b.id, f.GetId())) || (f.GetState() != nil && f.State.State != b.state()) || !selects(f.GetLabelSelector(), b.config.Labels) {
			continue
		}
		out.Items = append(out.Items, &runtimeapi.PodSandbox{
			Id: b.id, Metadata: b.config.Metadata, State: b.state(), CreatedAt: b.created.UnixNano(),
			Labels: b.config.Labels, Annotations: b.config.Annotations, RuntimeHandler: b.handler,
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

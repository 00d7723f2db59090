package critest

import (
	"context"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/critest/state"
)

// Call is one call that the Server has answered or is still serving.
type Call struct {
	// Method without the service: RunPodSandbox.
	Method  string
	Request any
	At      time.Time
	// Done is false while the call is in progress; Code and Took are valid after that.
	Done bool
	Took time.Duration
	Code codes.Code
}

// record holds the calls that came.
type record struct {
	mu    sync.Mutex // guards calls
	calls []*Call
}

// Delay makes each such call take that much longer: every call of a method, of a method for
// one pod ("StopContainer shop"), or, with "", every call without a delay of its own. 0
// ends it.
func (s *Server) Delay(call string, d time.Duration) { s.faults.Delay(call, d) }

// Hang makes such calls wait until the returned function is called, or the Server stops. A
// create that hangs keeps its name reserved even after its caller has left, and finishes
// when released.
func (s *Server) Hang(call string) (release func()) { return s.faults.Hang(call) }

// Waiting returns the number of calls of a method that hang right now. A create that hangs
// has reserved its name.
func (s *Server) Waiting(method string) int { return s.faults.Waiting(method) }

// FailNth makes the nth such call from now (1 is the next) fail without an effect.
func (s *Server) FailNth(call string, n int, code codes.Code, text string) {
	s.faults.FailNth(call, n, status.Error(code, text))
}

// LoseAnswerNth lets the nth such call from now have its effect, and answers
// Unavailable.
func (s *Server) LoseAnswerNth(call string, n int) {
	s.faults.LoseAnswer(call, n, status.Error(codes.Unavailable, "error reading from server: EOF"))
}

// Calls returns all calls so far, in the order in which they came.
func (s *Server) Calls() []Call {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	out := make([]Call, len(s.record.calls))
	for i, c := range s.record.calls {
		out[i] = *c
	}
	return out
}

// Count returns the number of calls of the method; "" counts all.
func (s *Server) Count(method string) int {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	n := 0
	for _, c := range s.record.calls {
		if method == "" || c.Method == method {
			n++
		}
	}
	return n
}

// ResetCalls forgets the calls so far.
func (s *Server) ResetCalls() {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	s.record.calls = nil
}

// begin records a call, and returns its fate.
func (s *Server) begin(method string, req any) (*Call, state.Fate) {
	c := &Call{Method: method, Request: req, At: time.Now()}
	s.record.mu.Lock()
	s.record.calls = append(s.record.calls, c)
	s.record.mu.Unlock()
	return c, s.faults.Begin(method, s.podOf(req))
}

func (r *record) end(c *Call, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Done, c.Took, c.Code = true, time.Since(c.At), status.Code(err)
}

// podOf returns the name of the pod that a call concerns, or "" if it concerns none.
func (s *Server) podOf(req any) string {
	s.rt.Lock()
	defer s.rt.Unlock()
	switch r := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		return r.GetConfig().GetMetadata().GetName()
	case interface{ GetPodSandboxId() string }:
		if b := s.rt.Sandbox(r.GetPodSandboxId()); b != nil {
			return b.Pod
		}
	case interface{ GetContainerId() string }:
		if c := s.rt.Container(r.GetContainerId()); c != nil {
			return c.Sandbox.Pod
		}
	}
	return ""
}

// creates wait while they are in progress, with their name reserved.
var creates = map[string]bool{"RunPodSandbox": true, "CreateContainer": true}

// fated is the key under which a call's context has its state.Fate.
type fated struct{}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
	method := path.Base(info.FullMethod)
	call, fate := s.begin(method, req)
	defer func() { s.record.end(call, err) }()
	ctx = context.WithValue(ctx, fated{}, fate)
	if !creates[method] {
		if err := wait(ctx, false); err != nil {
			return nil, err
		}
	}
	err = fate.Do(func() error {
		reply, err = handle(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// wait waits as long as a call's faults demand. A delay ends when the caller leaves; a hang
// does too, unless it is sticky.
func wait(ctx context.Context, sticky bool) error {
	fate, _ := ctx.Value(fated{}).(state.Fate)
	if fate.Wait(ctx.Done(), sticky) {
		return nil
	}
	return status.FromContextError(ctx.Err()).Err()
}

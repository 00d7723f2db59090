package critest

import (
	"context"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Call is one call that the Server answered, or is still at.
type Call struct {
	// Method without the service: RunPodSandbox.
	Method  string
	Request any
	At      time.Time
	// Done is false while the call is under way; Code and Took count after.
	Done bool
	Took time.Duration
	Code codes.Code
}

// faults are what the test asked to go wrong, and the record of calls.
type faults struct {
	mu     sync.Mutex // guards everything below
	calls  []*Call
	counts map[string]int
	delays map[string]time.Duration
	hangs  map[string]chan struct{}
	fails  map[string]map[int]fault
}

type fault struct {
	code  codes.Code
	text  string
	after bool // the call has its effect first
}

func (f *faults) init() {
	f.counts, f.delays = map[string]int{}, map[string]time.Duration{}
	f.hangs, f.fails = map[string]chan struct{}{}, map[string]map[int]fault{}
}

// Delay makes each call of the method take that much longer; method "" is all
// methods without a delay of their own. 0 ends it.
func (s *Server) Delay(method string, d time.Duration) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.delays[method] = d
}

// Hang makes calls of the method wait until the returned function is called,
// or the Server stops. A create that hangs keeps its name reserved even when its
// caller has gone, and is finished when released.
func (s *Server) Hang(method string) (release func()) {
	gate := make(chan struct{})
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.hangs[method] = gate
	return func() {
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		if s.faults.hangs[method] == gate {
			delete(s.faults.hangs, method)
			close(gate)
		}
	}
}

func (f *faults) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for m, gate := range f.hangs {
		close(gate)
		delete(f.hangs, m)
	}
}

// FailNth makes the nth call of the method from now (1 is the next) fail
// without an effect.
func (s *Server) FailNth(method string, n int, code codes.Code, text string) {
	s.faults.add(method, n, fault{code: code, text: text})
}

// LoseAnswerNth lets the nth call of the method from now have its effect, and
// answers Unavailable.
func (s *Server) LoseAnswerNth(method string, n int) {
	s.faults.add(method, n, fault{code: codes.Unavailable, text: "error reading from server: EOF", after: true})
}

func (f *faults) add(method string, n int, what fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails[method] == nil {
		f.fails[method] = map[int]fault{}
	}
	f.fails[method][f.counts[method]+n] = what
}

// Calls are all calls so far, in the order in which they came.
func (s *Server) Calls() []Call {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	out := make([]Call, len(s.faults.calls))
	for i, c := range s.faults.calls {
		out[i] = *c
	}
	return out
}

// Count is how many calls of the method came; "" counts all.
func (s *Server) Count(method string) int {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	n := 0
	for _, c := range s.faults.calls {
		if method == "" || c.Method == method {
			n++
		}
	}
	return n
}

// ResetCalls forgets the calls so far.
func (s *Server) ResetCalls() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.calls = nil
}

func (f *faults) begin(method string, req any) (*Call, fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &Call{Method: method, Request: req, At: time.Now()}
	f.calls = append(f.calls, c)
	f.counts[method]++
	return c, f.fails[method][f.counts[method]]
}

func (f *faults) end(c *Call, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.Done, c.Took, c.Code = true, time.Since(c.At), status.Code(err)
}

// creates pause inside of themselves, with their name reserved.
var creates = map[string]bool{"RunPodSandbox": true, "CreateContainer": true}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
	method := path.Base(info.FullMethod)
	call, fault := s.faults.begin(method, req)
	defer func() { s.faults.end(call, err) }()
	if !creates[method] {
		if err := s.pause(ctx, method, false); err != nil {
			return nil, err
		}
	}
	if fault.code != codes.OK && !fault.after {
		return nil, status.Error(fault.code, fault.text)
	}
	reply, err = handle(ctx, req)
	if fault.code != codes.OK {
		return nil, status.Error(fault.code, fault.text)
	}
	return reply, err
}

// pause is a call's delay and hang. A delay ends with its caller; a hang does
// too, unless it is sticky.
func (s *Server) pause(ctx context.Context, method string, sticky bool) error {
	s.faults.mu.Lock()
	d, ok := s.faults.delays[method]
	if !ok {
		d = s.faults.delays[""]
	}
	gate := s.faults.hangs[method]
	s.faults.mu.Unlock()
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	if gate == nil {
		return nil
	}
	gone := ctx.Done()
	if sticky {
		gone = nil
	}
	select {
	case <-gate:
		return nil
	case <-gone:
		return status.FromContextError(ctx.Err()).Err()
	}
}

package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// server is an apiserver with one Node and one Lease.
type server struct {
	mu      sync.Mutex
	node    *v1.Node
	lease   *coordinationv1.Lease
	version int
	leases  int  // versions of the lease
	lost    bool // the lease is stored, and the answer does not arrive
	away    bool
	// forbidden is why Nodes may not be created.
	forbidden error
	requests  []string
	watchers  []func([]*v1.Node, error)
	// refuses has why requests fail, by their names; away has all fail.
	refuses map[string]error
	tried   []time.Time // when all requests came, those that failed, too
	// lagging: those who watch are told nothing.
	lagging   bool
	following int // FollowNodes that have not returned
}

var errAway = errors.New("connection refused")

func (s *server) request(what string) error {
	s.tried = append(s.tried, time.Now())
	if s.away {
		return errAway
	}
	s.requests = append(s.requests, what)
	return s.refuses[what]
}

// refuse has the requests of a name fail from now on; nil has them succeed.
func (s *server) refuse(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses == nil {
		s.refuses = map[string]error{}
	}
	s.refuses[what] = err
}

func (s *server) leave(away bool) { s.mu.Lock(); defer s.mu.Unlock(); s.away = away }

// attempts are how long after a time requests came, those that failed, too.
func (s *server) attempts(since time.Time) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var after []time.Duration
	for _, at := range s.tried {
		if !at.Before(since) {
			after = append(after, at.Sub(since))
		}
	}
	return after
}

// did returns the requests since the last call.
func (s *server) did() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.requests
	s.requests = nil
	return out
}

// write changes the Node as the cluster does, and tells those who watch; nil deletes it.
func (s *server) write(change func(n *v1.Node) *v1.Node) (written *v1.Node) {
	s.mu.Lock()
	if s.node != nil {
		s.node = s.node.DeepCopy()
	}
	s.node = change(s.node)
	s.version++
	var all []*v1.Node
	if s.node != nil {
		s.node.ResourceVersion = strconv.Itoa(s.version)
		all = append(all, s.node)
	}
	watchers, written := slices.Clone(s.watchers), s.node
	if s.lagging {
		watchers = nil
	}
	s.mu.Unlock()
	for _, tell := range watchers {
		tell(all, nil)
	}
	return written
}

func (s *server) FollowNode(ctx context.Context, _ string, set func([]*v1.Node, error)) {
	s.mu.Lock()
	s.watchers = append(s.watchers, set)
	s.following++
	s.mu.Unlock()
	s.write(func(n *v1.Node) *v1.Node { return n })
	<-ctx.Done()
	time.Sleep(time.Second) // the connection is closed
	s.mu.Lock()
	s.following--
	s.mu.Unlock()
}

func (s *server) Node(_ context.Context, name string) (*v1.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.request("get"); err != nil {
		return nil, err
	}
	if s.node == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
	}
	return s.node, nil
}

func (s *server) CreateNode(_ context.Context, n *v1.Node) (*v1.Node, error) {
	s.mu.Lock()
	err, there := s.request("create"), s.node != nil
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if s.forbidden != nil {
		return nil, s.forbidden
	}
	if there {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "nodes"}, n.Name)
	}
	return s.write(func(*v1.Node) *v1.Node {
		out := n.DeepCopy()
		out.UID = types.UID("uid-" + strconv.Itoa(s.version))
		return out
	}), nil
}

func (s *server) PatchNode(_ context.Context, _ string, patch []byte, subresource ...string) (*v1.Node, error) {
	s.mu.Lock()
	err := s.request("patch " + strings.Join(subresource, "/"))
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.write(func(n *v1.Node) *v1.Node {
		before, _ := json.Marshal(n)
		after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Node{})
		out := &v1.Node{}
		if err = errors.Join(err, json.Unmarshal(after, out)); err != nil {
			panic(err)
		}
		return out
	}), nil
}

// The client has an empty object beside each error, and so have these.

func (s *server) Lease(_ context.Context, name string) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.request("get lease"); err != nil {
		return &coordinationv1.Lease{}, err
	}
	if s.lease == nil {
		return &coordinationv1.Lease{}, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, name)
	}
	return s.lease, nil
}

func (s *server) CreateLease(_ context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.request("create lease"); err != nil {
		return &coordinationv1.Lease{}, err
	}
	s.lease = l
	return l, nil
}

func (s *server) UpdateLease(_ context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.request("update lease"); err != nil {
		return &coordinationv1.Lease{}, err
	}
	if s.lease != nil && l.ResourceVersion != s.lease.ResourceVersion {
		return &coordinationv1.Lease{}, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, l.Name, errors.New("the object has been modified"))
	}
	l = l.DeepCopy()
	s.leases++
	l.ResourceVersion = strconv.Itoa(s.leases)
	s.lease = l
	if s.lost {
		return &coordinationv1.Lease{}, errors.New("connection reset")
	}
	return l, nil
}

func facts() Facts {
	return Facts{
		Name: "node0", Hostname: "node0",
		Labels: map[string]string{"disk": "ssd"}, Taints: []v1.Taint{{Key: "only", Effect: v1.TaintEffectNoSchedule}},
		Capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("4Gi"),
			v1.ResourcePods: resource.MustParse("110"), v1.ResourceEphemeralStorage: resource.MustParse("10Gi"),
		},
		System: v1.NodeSystemInfo{BootID: "boot-2"},
	}
}

// bed runs a Registrar in a bubble; state is what it finds.
type bed struct {
	t      *testing.T
	server *server
	*Registrar

	mu     sync.Mutex
	state  State
	events []string // their reasons
	said   []string // their types and messages
	newest *v1.Node // that OnNodeUpdate was called with
	logs   logs
}

func registering(t *testing.T, s *server, run func(b *bed)) {
	t.Helper()
	registeringAs(t, s, facts(), run)
}

func registeringAs(t *testing.T, s *server, of Facts, run func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, server: s, state: State{Addresses: []string{"10.0.0.1", "fd00::1"}}}
		b.Registrar = New(Config{
			Log:    slog.New(slog.NewTextHandler(&b.logs, nil)),
			Client: s, Facts: of, Register: true, UpdateFrequency: 10 * time.Second, ReportFrequency: 5 * time.Minute,
			State:        func(context.Context) State { b.mu.Lock(); defer b.mu.Unlock(); return b.state },
			OnNodeUpdate: func(n *v1.Node) { b.mu.Lock(); defer b.mu.Unlock(); b.newest = n },
			RecordEvent: func(eventType, reason, message string) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.events, b.said = append(b.events, reason), append(b.said, eventType+": "+message)
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		run(b)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: got %v, want %v", err, context.Canceled)
		}
		if b.LastKnownNode() == nil && isClosed(b.Registered()) {
			t.Error("it says that it is registered, and is not")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.following != 0 {
			t.Error("the Node is followed after Run has returned")
		}
	})
}

// logs are what was logged.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// lines returns how many lines have a text.
func (l *logs) lines(with string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), with)
}

func (b *bed) set(s State) { b.mu.Lock(); defer b.mu.Unlock(); b.state = s }

func (b *bed) want(what string, requests ...string) {
	b.t.Helper()
	if got := b.server.did(); !slices.Equal(got, requests) {
		b.t.Errorf("%s: got requests %q, want %q", what, got, requests)
	}
}

// node is the Node as the server has it.
func (b *bed) node() *v1.Node {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return b.server.node
}

// seen is the newest version that OnNodeUpdate was called with.
func (b *bed) seen() *v1.Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest
}

// happened are the reasons of the events so far.
func (b *bed) happened() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

func (b *bed) condition(t v1.NodeConditionType) v1.NodeCondition {
	b.t.Helper()
	for _, c := range b.node().Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	b.t.Fatalf("no condition %s in %+v", t, b.node().Status.Conditions)
	return v1.NodeCondition{}
}

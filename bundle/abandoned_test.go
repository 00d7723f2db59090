package bundle

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	sandboxapi "github.com/containerd/containerd/api/services/sandbox/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// keeps is what a containerd keeps of one ID, and what it deletes when it is told to.
type keeps struct {
	// box: a sandbox's record; foreign: of somebody other than CRI. kind: a container's
	// record, of that kind.
	box, foreign bool
	kind         string
	snapshot     bool
	task         bool
	// lease has the ID as its own; callLease is another that holds the snapshot.
	lease, callLease time.Time
	// listed by CRI.
	listed bool
}

// memory is a containerd with these.
type memory struct {
	grpc.ClientConnInterface
	t    *testing.T
	of   map[string]*keeps
	mute string // a method that does not answer
}

// Invoke answers a call.
func (m memory) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	if m.mute != "" && strings.HasSuffix(method, m.mute) {
		return status.Error(codes.Unavailable, "no answer")
	}
	m.checkNamespace(ctx, method)
	answer := m.list(args)
	if answer == nil {
		answer = m.one(args)
	}
	if answer == nil {
		return status.Error(codes.NotFound, "there is none")
	}
	proto.Merge(reply.(proto.Message), answer)
	return nil
}

// NewStream answers ListStream, of containers.
func (m memory) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	m.checkNamespace(ctx, method)
	return &containerStream{memory: m, broken: m.mute != "" && strings.HasSuffix(method, m.mute)}, nil
}

func (m memory) checkNamespace(ctx context.Context, method string) {
	out, _ := metadata.FromOutgoingContext(ctx)
	if got := out.Get("containerd-namespace"); !strings.HasPrefix(method, "/runtime.v1.") && !slices.Equal(got, []string{"k8s.io"}) {
		m.t.Errorf("%s in the namespace %q", method, got)
	}
}

// containerStream sends the containers that were asked for, one by one.
type containerStream struct {
	grpc.ClientStream
	memory
	left []string
	// broken: the stream is lost before its end.
	broken bool
}

func (s *containerStream) SendMsg(request any) error {
	filter := request.(*containersapi.ListContainersRequest).Filters[0]
	s.left = slices.DeleteFunc(s.those(func(k *keeps) bool { return k.kind != "" }), func(id string) bool { return !passes(filter, id, s.of[id]) })
	return nil
}

// passes applies a filter of containerd's, of which it knows what podd uses.
func passes(filter, id string, k *keeps) bool {
	for _, selector := range strings.Split(filter, ",") {
		if other, ok := strings.CutPrefix(selector, "id!="); ok && other == id || !ok && selector != `labels."io.cri-containerd.kind"==`+k.kind {
			return false
		}
	}
	return true
}

func (s *containerStream) CloseSend() error { return nil }

func (s *containerStream) RecvMsg(reply any) error {
	switch {
	case len(s.left) == 0 && s.broken:
		return status.Error(codes.Unavailable, "no answer")
	case len(s.left) == 0:
		return io.EOF
	}
	reply.(*containersapi.ListContainerMessage).Container = s.container(s.left[0])
	s.left = s.left[1:]
	return nil
}

// list answers what lists everything of a sort.
func (m memory) list(args any) proto.Message {
	switch req := args.(type) {
	case *sandboxapi.StoreListRequest:
		r := &sandboxapi.StoreListResponse{}
		for _, id := range m.those(func(k *keeps) bool { return k.box }) {
			if len(req.Filters) > 0 && !passes(req.Filters[0], id, m.of[id]) {
				continue
			}
			box := &types.Sandbox{SandboxID: id, Extensions: map[string]*anypb.Any{"metadata": {}}}
			if m.of[id].foreign {
				box.Extensions = nil
			}
			r.List = append(r.List, box)
		}
		return r
	case *leasesapi.ListRequest:
		r := &leasesapi.ListResponse{}
		for _, id := range m.those(func(k *keeps) bool { return !k.lease.IsZero() }) {
			r.Leases = append(r.Leases, &leasesapi.Lease{ID: id, CreatedAt: timestamppb.New(m.of[id].lease)})
		}
		for _, id := range m.those(func(k *keeps) bool { return !k.callLease.IsZero() }) {
			r.Leases = append(r.Leases, &leasesapi.Lease{ID: "call-" + id, CreatedAt: timestamppb.New(m.of[id].callLease), Labels: map[string]string{leaseExpires: "later"}})
		}
		return r
	case *leasesapi.ListResourcesRequest:
		return &leasesapi.ListResourcesResponse{Resources: []*leasesapi.Resource{{Type: "snapshots/overlayfs", ID: strings.TrimPrefix(req.ID, "call-")}}}
	case *runtimeapi.ListPodSandboxRequest:
		r := &runtimeapi.ListPodSandboxResponse{}
		for _, id := range m.those(func(k *keeps) bool { return k.listed }) {
			r.Items = append(r.Items, &runtimeapi.PodSandbox{Id: id})
		}
		return r
	}
	return nil
}

// one answers what asks for one thing, or deletes it; nil where there is none.
func (m memory) one(args any) proto.Message {
	found := func(id string, has func(k *keeps) bool, answer proto.Message) proto.Message {
		if k := m.of[id]; k == nil || !has(k) {
			return nil
		}
		return answer
	}
	switch req := args.(type) {
	case *sandboxapi.StoreGetRequest:
		return found(req.SandboxID, func(k *keeps) bool { return k.box }, &sandboxapi.StoreGetResponse{})
	case *sandboxapi.StoreDeleteRequest:
		return found(req.SandboxID, func(k *keeps) bool { was := k.box; k.box = false; return was }, &sandboxapi.StoreDeleteResponse{})
	case *containersapi.GetContainerRequest:
		return found(req.ID, func(k *keeps) bool { return k.kind != "" }, &containersapi.GetContainerResponse{Container: m.container(req.ID)})
	case *containersapi.DeleteContainerRequest:
		return found(req.ID, func(k *keeps) bool { was := k.kind != ""; k.kind = ""; return was }, &emptypb.Empty{})
	case *snapshotsapi.RemoveSnapshotRequest:
		return found(req.Key, func(k *keeps) bool { was := k.snapshot; k.snapshot = false; return was }, &emptypb.Empty{})
	case *tasksapi.GetRequest:
		return found(req.ContainerID, func(k *keeps) bool { return k.task }, &tasksapi.GetResponse{})
	case *leasesapi.DeleteRequest:
		if id, ofCall := strings.CutPrefix(req.ID, "call-"); ofCall {
			m.of[id].callLease = time.Time{}
		} else {
			m.of[id].lease = time.Time{}
		}
		return &emptypb.Empty{}
	case *runtimeapi.PodSandboxStatusRequest:
		return found(req.PodSandboxId, func(k *keeps) bool { return k.listed && k.kind != "container" }, &runtimeapi.PodSandboxStatusResponse{})
	case *runtimeapi.ContainerStatusRequest:
		return found(req.ContainerId, func(k *keeps) bool { return k.listed && k.kind == "container" }, &runtimeapi.ContainerStatusResponse{})
	}
	m.t.Errorf("got an unexpected call: %T", args)
	return nil
}

// those are the IDs of what is so, sorted.
func (m memory) those(is func(*keeps) bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.of)), func(id string) bool { return !is(m.of[id]) })
}

func (m memory) container(id string) *containersapi.Container {
	return &containersapi.Container{
		ID: id, SnapshotKey: id, Snapshotter: "overlayfs",
		Labels: map[string]string{"io.cri-containerd.kind": m.of[id].kind},
	}
}

var someID = strings.Repeat("0123456789abcdef", 4)

// RunPodSandbox takes a lease of the sandbox's ID first and gives it back last, whatever
// else it can write. What CRI lists is podd's to remove through CRI.
func TestWhatAFailedSandboxLeftIsDeletedWhenNoCallIsAtWork(t *testing.T) {
	before := time.Now().Add(-maxCallDuration)
	old, young := before.Add(-time.Second), before.Add(time.Second)
	for name, tc := range map[string]struct {
		there, want keeps
		deleted     int
	}{
		"its container, when CRI has removed the sandbox": {there: keeps{kind: "sandbox", snapshot: true}, deleted: 1},
		"its record, and the name with it":                {there: keeps{box: true}, deleted: 1},
		"everything, and the lease, too old for a call":   {there: keeps{box: true, kind: "sandbox", snapshot: true, lease: old}, deleted: 1},
		"nothing but the lease, too old for a call":       {there: keeps{lease: old}, deleted: 1},
		"a call has just begun":                           {there: keeps{lease: young}, want: keeps{lease: young}},
		"a call is at work on the network":                {there: keeps{box: true, lease: young}, want: keeps{box: true, lease: young}},
		"a call is at work on the container": {
			there: keeps{box: true, kind: "sandbox", snapshot: true, lease: young},
			want:  keeps{box: true, kind: "sandbox", snapshot: true, lease: young},
		},
		"it runs": {
			there: keeps{box: true, kind: "sandbox", snapshot: true, task: true, lease: old, listed: true},
			want:  keeps{box: true, kind: "sandbox", snapshot: true, task: true, lease: old, listed: true},
		},
		"CRI lists what it could not take back": {
			there: keeps{box: true, kind: "sandbox", snapshot: true, listed: true},
			want:  keeps{box: true, kind: "sandbox", snapshot: true, listed: true},
		},
		"its process is there": {
			there: keeps{kind: "sandbox", snapshot: true, task: true},
			want:  keeps{kind: "sandbox", snapshot: true, task: true},
		},
		"a sandbox that CRI did not make": {there: keeps{box: true, foreign: true}, want: keeps{box: true, foreign: true}},
	} {
		t.Run(name, func(t *testing.T) {
			m := memory{t: t, of: map[string]*keeps{someID: &tc.there}}
			deleted, err := Containerd{Conn: m}.DeleteAbandoned(t.Context(), func(string) bool { return true }, before)
			if err != nil || deleted != tc.deleted || tc.there != tc.want {
				t.Errorf("deleted %d, %v, kept %+v; want %d, %+v", deleted, err, tc.there, tc.deleted, tc.want)
			}
		})
	}
}

// TestWhatCRIListsIsNotReadAgain: the records of a node's running sandboxes are megabytes.
func TestWhatCRIListsIsNotReadAgain(t *testing.T) {
	lost := strings.Repeat("f", 64)
	m := memory{t: t, of: map[string]*keeps{lost: {box: true, kind: "sandbox", snapshot: true}}}
	var listed []string
	for i := range 3 {
		id := fmt.Sprintf("%064x", i)
		m.of[id] = &keeps{box: true, kind: "sandbox", listed: true}
		listed = append(listed, id)
	}
	containerd := Containerd{Conn: m}
	if got, err := containerd.Sandboxes(t.Context(), listed); err != nil || !slices.Equal(got, []string{lost}) {
		t.Errorf("other than those that are listed: got %q, %v", got, err)
	}
	if got, err := containerd.Sandboxes(t.Context(), nil); err != nil || len(got) != 4 {
		t.Errorf("all: got %q, %v", got, err)
	}
	if got, err := containerd.containerIDs(t.Context(), "sandbox", listed); err != nil || !slices.Equal(got, []string{lost}) {
		t.Errorf("their containers: got %q, %v", got, err)
	}
	deleted, err := containerd.DeleteAbandoned(t.Context(), func(id string) bool { return id != lost }, time.Now().Add(-maxCallDuration))
	if err != nil || deleted != 1 || m.of[lost].box || m.of[lost].kind != "" || !m.of[listed[0]].box {
		t.Errorf("deleted %d, %v: %+v", deleted, err, m.of[lost])
	}
}

func TestNothingOfASandboxIsDeletedWithoutAnAnswer(t *testing.T) {
	for _, method := range []string{"Store/List", "Containers/ListStream", "Leases/List", "ListPodSandbox", "Tasks/Get", "PodSandboxStatus"} {
		there := keeps{box: true, kind: "sandbox", snapshot: true}
		want := there
		m := memory{t: t, of: map[string]*keeps{someID: &there}, mute: method}
		deleted, err := Containerd{Conn: m}.DeleteAbandoned(t.Context(), func(string) bool { return true }, time.Now())
		if err == nil || deleted != 0 || there != want {
			t.Errorf("%s: deleted %d, %v, kept %+v; want an error, and everything kept", method, deleted, err, there)
		}
	}
}

// TestTheLeaseOfACallIsKeptWhileItIsAtWork, on a container or a sandbox: containerd would
// collect the snapshot that the call has just made.
func TestTheLeaseOfACallIsKeptWhileItIsAtWork(t *testing.T) {
	for _, kind := range []string{"containers", "sandboxes", ""} {
		s := someSettings(t)
		if kind != "" {
			mkdir(t, filepath.Join(s.RootDir, criPlugin, kind, someID))
		}
		there := keeps{snapshot: true, callLease: time.Now()}
		m := memory{t: t, of: map[string]*keeps{someID: &there}}
		deleted, err := Containerd{Conn: m}.DeleteAbandoned(t.Context(), s.criHas, time.Now().Add(-maxCallDuration))
		if err != nil || there.callLease.IsZero() != (kind == "") || deleted != len(m.those(func(k *keeps) bool { return k.callLease.IsZero() })) {
			t.Errorf("with CRI's directory in %q: deleted %d, %v, lease %v", kind, deleted, err, there.callLease)
		}
	}
}

package bundle

import (
	"context"
	"io"
	"maps"
	"slices"
	"testing"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// layers is a containerd that keeps snapshots of overlayfs, and counts which were asked for.
type layers struct {
	kind  map[string]snapshotsapi.Kind
	used  map[string]DiskUsage
	asked map[string]int
}

func (l layers) Invoke(_ context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	req := args.(*snapshotsapi.UsageRequest)
	l.asked[req.Key]++
	u, there := l.used[req.Key]
	if !there || req.Snapshotter != "overlayfs" {
		return status.Error(codes.NotFound, "not found")
	}
	r := reply.(*snapshotsapi.UsageResponse)
	r.Size, r.Inodes = u.Bytes, u.Inodes
	return nil
}

// NewStream lists in two messages.
func (l layers) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if md, _ := metadata.FromOutgoingContext(ctx); !slices.Equal(md.Get("containerd-namespace"), []string{"k8s.io"}) {
		return nil, status.Error(codes.InvalidArgument, "another namespace")
	}
	names := slices.Sorted(maps.Keys(l.kind))
	half := len(names) / 2
	return &listing{parts: [][]string{names[:half], names[half:]}, of: l}, nil
}

type listing struct {
	grpc.ClientStream
	parts [][]string
	of    layers
}

func (*listing) SendMsg(any) error { return nil }
func (*listing) CloseSend() error  { return nil }

func (s *listing) RecvMsg(m any) error {
	if len(s.parts) == 0 {
		return io.EOF
	}
	for _, name := range s.parts[0] {
		r := m.(*snapshotsapi.ListSnapshotsResponse)
		r.Info = append(r.Info, &snapshotsapi.Info{Name: name, Kind: s.of.kind[name]})
	}
	s.parts = s.parts[1:]
	return nil
}

func TestWhatIsUnpackedIsTheSumOfAllSnapshots(t *testing.T) {
	l := layers{
		kind: map[string]snapshotsapi.Kind{
			"image-1": snapshotsapi.Kind_COMMITTED, "image-2": snapshotsapi.Kind_COMMITTED, "web": snapshotsapi.Kind_ACTIVE, "view": snapshotsapi.Kind_VIEW, "going": snapshotsapi.Kind_ACTIVE,
		},
		used:  map[string]DiskUsage{"image-1": {1000, 10}, "image-2": {200, 2}, "web": {30, 3}, "view": {}},
		asked: map[string]int{},
	}
	u := &SnapshotUsage{Snapshotter: "overlayfs"}
	measure := func(want DiskUsage) {
		t.Helper()
		if got, err := u.Measure(t.Context(), Containerd{l}); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	measure(DiskUsage{1230, 15})
	l.used["web"] = DiskUsage{50, 4}
	delete(l.kind, "image-2")
	measure(DiskUsage{1050, 14})
	if l.asked["image-1"] != 1 || l.asked["web"] != 2 {
		t.Errorf("asked %v, want an image's layer once, and what is written to each time", l.asked)
	}
	l.kind["image-2"], l.used["image-2"] = snapshotsapi.Kind_COMMITTED, DiskUsage{7, 1} // another one of that name
	measure(DiskUsage{1057, 15})
}

func TestASnapshotThatCannotBeMeasuredIsAnError(t *testing.T) {
	l := layers{kind: map[string]snapshotsapi.Kind{"web": snapshotsapi.Kind_ACTIVE}, asked: map[string]int{}}
	u := &SnapshotUsage{Snapshotter: "overlayfs"}
	if got, err := u.Measure(t.Context(), Containerd{failing{l}}); err == nil {
		t.Errorf("got %+v, want an error", got)
	}
}

// failing lists, and measures nothing.
type failing struct{ layers }

func (failing) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return status.Error(codes.Internal, "the disk has errors")
}

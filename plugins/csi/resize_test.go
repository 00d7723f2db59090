package csi

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

// sized returns a volume of a cluster with a claim: how large they are, and how far the
// cluster is with its resize.
func (n *testNode) sized(volume, claim string, resize v1.ClaimResourceStatus) pod.CSIVolume {
	v := ofCluster(n.persistent("uid-1", driverName, "h"))
	v.Persistent.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(volume)}
	v.Claim = &v1.PersistentVolumeClaim{}
	v.Claim.Namespace, v.Claim.Name = "shop", "data"
	v.Claim.Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(claim)}
	v.Claim.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}, {Type: "Other"}}
	if resize != "" {
		v.Claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: resize}
	}
	return v
}

// The kubelet's events.
const (
	resized      = `Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume "pv" node`
	notResized   = `Warning FileSystemResizeFailed MountVolume.NodeExpandVolume failed for volume "pv" requested read-only file system`
	resizeFailed = `Warning VolumeResizeFailed NodeExpandVolume.NodeExpandVolume failed for volume "pv" : `
)

func TestAVolumeIsExpandedAsItIsMountedIfItsClaimWaitsForThat(t *testing.T) {
	const pending, going, never = v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress, v1.PersistentVolumeClaimNodeResizeInfeasible
	can := []csipb.NodeServiceCapability_RPC_Type{stages, expands}
	for name, c := range map[string]struct {
		volume, claim string
		resize        v1.ClaimResourceStatus
		can           []csipb.NodeServiceCapability_RPC_Type
		readOnly      bool
		err           error // the driver's
		calls         int
		want          []string // patches
		fails         bool
	}{
		"pending":        {volume: "2Gi", claim: "1Gi", resize: pending, can: can, calls: 1, want: []string{"NodeResizeInProgress 1Gi FileSystemResizePending Other", " 2Gi Other"}},
		"interrupted":    {volume: "2Gi", claim: "1Gi", resize: going, can: can, calls: 1, want: []string{"NodeResizeInProgress 1Gi FileSystemResizePending Other", " 2Gi Other"}},
		"without stages": {volume: "2Gi", claim: "1Gi", resize: pending, can: can[1:], calls: 1, want: []string{"NodeResizeInProgress 1Gi FileSystemResizePending Other", " 2Gi Other"}},
		"not asked":      {volume: "2Gi", claim: "1Gi", can: can},
		"infeasible":     {volume: "2Gi", claim: "1Gi", resize: never, can: can},
		"large enough":   {volume: "2Gi", claim: "2Gi", resize: pending, can: can},
		"cannot":         {volume: "2Gi", claim: "1Gi", resize: pending, can: can[:1]},
		"read-only":      {volume: "2Gi", claim: "1Gi", resize: pending, can: can, readOnly: true},
		"rejected": {volume: "2Gi", claim: "1Gi", resize: pending, can: can, err: status.Error(codes.OutOfRange, "too large"), calls: 1,
			want: []string{"NodeResizeInProgress 1Gi FileSystemResizePending Other", "NodeResizeInfeasible 1Gi FileSystemResizePending Other NodeResizeError"}},
		"failed": {volume: "2Gi", claim: "1Gi", resize: pending, can: can, err: status.Error(codes.Internal, "oops"), calls: 1, fails: true,
			want: []string{"NodeResizeInProgress 1Gi FileSystemResizePending Other", "NodeResizeInProgress 1Gi FileSystemResizePending Other NodeResizeError"}},
		"unknown outcome": {volume: "2Gi", claim: "1Gi", resize: pending, can: can, err: status.Error(codes.Unavailable, "away"), calls: 1, fails: true,
			want: []string{"NodeResizeInProgress 1Gi FileSystemResizePending Other"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, driverName, c.can...).serve()
			f.on("NodeExpandVolume", func(context.Context) error { return c.err })
			n, cluster := inCluster(t, "", f)
			n.allow(driverName, nil, storagev1.VolumeLifecyclePersistent)
			v := n.sized(c.volume, c.claim, c.resize)
			v.ReadOnly = c.readOnly
			if _, err := n.SetUp(t.Context(), v); (err != nil) != c.fails || c.fails && !strings.Contains(err.Error(), "NodeExpandVolume: "+c.err.Error()) {
				t.Errorf("got %v, want an error: %t", err, c.fails)
			}
			calls := slices.DeleteFunc(f.heard(), func(name string) bool { return name != "Expand" })
			if len(calls) != c.calls || !slices.Equal(cluster.patches, c.want) {
				t.Errorf("got %d calls and %q, want %d and %q", len(calls), cluster.patches, c.calls, c.want)
			}
			var told []string
			switch {
			case c.readOnly:
				told = []string{"uid-1: " + notResized, "claim data: " + notResized}
			case c.calls > 0 && c.err == nil:
				told = []string{"uid-1: " + resized, "claim data: " + resized}
			}
			if got := n.events.all(); !slices.Equal(got, told) {
				t.Errorf("the pod and its claim have events %q, want %q", got, told)
			}
			if q := f; c.calls > 0 && last[*csipb.NodeExpandVolumeRequest](q).CapacityRange.RequiredBytes != 2<<30 {
				t.Errorf("got %v", last[*csipb.NodeExpandVolumeRequest](q))
			}
		})
	}
}

// TestAPodIsToldThatItsVolumeIsNotExpandedWhileItRuns: it goes on with the size that it has.
func TestAPodIsToldThatItsVolumeIsNotExpandedWhileItRuns(t *testing.T) {
	f := newFake(t, driverName, stages, expands).serve()
	f.on("NodeExpandVolume", func(context.Context) error { return status.Error(codes.Internal, "oops") })
	n, cluster := inCluster(t, "", f)
	n.followPeriod = 5 * time.Millisecond
	n.allow(driverName, nil, storagev1.VolumeLifecyclePersistent)
	v := n.sized("1Gi", "1Gi", "")
	larger := n.sized("2Gi", "1Gi", v1.PersistentVolumeClaimNodeResizePending)
	cluster.has(v)
	n.mustSetUp(v)
	cluster.has(larger)
	eventually(t, "the pod is told", func() bool { return len(n.events.all()) > 0 })
	if got := n.events.all()[0]; !strings.HasPrefix(got, string(v.Pod.UID)+": "+resizeFailed) || !strings.Contains(got, "oops") {
		t.Errorf("the pod has the event %q", got)
	}
	n.mustTearDown(v)
}

func TestAVolumeIsExpandedWhileItsPodRuns(t *testing.T) {
	f := newFake(t, driverName, stages, expands).serve()
	n, cluster := inCluster(t, "", f)
	n.followPeriod = 5 * time.Millisecond
	n.allow(driverName, nil, storagev1.VolumeLifecyclePersistent)
	v := n.sized("1Gi", "1Gi", "")
	larger := n.sized("2Gi", "1Gi", v1.PersistentVolumeClaimNodeResizePending)
	cluster.has(v)
	n.mustSetUp(v)
	wantCalls(t, f, "Stage", "Publish")
	cluster.has(larger)
	eventually(t, "it is expanded", func() bool { cluster.mu.Lock(); defer cluster.mu.Unlock(); return len(cluster.patches) == 2 })
	if got := cluster.patches[1]; got != " 2Gi Other" {
		t.Errorf("got %q", got)
	}
	wantCalls(t, f, "Stage", "Publish", "Expand")
	if got, want := n.events.all(), []string{string(v.Pod.UID) + ": " + resized, "claim data: " + resized}; !slices.Equal(got, want) {
		t.Errorf("the pod and its claim have events %q, want %q", got, want)
	}
	n.mustTearDown(v)
	eventually(t, "it is no longer looked after", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return len(n.followed) == 0 })
}

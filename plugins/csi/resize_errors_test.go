package csi

import (
	"context"
	"errors"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

const (
	inProgress = "NodeResizeInProgress 1Gi FileSystemResizePending Other"
	isExpanded = " 2Gi Other"
)

// expandable returns a node of a cluster with a volume that is set up, and its claim as it is
// once the cluster has expanded the volume.
func expandable(t *testing.T) (n *testNode, c *testCluster, f *fake, v, larger pod.CSIVolume) {
	f = newFake(t, driverName, stages, expands).serve()
	n, c = inCluster(t, "", f)
	n.allow(driverName, nil, storagev1.VolumeLifecyclePersistent)
	n.objects.secrets["safe/expand"] = &v1.Secret{Data: map[string][]byte{"password": []byte("geheim")}}
	v = n.sized("1Gi", "1Gi", "")
	larger = n.sized("2Gi", "1Gi", v1.PersistentVolumeClaimNodeResizePending)
	for _, of := range []pod.CSIVolume{v, larger} {
		of.Persistent.Spec.CSI.NodeExpandSecretRef = &v1.SecretReference{Namespace: "safe", Name: "expand"}
	}
	c.has(v)
	n.mustSetUp(v)
	c.has(larger)
	return n, c, f, v, larger
}

func TestWhatADriverGetsToExpandAVolume(t *testing.T) {
	n, _, f, v, _ := expandable(t)
	if err := n.expandMounted(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	q, p := last[*csipb.NodeExpandVolumeRequest](f), n.paths(v)
	if q.VolumeId != "h" || q.VolumePath != p.target || q.StagingTargetPath != p.staging || q.CapacityRange.RequiredBytes != 2<<30 || q.Secrets["password"] != "geheim" {
		t.Errorf("got %v", q)
	}
	if m := q.VolumeCapability.GetMount(); m.GetFsType() != "ext4" || !slices.Equal(m.GetMountFlags(), []string{"noatime"}) {
		t.Errorf("got %v", q.VolumeCapability)
	}
}

// The volume stays as it is, and the reason is told: it is tried again.
func TestWhyAMountedVolumeIsNotExpanded(t *testing.T) {
	away := errors.New("the apiserver is away")
	fail := func(what string) func(*testNode, *testCluster, *fake) {
		return func(_ *testNode, c *testCluster, _ *fake) {
			c.failing(func(request string) error {
				if request == what {
					return away
				}
				return nil
			})
		}
	}
	for name, c := range map[string]struct {
		spoil   func(*testNode, *testCluster, *fake)
		want    string
		patches []string
		expands bool
	}{
		"its claim cannot be read":  {fail("claim"), "the apiserver is away", nil, false},
		"nor its volume":            {fail("volume"), "the apiserver is away", nil, false},
		"its begin cannot be shown": {fail("patch to NodeResizeInProgress"), "mark node expansion in progress: the apiserver is away", nil, false},
		"its end cannot be shown":   {fail("patch to "), "the apiserver is away", []string{inProgress}, true},
		"its CSIDriver is not known": {func(n *testNode, _ *testCluster, _ *fake) {
			n.objects.mu.Lock()
			defer n.objects.mu.Unlock()
			n.objects.err = away
		}, "the apiserver is away", nil, false},
		"its Secret is gone": {func(n *testNode, _ *testCluster, _ *fake) {
			n.objects.mu.Lock()
			defer n.objects.mu.Unlock()
			delete(n.objects.secrets, "safe/expand")
		}, `fetching NodeExpandSecretRef safe/expand failed: secret "expand" not found`, nil, false},
		"its driver is gone": {func(n *testNode, _ *testCluster, f *fake) {
			f.stop()
			eventually(n.t, "the driver is forgotten", func() bool { return len(n.Drivers()) == 0 })
		}, "driver name " + driverName + " not found", nil, false},
		"its driver cannot say what it can do": {func(_ *testNode, _ *testCluster, f *fake) {
			f.on("NodeGetCapabilities", func(context.Context) error { return status.Error(codes.Internal, "starting") })
		}, "NodeGetCapabilities: rpc error: code = Internal desc = starting", nil, false},
		"another call for it hangs": {func(n *testNode, _ *testCluster, _ *fake) {
			unlock, err := n.locks.Lock(n.t.Context(), driverName+"^h")
			if err != nil {
				n.t.Fatal(err)
			}
			n.t.Cleanup(unlock)
			n.timeout = 50 * time.Millisecond
		}, "context deadline exceeded", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			n, cluster, f, v, _ := expandable(t)
			c.spoil(n, cluster, f)
			if err := n.expandMounted(t.Context(), v); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if !slices.Equal(cluster.patches, c.patches) {
				t.Errorf("the claim was patched to %q, want %q", cluster.patches, c.patches)
			}
			want := []string{"Stage", "Publish"}
			if c.expands {
				want = append(want, "Expand")
			}
			wantCalls(t, f, want...)
		})
	}
}

func TestAMountedVolumeIsNotExpandedForAClaimThatDoesNotAskForIt(t *testing.T) {
	for name, change := range map[string]func(n *testNode, v, larger *pod.CSIVolume){
		"of another UID":          func(_ *testNode, _, larger *pod.CSIVolume) { larger.Claim.UID = "another" },
		"not yet":                 func(_ *testNode, _, larger *pod.CSIVolume) { larger.Claim.Status.AllocatedResourceStatuses = nil },
		"of a pod that has ended": func(n *testNode, v, _ *pod.CSIVolume) { n.mustTearDown(*v) },
	} {
		t.Run(name, func(t *testing.T) {
			n, c, f, v, larger := expandable(t)
			change(n, &v, &larger)
			if err := n.expandMounted(t.Context(), v); err != nil {
				t.Errorf("got %v", err)
			}
			if calls := f.heard(); slices.Contains(calls, "Expand") || len(c.patches) > 0 {
				t.Errorf("the driver got %v, and the claim was patched to %q", calls, c.patches)
			}
		})
	}
}

// The cluster's and the kubelet's rules: each answer ends another way.
func TestWhatAClaimShowsOfAnExpansionThatFails(t *testing.T) {
	const infeasible, failed = "NodeResizeInfeasible 1Gi FileSystemResizePending Other NodeResizeError", inProgress + " NodeResizeError"
	for code, c := range map[codes.Code]struct {
		patches []string
		fails   bool
	}{
		codes.InvalidArgument:    {[]string{inProgress, infeasible}, false},
		codes.NotFound:           {[]string{inProgress, infeasible}, false},
		codes.FailedPrecondition: {[]string{inProgress, infeasible}, false},
		codes.Internal:           {[]string{inProgress, failed}, true},
		codes.DeadlineExceeded:   {[]string{inProgress}, true},
	} {
		n, cluster, f, v, _ := expandable(t)
		f.on("NodeExpandVolume", func(context.Context) error { return status.Error(code, "no") })
		if err := n.expandMounted(t.Context(), v); (err != nil) != c.fails {
			t.Errorf("%v: got %v, want an error: %t", code, err, c.fails)
		}
		if !slices.Equal(cluster.patches, c.patches) {
			t.Errorf("%v: the claim was patched to %q, want %q", code, cluster.patches, c.patches)
		}
	}
}

func TestAClaimKeepsTheFirstReasonOfAFailedExpansion(t *testing.T) {
	n, c, f, v, _ := expandable(t)
	for _, why := range []string{"first", "second"} {
		f.on("NodeExpandVolume", func(context.Context) error { return status.Error(codes.Internal, why) })
		if err := n.expandMounted(t.Context(), v); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want %q", err, why)
		}
	}
	conditions := slices.DeleteFunc(slices.Clone(c.claim.Status.Conditions), func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type != v1.PersistentVolumeClaimNodeResizeError
	})
	if len(conditions) != 1 || conditions[0].Status != v1.ConditionTrue || conditions[0].LastTransitionTime.IsZero() ||
		conditions[0].Message != "failed to expand pvc with NodeExpandVolume: rpc error: code = Internal desc = first" {
		t.Errorf("got %+v", conditions)
	}
	f.on("NodeExpandVolume", nil)
	if err := n.expandMounted(t.Context(), v); err != nil || c.patches[len(c.patches)-1] != isExpanded {
		t.Errorf("got %v, and the claim was patched to %q", err, c.patches)
	}
}

// A claim need not have any of these yet, and those that the node has read are not changed.
func TestHowAClaimIsChangedByItsResize(t *testing.T) {
	size := resource.MustParse("2Gi")
	all := []v1.PersistentVolumeClaimConditionType{v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimFileSystemResizePending,
		v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError, v1.PersistentVolumeClaimVolumeModifyVolumeError}
	old := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	old.Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	for _, of := range all {
		old.Status.Conditions = append(old.Status.Conditions, v1.PersistentVolumeClaimCondition{Type: of})
	}
	for name, claim := range map[string]*v1.PersistentVolumeClaim{"empty": {}, "with all": old} {
		before := claim.DeepCopy()
		began := withResizeStatus(claim, v1.PersistentVolumeClaimNodeResizeInProgress)
		if got := began.Status.AllocatedResourceStatuses[v1.ResourceStorage]; got != v1.PersistentVolumeClaimNodeResizeInProgress {
			t.Errorf("%s: begun: got %q", name, got)
		}
		ended := withResizeFinished(began, size)
		if got := ended.Status.Capacity.Storage(); got.Cmp(size) != 0 || len(ended.Status.AllocatedResourceStatuses) > 0 {
			t.Errorf("%s: ended: got %+v", name, ended.Status)
		}
		for _, c := range ended.Status.Conditions {
			if c.Type != v1.PersistentVolumeClaimVolumeModifyVolumeError {
				t.Errorf("%s: ended, and has the condition %s", name, c.Type)
			}
		}
		withResizeFinished(claim, size)
		withResizeFailed(claim, status.Error(codes.Internal, "oops"))
		failed := withResizeFailed(claim, status.Error(codes.OutOfRange, "too large"))
		if got := failed.Status.AllocatedResourceStatuses[v1.ResourceStorage]; got != v1.PersistentVolumeClaimNodeResizeInfeasible {
			t.Errorf("%s: rejected: got %q", name, got)
		}
		if want := min(len(claim.Status.Conditions), 1); len(ended.Status.Conditions) != want {
			t.Errorf("%s: ended: got %d conditions, want %d", name, len(ended.Status.Conditions), want)
		}
		if claim.Status.Capacity.Storage().Cmp(*before.Status.Capacity.Storage()) != 0 || len(claim.Status.Conditions) != len(before.Status.Conditions) ||
			len(claim.Status.AllocatedResourceStatuses) > 0 {
			t.Errorf("%s: the claim itself was changed to %+v", name, claim.Status)
		}
	}
}

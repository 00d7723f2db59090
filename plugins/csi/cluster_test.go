package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// testCluster attaches what it is told to, of what is in use.
type testCluster struct {
	mu sync.Mutex
	// volumes are the node's; told is what was in use each time that the cluster was told so.
	volumes  *Volumes
	told     [][]v1.UniqueVolumeName
	asked    []string // attachments
	full     error    // for attachments
	changes  int      // of the registered drivers
	attached chan map[string]string
	refused  error // for tokens
	claim    *v1.PersistentVolumeClaim
	volume   *v1.PersistentVolume
	patches  []string // what the resize was, after each
	// fails, if there is one, says which request for claims and volumes fails.
	fails func(request string) error
}

// answerLocked returns the error of a request.
func (c *testCluster) answerLocked(request string) error {
	if c.fails == nil {
		return nil
	}
	return c.fails(request)
}

// failing sets fails.
func (c *testCluster) failing(fails func(request string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails = fails
}

// has makes the claim and the PersistentVolume of v the cluster's.
func (c *testCluster) has(v pod.CSIVolume) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claim, c.volume = v.Claim, v.Persistent
}

func (c *testCluster) InUseChanged() {
	if c.volumes == nil { // New has found what an earlier podd has used
		return
	}
	now := c.volumes.InUse()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, now)
}

// wantTold checks what the cluster was told of volumes in use, from the beginning.
func (c *testCluster) wantTold(t *testing.T, want ...[]v1.UniqueVolumeName) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.EqualFunc(c.told, want, slices.Equal) {
		t.Errorf("the cluster was told that in use are %v, want %v", c.told, want)
	}
}

func (c *testCluster) DriversChanged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
}

func (c *testCluster) WaitForAttach(ctx context.Context, volume v1.UniqueVolumeName, attachment string) (map[string]string, error) {
	c.mu.Lock()
	c.asked = append(c.asked, string(volume)+" "+attachment)
	full := c.full
	if len(c.told) == 0 || !slices.Contains(c.told[len(c.told)-1], volume) {
		full = fmt.Errorf("the cluster was not told that %s is in use: nobody attaches it", volume)
	}
	c.mu.Unlock()
	if full != nil {
		return nil, full
	}
	select {
	case metadata := <-c.attached:
		c.attached <- metadata
		return metadata, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *testCluster) Token(_ context.Context, p *v1.Pod, s *v1.ServiceAccountTokenProjection) (string, metav1.Time, error) {
	return fmt.Sprintf("%s for %s", p.Spec.ServiceAccountName, s.Audience), metav1.Time{Time: time.Unix(1, 0)}, c.refused
}

func (c *testCluster) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claim.Namespace != namespace || c.claim.Name != name {
		return nil, fmt.Errorf("claim %s/%s %w", namespace, name, pod.ErrNotFound)
	}
	return c.claim, c.answerLocked("claim")
}

func (c *testCluster) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.volume.Name != name {
		return nil, fmt.Errorf("volume %s %w", name, pod.ErrNotFound)
	}
	return c.volume, c.answerLocked("volume")
}

func (c *testCluster) PatchClaim(_ context.Context, _, to *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	status := string(to.Status.AllocatedResourceStatuses[v1.ResourceStorage])
	if err := c.answerLocked("patch to " + status); err != nil {
		return nil, err
	}
	c.claim = to
	text := status + " " + to.Status.Capacity.Storage().String()
	for _, condition := range to.Status.Conditions {
		text += " " + string(condition.Type)
	}
	c.patches = append(c.patches, text)
	return to, nil
}

// inCluster returns a node of a cluster with a registered driver.
func inCluster(t *testing.T, root string, f *fake) (*testNode, *testCluster) {
	c := &testCluster{attached: make(chan map[string]string, 1)}
	n := nodeOf(t, root, Config{Cluster: c}, func(v *Volumes) { c.volumes = v })
	if f != nil {
		f.register(n)
		n.has(driverName)
		eventually(t, "the cluster is told of the driver", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.changes > 0 })
	}
	return n, c
}

func ofCluster(v pod.CSIVolume) pod.CSIVolume {
	v.Pod.Annotations = map[string]string{pod.AnnotationSource: string(pod.SourceAPIServer)}
	return v
}

func (n *testNode) wantInUse(want ...v1.UniqueVolumeName) {
	n.t.Helper()
	if got := n.InUse(); !slices.Equal(got, want) {
		n.t.Errorf("in use are %v, want %v", got, want)
	}
}

const unique = v1.UniqueVolumeName("kubernetes.io/csi/" + driverName + "^h")

func TestAVolumeIsInUseBeforeItIsAttachedUntilItIsUnstaged(t *testing.T) {
	f := newFake(t, driverName, stages).serve()
	n, c := inCluster(t, "", f) // without a CSIDriver, volumes must be attached
	one, two := ofCluster(n.persistent("uid-1", driverName, "h")), ofCluster(n.persistent("uid-2", driverName, "h"))
	done := make(chan error, 1)
	go func() { _, err := n.SetUp(t.Context(), one); done <- err }()
	eventually(t, "it is asked for", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.asked) > 0 })
	n.wantInUse(unique)
	if want := fmt.Sprintf("%s csi-%x", unique, sha256.Sum256([]byte("h"+driverName+"node"))); c.asked[0] != want {
		t.Errorf("asked for %s, want %s", c.asked[0], want)
	}
	wantCalls(t, f)
	c.attached <- map[string]string{"device": "/dev/x"}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := last[*csipb.NodeStageVolumeRequest](f).PublishContext["device"] + last[*csipb.NodePublishVolumeRequest](f).PublishContext["device"]; got != "/dev/x/dev/x" {
		t.Errorf("the driver got %s", got)
	}
	n.mustSetUp(two)
	n.mustTearDown(one)
	n.wantInUse(unique)
	c.wantTold(t, []v1.UniqueVolumeName{unique})
	n.stop()
	again, c := inCluster(t, n.root, nil)
	again.wantInUse(unique)
	again.has(driverName)
	again.mustTearDown(two)
	again.wantInUse()
	c.wantTold(t, nil)
}

func TestAVolumeThatIsNotAttachedIsNoLongerInUseWithoutItsPod(t *testing.T) {
	f := newFake(t, driverName, stages).serve()
	n, c := inCluster(t, "", f)
	v := ofCluster(n.persistent("uid-1", driverName, "h"))
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { _, err := n.SetUp(ctx, v); done <- err }()
	eventually(t, "it is asked for", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.asked) > 0 })
	gone := errors.New("the pod is gone")
	cancel(gone)
	if err := <-done; !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	n.wantInUse(unique)
	n.mustTearDown(v)
	n.wantInUse()
	wantCalls(t, f)
}

func (n *testNode) wantLimit(want int64) {
	n.t.Helper()
	if got := n.Registered(); len(got) != 1 || got[0].MaxVolumes != want || got[0].NodeID != "here" {
		n.t.Errorf("registered is %+v, want a limit of %d", got, want)
	}
}

// TestADriversLimitIsReadAgain and the cluster told if it is another; what else the driver
// says stays as it was.
func TestADriversLimitIsReadAgain(t *testing.T) {
	f := newFake(t, driverName).serve()
	n, c := inCluster(t, "", f)
	n.wantLimit(0)
	told := func() int { c.mu.Lock(); defer c.mu.Unlock(); return c.changes }
	before := told()
	refresh := func(limit int64) error {
		f.mu.Lock()
		f.limit, f.nodeID = limit, "elsewhere"
		f.mu.Unlock()
		return n.RefreshAttachLimit(t.Context(), driverName)
	}
	for i, limit := range []int64{5, 5, 2} {
		if err := refresh(limit); err != nil {
			t.Fatal(err)
		}
		n.wantLimit(limit)
		if got, want := told()-before, []int{1, 1, 2}[i]; got != want {
			t.Errorf("after %d the cluster was told %d times, want %d", limit, got, want)
		}
	}
	f.on("NodeGetInfo", func(context.Context) error { return status.Error(codes.Internal, "not now") })
	if err := refresh(9); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Errorf("got %v", err)
	}
	n.wantLimit(2)
	if err := n.RefreshAttachLimit(t.Context(), "nobody"); err != nil {
		t.Errorf("one that is not registered: got %v", err)
	}
}

// TestANodeWithoutRoomForAVolumeSaysSo only for drivers whose limit changes; how many there
// is room for is read first.
func TestANodeWithoutRoomForAVolumeSaysSo(t *testing.T) {
	yes, period := true, int64(10)
	for name, c := range map[string]struct {
		changes *int64
		limit   int64 // afterwards
		is      bool
	}{
		"that changes":       {&period, 1, true},
		"that never changes": {nil, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, driverName, stages).serve()
			n, cluster := inCluster(t, "", f)
			n.allow(driverName, func(s *storagev1.CSIDriverSpec) {
				s.AttachRequired, s.NodeAllocatableUpdatePeriodSeconds = &yes, c.changes
			}, storagev1.VolumeLifecyclePersistent)
			f.mu.Lock()
			f.limit = 1
			f.mu.Unlock()
			cluster.full = fmt.Errorf("volume x: %w: no slots", pod.ErrAttachLimit)
			_, err := n.SetUp(t.Context(), ofCluster(n.persistent("uid-1", driverName, "h")))
			if errors.Is(err, pod.ErrAttachLimit) != c.is || err == nil || err.Error() != "kubernetes.io/csi: "+cluster.full.Error() {
				t.Errorf("got %v", err)
			}
			n.wantLimit(c.limit)
		})
	}
}

func TestWhatNeedNotBeAttachedIsNotInUse(t *testing.T) {
	f := newFake(t, driverName, stages).serve()
	n, c := inCluster(t, "", f)
	n.allow(driverName, nil, storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral) // attachRequired: false
	n.mustSetUp(ofCluster(n.persistent("uid-1", driverName, "h")))
	yes := true
	n.allow(driverName, func(s *storagev1.CSIDriverSpec) { s.AttachRequired = &yes }, storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)
	n.mustSetUp(ofCluster(n.inline("uid-2", driverName)))
	n.wantInUse()
	if len(c.asked) > 0 {
		t.Errorf("asked for %v", c.asked)
	}
	// A pod of a manifest is not the cluster's.
	if _, err := n.SetUp(t.Context(), n.persistent("uid-3", driverName, "other")); err == nil || !strings.Contains(err.Error(), "nothing attaches volumes without a cluster") {
		t.Errorf("a pod of a manifest: got %v", err)
	}
}

func TestADriverGetsTheTokensThatItAsksFor(t *testing.T) {
	const tokens = `{"":{"token":"sa for ","expirationTimestamp":"1970-01-01T00:00:01Z"},"vault":{"token":"sa for vault","expirationTimestamp":"1970-01-01T00:00:01Z"}}`
	f := newFake(t, driverName).serve()
	n, c := inCluster(t, "", f)
	asks := func(secret bool) func(*storagev1.CSIDriverSpec) {
		return func(s *storagev1.CSIDriverSpec) {
			s.TokenRequests, s.ServiceAccountTokenInSecrets = []storagev1.TokenRequest{{}, {Audience: "vault"}}, &secret
		}
	}
	n.allow(driverName, asks(false), storagev1.VolumeLifecycleEphemeral)
	n.mustSetUp(ofCluster(n.inline("uid-1", driverName)))
	q := last[*csipb.NodePublishVolumeRequest](f)
	if q.VolumeContext[tokensKey] != tokens || q.VolumeContext["size"] != "small" || len(q.Secrets) > 0 {
		t.Errorf("got %v and secrets %v", q.VolumeContext, q.Secrets)
	}
	n.allow(driverName, asks(true), storagev1.VolumeLifecycleEphemeral)
	n.mustSetUp(ofCluster(n.inline("uid-2", driverName)))
	q = last[*csipb.NodePublishVolumeRequest](f)
	if q.Secrets[tokensKey] != tokens || q.VolumeContext[tokensKey] != "" {
		t.Errorf("as secrets: got %v and secrets %v", q.VolumeContext, q.Secrets)
	}
	c.refused = errors.New("no such account")
	if _, err := n.SetUp(t.Context(), ofCluster(n.inline("uid-3", driverName))); err == nil || !strings.Contains(err.Error(), "no such account") {
		t.Errorf("refused: got %v", err)
	}
	if _, err := n.SetUp(t.Context(), n.inline("uid-4", driverName)); err == nil || !strings.Contains(err.Error(), "tokenRequests, which only an apiserver can answer") {
		t.Errorf("a pod of a manifest: got %v", err)
	}
}

func TestWhatADriverSaysOfTheNodeIsKnown(t *testing.T) {
	n, f := withDriver(t)
	if got := n.Registered(); len(got) != 1 || got[0].Name != driverName || got[0].NodeID != "here" {
		t.Errorf("got %+v", got)
	}
	f.stop()
	eventually(t, "it is removed", func() bool { return len(n.Registered()) == 0 })
}

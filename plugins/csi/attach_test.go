package csi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
)

// Its pods are of a cluster that it was once part of.
func TestANodeWithoutAnApiserverSaysSo(t *testing.T) {
	asks := func(s *storagev1.CSIDriverSpec) { s.TokenRequests = []storagev1.TokenRequest{{}} }
	const why = "this node has no apiserver: "
	for name, c := range map[string]struct {
		allow  func(*testNode)
		volume func(*testNode) pod.CSIVolume
		want   string
		calls  []string
	}{
		"a volume that must be attached": {func(*testNode) {},
			func(n *testNode) pod.CSIVolume { return n.persistent("a", driverName, "h") }, "kubernetes.io/csi: " + why, nil},
		"a token": {func(n *testNode) { n.allow(driverName, asks, storagev1.VolumeLifecycleEphemeral) },
			func(n *testNode) pod.CSIVolume { return n.inline("a", driverName) },
			"kubernetes.io/csi: mounter.SetUpAt failed to get service account token attributes: " + why, nil},
		"a claim that waits for the node": {func(n *testNode) { n.allow(driverName, nil, storagev1.VolumeLifecyclePersistent) },
			func(n *testNode) pod.CSIVolume {
				return n.sized("2Gi", "1Gi", v1.PersistentVolumeClaimNodeResizePending)
			},
			"kubernetes.io/csi: mark node expansion in progress: " + why, []string{"Publish"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := withDriver(t, expands)
			c.allow(n)
			v := ofCluster(c.volume(n))
			if _, err := n.SetUp(t.Context(), v); !errors.Is(err, pod.ErrUnavailable) || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			wantCalls(t, f, c.calls...)
			n.mustTearDown(v)
		})
	}
}

func TestWithoutAClusterEveryRequestForOneFails(t *testing.T) {
	var c Cluster = noCluster{}
	for what, request := range map[string]func() error{
		"an attachment": func() error { _, err := c.WaitForAttach(t.Context(), unique, "csi-1"); return err },
		"a token":       func() error { _, _, err := c.Token(t.Context(), aPod("a"), nil); return err },
		"a claim":       func() error { _, err := c.Claim(t.Context(), "shop", "data"); return err },
		"a volume":      func() error { _, err := c.PersistentVolume(t.Context(), "pv"); return err },
		"a patch":       func() error { _, err := c.PatchClaim(t.Context(), nil, nil); return err },
	} {
		if err := request(); !errors.Is(err, pod.ErrUnavailable) {
			t.Errorf("%s: got %v, want that there is no apiserver", what, err)
		}
	}
}

func TestAVolumeThatIsNotAttachedIsNotMounted(t *testing.T) {
	f := newFake(t, driverName, stages).serve()
	n, c := inCluster(t, "", f)
	c.full = errors.New("the attacher has failed")
	v := ofCluster(n.persistent("uid-1", driverName, "h"))
	if _, err := n.SetUp(t.Context(), v); err == nil || err.Error() != "kubernetes.io/csi: the attacher has failed" {
		t.Errorf("got %v", err)
	}
	wantCalls(t, f)
	n.wantInUse(unique)
	n.mustTearDown(v)
	n.wantInUse()
}

// The cluster may detach it: the driver has done nothing with it.
func TestAVolumeThatItsDriverHasRejectedIsNoLongerInUseWithoutItsPod(t *testing.T) {
	f := newFake(t, driverName, stages).serve()
	n, c := inCluster(t, "", f)
	c.attached <- nil
	v := ofCluster(n.persistent("uid-1", driverName, "h"))
	f.on("NodeStageVolume", func(context.Context) error { return status.Error(codes.InvalidArgument, "no such share") })
	if _, err := n.SetUp(t.Context(), v); err == nil {
		t.Fatal("it was set up")
	}
	n.wantInUse(unique)
	n.mustTearDown(v)
	n.wantInUse()
	c.wantTold(t, []v1.UniqueVolumeName{unique}, nil)
	wantCalls(t, f, "Stage")
}

func TestAVolumeWhoseUseCannotBeRecordedIsNotInUse(t *testing.T) {
	f := newFake(t, driverName, stages).serve()
	n, c := inCluster(t, "", f)
	v := ofCluster(n.persistent("uid-1", driverName, "h"))
	mustWrite(t, v.Dir, "in the way")
	if _, err := n.SetUp(t.Context(), v); err == nil || !strings.Contains(err.Error(), v.Dir) {
		t.Errorf("got %v, want it to name %s", err, v.Dir)
	}
	n.wantInUse()
	c.wantTold(t)
	wantCalls(t, f)
}

func TestASetUpThatWaitsForAnotherCallEnds(t *testing.T) {
	for name, of := range map[string]func(pod.CSIVolume) pod.CSIVolume{
		"in a cluster":      ofCluster,
		"without a cluster": func(v pod.CSIVolume) pod.CSIVolume { return v },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, driverName).serve()
			n, _ := inCluster(t, "", f)
			unlock, err := n.locks.Lock(t.Context(), driverName+"^h")
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			n.timeout = 50 * time.Millisecond
			want := "kubernetes.io/csi: another call for the volume is still in progress: context deadline exceeded"
			if _, err := n.SetUp(t.Context(), of(n.persistent("a", driverName, "h"))); err == nil || err.Error() != want {
				t.Errorf("got %v, want %q", err, want)
			}
			wantCalls(t, f)
		})
	}
}

// A volume's own context and Secret, what is known of the pod, and the tokens.
func TestTokensComeWithWhatElseADriverGets(t *testing.T) {
	yes := true
	for _, secret := range []bool{true, false} {
		f := newFake(t, driverName).serve()
		n, _ := inCluster(t, "", f)
		n.allow(driverName, func(s *storagev1.CSIDriverSpec) {
			s.TokenRequests, s.ServiceAccountTokenInSecrets, s.PodInfoOnMount = []storagev1.TokenRequest{{}}, &secret, &yes
		}, storagev1.VolumeLifecycleEphemeral)
		n.objects.secrets["shop/key"] = &v1.Secret{Data: map[string][]byte{"password": []byte("geheim")}}
		v := ofCluster(n.inline("uid-1", driverName))
		v.Inline.NodePublishSecretRef = &v1.LocalObjectReference{Name: "key"}
		n.mustSetUp(v)
		q := last[*csipb.NodePublishVolumeRequest](f)
		if q.VolumeContext["size"] != "small" || q.VolumeContext["csi.storage.k8s.io/pod.name"] != "web" || q.Secrets["password"] != "geheim" {
			t.Errorf("tokens among the secrets %t: got %v", secret, q)
		}
		if _, is := q.Secrets[tokensKey]; is != secret {
			t.Errorf("tokens among the secrets %t: got %v", secret, q.Secrets)
		}
	}
}

// Its CSINode must not have it any more.
func TestTheClusterIsToldWhenADriverGoes(t *testing.T) {
	f := newFake(t, driverName).serve()
	n, c := inCluster(t, "", f)
	told := func() int { c.mu.Lock(); defer c.mu.Unlock(); return c.changes }
	before := told()
	f.stop()
	eventually(t, "the cluster is told", func() bool { return told() > before })
	if got := n.Registered(); len(got) > 0 {
		t.Errorf("registered are %v", got)
	}
}

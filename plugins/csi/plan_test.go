package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
)

func TestTheFieldsOfAnInlineVolumeReachItsDriver(t *testing.T) {
	yes, no, xfs := true, false, "xfs"
	for name, c := range map[string]struct {
		source   *bool
		mounts   bool // read-only
		readOnly bool
	}{
		"by default":             {nil, false, false},
		"writable":               {&no, false, false},
		"read-only":              {&yes, false, true},
		"mounted read-only":      {nil, true, true},
		"but mounted read-only":  {&no, true, true},
		"read-only in all parts": {&yes, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := withDriver(t)
			n.allow(driverName, nil, storagev1.VolumeLifecycleEphemeral)
			n.objects.secrets["shop/key"] = &v1.Secret{Data: map[string][]byte{"password": []byte("geheim")}}
			v := n.inline("a", driverName)
			v.Inline.FSType, v.Inline.ReadOnly, v.ReadOnly = &xfs, c.source, c.mounts
			v.Inline.NodePublishSecretRef = &v1.LocalObjectReference{Name: "key"}
			n.mustSetUp(v)
			q := last[*csipb.NodePublishVolumeRequest](f)
			if q.Readonly != c.readOnly || q.VolumeCapability.GetMount().FsType != xfs || q.Secrets["password"] != "geheim" {
				t.Errorf("got %v, want %s, the Secret of the pod's namespace, and read-only %t", q, xfs, c.readOnly)
			}
		})
	}
}

// Names that podd has verified are stronger than what the pod's author writes.
func TestAttributesOfAVolumeDoNotReplaceThePodsName(t *testing.T) {
	n, f := withDriver(t)
	n.allow(driverName, func(s *storagev1.CSIDriverSpec) { yes := true; s.PodInfoOnMount = &yes }, storagev1.VolumeLifecycleEphemeral)
	v := n.inline("a", driverName)
	v.Inline.VolumeAttributes["csi.storage.k8s.io/pod.namespace"] = "kube-system"
	n.mustSetUp(v)
	if q := last[*csipb.NodePublishVolumeRequest](f); q.VolumeContext["csi.storage.k8s.io/pod.namespace"] != "shop" || q.VolumeContext["size"] != "small" {
		t.Errorf("got %v", q.VolumeContext)
	}
}

func TestWhatACSIDriverObjectDeniesIsNotDone(t *testing.T) {
	n, f := withDriver(t)
	n.allow(driverName, func(s *storagev1.CSIDriverSpec) { no := false; s.PodInfoOnMount, s.RequiresRepublish = &no, &no }, storagev1.VolumeLifecycleEphemeral)
	v := n.inline("a", driverName)
	n.mustSetUp(v)
	if q := last[*csipb.NodePublishVolumeRequest](f); q.VolumeContext["csi.storage.k8s.io/pod.name"] != "" {
		t.Errorf("podInfoOnMount: false: got %v", q.VolumeContext)
	}
	if len(n.followed) > 0 {
		t.Error("requiresRepublish: false: it will be published again")
	}
}

func TestADriverIsNotAskedWithoutAPlan(t *testing.T) {
	away := errors.New("the apiserver does not answer")
	for name, c := range map[string]struct {
		change func(*testNode, *pod.CSIVolume)
		want   string
	}{
		"its name is no name": {func(_ *testNode, v *pod.CSIVolume) { v.Persistent.Spec.CSI.Driver = "../x" },
			`kubernetes.io/csi: plugin validation failed with err: driver name "../x":`},
		"its CSIDriver is not known": {func(n *testNode, _ *pod.CSIVolume) { n.objects.err = away },
			"kubernetes.io/csi: the apiserver does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := withDriver(t)
			v := n.persistent("a", driverName, "h")
			c.change(n, &v)
			if _, err := n.SetUp(t.Context(), v); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			wantCalls(t, f)
		})
	}
}

// A restart of podd finds its containers running, also while the driver's pod does not.
func TestAVolumeThatIsMountedNeedsNoDriver(t *testing.T) {
	for name, c := range map[string]struct {
		since  func(*testNode, pod.CSIVolume) // what happened since it was set up
		handle string
		is     bool
	}{
		"still mounted":                 {nil, "h", true},
		"of another handle":             {nil, "other", false},
		"mounted before the last boot":  {func(n *testNode, _ pod.CSIVolume) { n.boot = "another" }, "h", false},
		"no longer mounted":             {func(n *testNode, v pod.CSIVolume) { n.replace(n.Path(v), t.TempDir()) }, "h", false},
		"with a target that is removed": {func(n *testNode, v pod.CSIVolume) { n.replace(n.Path(v), "/nowhere") }, "h", false},
		"not completely published": {func(n *testNode, v pod.CSIVolume) {
			r, err := readRecord(v.Dir)
			if err == nil {
				r.State = stateBegun
				err = r.write(v.Dir)
			}
			if err != nil {
				n.t.Fatal(err)
			}
		}, "h", false},
	} {
		t.Run(name, func(t *testing.T) {
			before, f := withDriver(t)
			v := before.persistent("a", driverName, "h")
			before.mustSetUp(v)
			before.replace(before.Path(v), "/proc") // a mount that tests may have
			before.stop()
			f.stop()
			n := newNode(t, before.root)
			if c.since != nil {
				c.since(n, v)
			}
			v.Persistent.Spec.CSI.VolumeHandle = c.handle
			owns, err := n.SetUp(t.Context(), v)
			if c.is && (err != nil || owns) || !c.is && (err == nil || !strings.Contains(err.Error(), "failed to get CSI client: driver name "+driverName+" not found")) {
				t.Errorf("got %t, %v; want success: %t", owns, err, c.is)
			}
		})
	}
}

// replace puts a link to a directory in the place of another.
func (n *testNode) replace(path, to string) {
	n.t.Helper()
	if err := errors.Join(os.RemoveAll(path), os.Symlink(to, path)); err != nil {
		n.t.Fatal(err)
	}
}

// The PersistentVolume was made anew with another volume.
func TestADirectoryOfAnotherVolumeIsTornDownFirst(t *testing.T) {
	n, f := withDriver(t)
	old, v := n.persistent("a", driverName, "old"), n.persistent("a", driverName, "new")
	n.mustSetUp(old)
	data := filepath.Join(n.Path(old), "data")
	if err := os.WriteFile(data, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.on("NodeUnpublishVolume", func(context.Context) error { return errLies })
	if _, err := n.SetUp(t.Context(), v); err == nil || !strings.Contains(err.Error(), "has left something behind") {
		t.Errorf("while the old one is there: got %v", err)
	}
	wantCalls(t, f, "Publish", "Unpublish")
	f.on("NodeUnpublishVolume", func(context.Context) error { return os.Remove(data) })
	n.mustSetUp(v)
	wantCalls(t, f, "Publish", "Unpublish", "Unpublish", "Publish")
	if q := last[*csipb.NodeUnpublishVolumeRequest](f); q.VolumeId != "old" {
		t.Errorf("unpublished %s", q.VolumeId)
	}
	f.on("NodeUnpublishVolume", nil)
	n.mustTearDown(v)
}

package csi

import (
	"context"
	"maps"
	"os"
	"path/filepath"
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

const (
	stages    = csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	expands   = csipb.NodeServiceCapability_RPC_EXPAND_VOLUME
	measures  = csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS
	groups    = csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
	manyWrite = csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER
)

// withDriver returns a node with a registered driver.
func withDriver(t *testing.T, can ...csipb.NodeServiceCapability_RPC_Type) (*testNode, *fake) {
	n := newNode(t, "")
	f := newFake(t, driverName, can...).serve().register(n)
	n.has(driverName)
	return n, f
}

func wantCalls(t *testing.T, f *fake, want ...string) {
	t.Helper()
	if got := f.heard(); !slices.Equal(got, want) {
		t.Errorf("the driver got %v, want %v", got, want)
	}
}

func TestAnInlineVolumeIsPublishedAndUnpublished(t *testing.T) {
	n, f := withDriver(t, stages)
	n.allow(driverName, func(s *storagev1.CSIDriverSpec) { yes := true; s.PodInfoOnMount = &yes }, storagev1.VolumeLifecycleEphemeral)
	v := n.inline("uid-1", driverName)
	n.mustSetUp(v)
	q := last[*csipb.NodePublishVolumeRequest](f)
	if want := "csi-c6b9fee9f58dbcf8514714e33b3bef6c8d259821373330068f9524db0a81a80e"; q.VolumeId != want { // sha256sum of the pod's UID and the volume's name, as upstream has it
		t.Errorf("handle: got %s, want %s", q.VolumeId, want)
	}
	if want := filepath.Join(n.root, "pods/uid-1/volumes/kubernetes.io~csi/v/mount"); q.TargetPath != want || n.Path(v) != want || q.StagingTargetPath != "" {
		t.Errorf("paths: got %s, %s and %q, want %s", q.TargetPath, n.Path(v), q.StagingTargetPath, want)
	}
	if want := map[string]string{
		"size": "small", "csi.storage.k8s.io/pod.name": "web", "csi.storage.k8s.io/pod.namespace": "shop", "csi.storage.k8s.io/pod.uid": "uid-1",
		"csi.storage.k8s.io/serviceAccount.name": "sa", "csi.storage.k8s.io/ephemeral": "true",
	}; !maps.Equal(q.VolumeContext, want) {
		t.Errorf("context: got %v, want %v", q.VolumeContext, want)
	}
	if len(v.Inline.VolumeAttributes) != 1 {
		t.Errorf("the pod itself was changed: %v", v.Inline.VolumeAttributes)
	}
	if mode := q.VolumeCapability.AccessMode.Mode; mode != csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER {
		t.Errorf("access mode: got %v", mode)
	}
	r, err := readRecord(v.Dir)
	if err != nil || r.DriverName != driverName || r.VolumeHandle != q.VolumeId || r.VolumeLifecycleMode != "Ephemeral" || r.SpecVolID != "v" || r.NodeName != "node" {
		t.Errorf("record: got %+v, %v", r, err)
	}
	n.mustTearDown(v)
	if back := last[*csipb.NodeUnpublishVolumeRequest](f); back.VolumeId != q.VolumeId || back.TargetPath != q.TargetPath {
		t.Errorf("unpublished: got %v", back)
	}
	wantCalls(t, f, "Publish", "Unpublish")
}

func TestAPersistentVolumeIsStagedOnceAndUnstagedByItsLastUser(t *testing.T) {
	n, f := withDriver(t, stages)
	a, b := n.persistent("a", driverName, "handle/1"), n.persistent("b", driverName, "handle/1")
	n.mustSetUp(a)
	staged := filepath.Join(n.root, "plugins/kubernetes.io/csi", driverName, hashed("", "handle/1"))
	q, p := last[*csipb.NodeStageVolumeRequest](f), last[*csipb.NodePublishVolumeRequest](f)
	if want := filepath.Join(staged, "globalmount"); q.StagingTargetPath != want || p.StagingTargetPath != want {
		t.Errorf("staged at %s and %s, want %s", q.StagingTargetPath, p.StagingTargetPath, want)
	}
	m := q.VolumeCapability.GetMount()
	if q.VolumeId != "handle/1" || m.FsType != "ext4" || !slices.Equal(m.MountFlags, []string{"noatime"}) || q.VolumeContext["share"] != "a" {
		t.Errorf("staged: got %v", q)
	}
	n.mustSetUp(b)
	n.mustTearDown(a)
	n.mustTearDown(b)
	wantCalls(t, f, "Stage", "Publish", "Publish", "Unpublish", "Unpublish", "Unstage")
	if _, err := os.Lstat(staged); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", staged, err)
	}
}

func TestADriverWithoutTheCapabilityDoesNotStage(t *testing.T) {
	n, f := withDriver(t)
	v := n.persistent("a", driverName, "h")
	n.mustSetUp(v)
	if q := last[*csipb.NodePublishVolumeRequest](f); q.StagingTargetPath != "" {
		t.Errorf("staged at %s", q.StagingTargetPath)
	}
	n.mustTearDown(v)
	wantCalls(t, f, "Publish", "Unpublish")
}

func TestABlockVolumeIsPublishedAsADevice(t *testing.T) {
	n, f := withDriver(t, stages)
	v := n.persistent("a", driverName, "h")
	block := v1.PersistentVolumeBlock
	v.Persistent.Spec.VolumeMode = &block
	n.mustSetUp(v)
	devices := filepath.Join(n.root, "plugins/kubernetes.io/csi/volumeDevices")
	q := last[*csipb.NodePublishVolumeRequest](f)
	if q.TargetPath != filepath.Join(devices, "publish/pv/a") || n.Path(v) != q.TargetPath || q.StagingTargetPath != filepath.Join(devices, "staging/pv") || q.VolumeCapability.GetBlock() == nil {
		t.Errorf("got %v", q)
	}
	n.mustTearDown(v)
	wantCalls(t, f, "Stage", "Publish", "Unpublish", "Unstage")
	if files, _ := filepath.Glob(filepath.Join(devices, "*/*")); len(files) > 0 {
		t.Errorf("left: %v", files)
	}
}

func TestVolumesThatACSIDriverObjectAllows(t *testing.T) {
	no, yes := false, true
	for name, tc := range map[string]struct {
		doc        *storagev1.CSIDriverSpec
		persistent bool
		want       string // part of the error; empty for none
	}{
		"inline without a document":     {nil, false, `volume mode "Ephemeral" not supported by driver disk.example.com (no CSIDriver object)`},
		"persistent without a document": {nil, true, ""},
		"inline, only persistent":       {&storagev1.CSIDriverSpec{AttachRequired: &no}, false, `volume mode "Ephemeral" not supported by driver disk.example.com (only supports ["Persistent"])`},
		"persistent by default":         {&storagev1.CSIDriverSpec{AttachRequired: &no}, true, ""},
		"persistent that is attached":   {&storagev1.CSIDriverSpec{AttachRequired: &yes}, true, "attachRequired: true, and nothing attaches volumes without a cluster: write attachRequired: false"},
		"attached by default":           {&storagev1.CSIDriverSpec{}, true, "attachRequired: true"},
		"inline is never attached":      {&storagev1.CSIDriverSpec{AttachRequired: &yes, VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{"Ephemeral"}}, false, ""},
		"tokens":                        {&storagev1.CSIDriverSpec{AttachRequired: &no, TokenRequests: []storagev1.TokenRequest{{}}}, true, "tokenRequests, which only an apiserver can answer"},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := withDriver(t)
			if tc.doc != nil {
				n.allow(driverName, func(s *storagev1.CSIDriverSpec) { *s = *tc.doc })
			}
			v := n.inline("a", driverName)
			if tc.persistent {
				v = n.persistent("a", driverName, "h")
			}
			_, err := n.SetUp(t.Context(), v)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if asked := len(f.heard()) > 0; asked != (tc.want == "") {
				t.Errorf("the driver got %v", f.heard())
			}
		})
	}
}

func TestWhoAppliesTheFSGroup(t *testing.T) {
	group := int64(4321)
	policy := func(p storagev1.FSGroupPolicy) *storagev1.FSGroupPolicy { return &p }
	for name, tc := range map[string]struct {
		policy *storagev1.FSGroupPolicy
		can    []csipb.NodeServiceCapability_RPC_Type
		change func(*pod.CSIVolume)
		podd   bool
		driver string
	}{
		"by default":     {podd: true},
		"without a type": {change: func(v *pod.CSIVolume) { v.Persistent.Spec.CSI.FSType = "" }},
		"of many nodes": {change: func(v *pod.CSIVolume) {
			v.Persistent.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
		}},
		"read-only":            {change: func(v *pod.CSIVolume) { v.ReadOnly = true }},
		"without a group":      {change: func(v *pod.CSIVolume) { v.Pod.Spec.SecurityContext = nil }},
		"policy File":          {policy: policy(storagev1.FileFSGroupPolicy), change: func(v *pod.CSIVolume) { v.Persistent.Spec.CSI.FSType = "" }, podd: true},
		"policy None":          {policy: policy(storagev1.NoneFSGroupPolicy)},
		"the driver does it":   {can: []csipb.NodeServiceCapability_RPC_Type{groups}, driver: "4321"},
		"the driver, no group": {can: []csipb.NodeServiceCapability_RPC_Type{groups}, change: func(v *pod.CSIVolume) { v.Pod.Spec.SecurityContext = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := withDriver(t, tc.can...)
			n.allow(driverName, func(s *storagev1.CSIDriverSpec) { s.FSGroupPolicy = tc.policy })
			v := n.persistent("a", driverName, "h")
			v.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
			if tc.change != nil {
				tc.change(&v)
			}
			if owns := n.mustSetUp(v); owns != tc.podd {
				t.Errorf("podd does it: got %v, want %v", owns, tc.podd)
			}
			if got := last[*csipb.NodePublishVolumeRequest](f).VolumeCapability.GetMount().VolumeMountGroup; got != tc.driver {
				t.Errorf("the driver does it: got %q, want %q", got, tc.driver)
			}
		})
	}
}

func TestAccessModesAreConvertedAsUpstreamDoes(t *testing.T) {
	type mode = csipb.VolumeCapability_AccessMode_Mode
	for given, want := range map[v1.PersistentVolumeAccessMode][2]mode{
		v1.ReadWriteOnce:    {csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		v1.ReadWriteOncePod: {csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		v1.ReadOnlyMany:     {csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		v1.ReadWriteMany:    {csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	} {
		for i, can := range []map[csipb.NodeServiceCapability_RPC_Type]bool{nil, {manyWrite: true}} {
			p := &plan{record: &record{}, accessModes: []v1.PersistentVolumeAccessMode{given}}
			p.setCapabilities(can)
			if got := p.accessMode(); got != want[i] {
				t.Errorf("%s, %v: got %v, want %v", given, can, got, want[i])
			}
		}
	}
}

func TestSecretsGoToTheDriverAndNowhereElse(t *testing.T) {
	n, f := withDriver(t, stages, expands)
	for _, name := range []string{"stage", "publish"} {
		n.objects.secrets["safe/"+name] = &v1.Secret{Data: map[string][]byte{"password": []byte("geheim-" + name), "user": []byte("geheim")}}
	}
	v := n.persistent("a", driverName, "h")
	csi := v.Persistent.Spec.CSI
	csi.NodeStageSecretRef = &v1.SecretReference{Namespace: "safe", Name: "stage"}
	csi.NodePublishSecretRef = &v1.SecretReference{Namespace: "safe", Name: "gone"}
	if _, err := n.SetUp(t.Context(), v); err == nil || err.Error() != `fetching NodePublishSecretRef safe/gone failed: secret "gone" not found` {
		t.Errorf("a missing Secret: got %v", err)
	}
	wantCalls(t, f)
	csi.NodePublishSecretRef.Name = "publish"
	f.on("NodePublishVolume", func(context.Context) error {
		return status.Error(codes.Internal, "mount -o user=geheim,password=geheim-publish,auth=Z2VoZWltLXB1Ymxpc2g=: no")
	})
	_, err := n.SetUp(t.Context(), v)
	if err == nil || strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "Z2Vo") || !strings.Contains(err.Error(), "user=<masked>,password=<masked>,auth=<masked>: no") {
		t.Errorf("an error with a Secret's values: got %v", err)
	}
	f.on("NodePublishVolume", nil)
	n.mustSetUp(v)
	if q := last[*csipb.NodeStageVolumeRequest](f); q.Secrets["password"] != "geheim-stage" {
		t.Errorf("staged with %v", q.Secrets)
	}
	if q := last[*csipb.NodePublishVolumeRequest](f); q.Secrets["password"] != "geheim-publish" {
		t.Errorf("published with %v", q.Secrets)
	}
	_ = filepath.WalkDir(n.root, func(path string, d os.DirEntry, err error) error {
		if content, err := os.ReadFile(path); err == nil && strings.Contains(string(content), "geheim") {
			t.Errorf("%s has a Secret's value: %s", path, content)
		}
		return err
	})
}

func TestAVolumeIsExpandedWithItsPersistentVolume(t *testing.T) {
	n, f := withDriver(t, stages, expands)
	size := func(v pod.CSIVolume, text string) pod.CSIVolume {
		v.Persistent.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(text)}
		return v
	}
	n.mustSetUp(size(n.persistent("a", driverName, "h"), "1Gi"))
	q := last[*csipb.NodeExpandVolumeRequest](f)
	if q.CapacityRange.RequiredBytes != 1<<30 || q.VolumePath != n.Path(n.persistent("a", driverName, "h")) || q.StagingTargetPath == "" {
		t.Errorf("got %v", q)
	}
	n.mustSetUp(size(n.persistent("b", driverName, "h"), "1Gi"))
	n.mustSetUp(size(n.persistent("c", driverName, "h"), "2Gi"))
	if q := last[*csipb.NodeExpandVolumeRequest](f); q.CapacityRange.RequiredBytes != 2<<30 {
		t.Errorf("got %v", q)
	}
	wantCalls(t, f, "Stage", "Publish", "Expand", "Publish", "Publish", "Expand")
	f.on("NodeExpandVolume", func(context.Context) error { return status.Error(codes.FailedPrecondition, "in use") })
	n.mustSetUp(size(n.persistent("d", driverName, "h"), "3Gi"))
	f.on("NodeExpandVolume", func(context.Context) error { return status.Error(codes.Internal, "no") })
	if _, err := n.SetUp(t.Context(), size(n.persistent("e", driverName, "h"), "4Gi")); err == nil || !strings.Contains(err.Error(), "NodeExpandVolume") {
		t.Errorf("got %v", err)
	}
}

// TestWhatIsPublishedAgainEndsWithRun: no call to a driver outlives podd's part that made it.
func TestWhatIsPublishedAgainEndsWithRun(t *testing.T) {
	n := newNode(t, "", func(v *Volumes) { v.followPeriod = time.Millisecond })
	f := newFake(t, driverName).serve().register(n)
	n.has(driverName)
	n.allow(driverName, func(s *storagev1.CSIDriverSpec) { yes := true; s.RequiresRepublish = &yes }, storagev1.VolumeLifecycleEphemeral)
	first, again, ended := true, make(chan struct{}), make(chan struct{})
	f.on("NodePublishVolume", func(ctx context.Context) error {
		if first {
			first = false
			return nil
		}
		close(again)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	n.mustSetUp(n.inline("a", driverName))
	<-again // by the timer
	n.stop()
	select {
	case <-ended:
	case <-time.After(30 * time.Second): // the call's own limit is two minutes
		t.Error("the call goes on without Run")
	}
}

// The driver's target may be a directory without a mount, and empty (kubernetes/kubernetes#139045).
func TestAVolumeThatCannotBePublishedAgainStays(t *testing.T) {
	n, f := withDriver(t)
	n.allow(driverName, func(s *storagev1.CSIDriverSpec) { yes := true; s.RequiresRepublish = &yes }, storagev1.VolumeLifecycleEphemeral)
	v := n.inline("a", driverName)
	n.mustSetUp(v)
	target := n.Path(v)
	if err := os.RemoveAll(target); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, code := range []codes.Code{codes.Internal, codes.Unavailable, codes.InvalidArgument} {
		f.on("NodePublishVolume", func(context.Context) error { return status.Error(code, "not now") })
		n.unfollow(v.Dir)
		n.publishAgain(t.Context(), v)
		n.Adopt(v)
		if _, err := os.Lstat(target); err != nil {
			t.Errorf("%v: the target: %v", code, err)
		}
		if n.followed[v.Dir] == nil {
			t.Fatalf("%v: it is not published again any more", code)
		}
	}
	f.on("NodePublishVolume", nil)
	n.publishAgain(t.Context(), v)
	n.mustTearDown(v)
	wantCalls(t, f, "Publish", "Publish", "Publish", "Publish", "Publish", "Unpublish")
}

func TestRequiresRepublish(t *testing.T) {
	n, f := withDriver(t)
	n.allow(driverName, func(s *storagev1.CSIDriverSpec) { yes := true; s.RequiresRepublish = &yes }, storagev1.VolumeLifecycleEphemeral)
	v := n.inline("a", driverName)
	n.mustSetUp(v)
	if n.followed[v.Dir] == nil {
		t.Fatal("nothing will publish it again")
	}
	n.unfollow(v.Dir)
	n.publishAgain(t.Context(), v)
	wantCalls(t, f, "Publish", "Publish")
	n.mustTearDown(v)
	if len(n.followed) > 0 {
		t.Error("it would be published again after its end")
	}
	if owns, err := n.setUp(t.Context(), v, true); owns || err != nil { // its timer had fired before
		t.Errorf("after its end: got %t, %v", owns, err)
	}
	wantCalls(t, f, "Publish", "Publish", "Unpublish")
	if _, err := os.Lstat(v.Dir); !os.IsNotExist(err) {
		t.Errorf("%s is there again (%v)", v.Dir, err)
	}
	n.Adopt(v)
	if len(n.followed) > 0 {
		t.Error("a volume that is not set up is followed")
	}
}

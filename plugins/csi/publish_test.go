package csi

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

// paths returns those of a volume.
func (n *testNode) paths(v pod.CSIVolume) paths {
	return pathsOf(n.root, v.Dir, newRecord(&v, "node"))
}

// A driver that has certainly done nothing is not asked to undo it, and one that may have done
// something is.
func TestWhatAFailedCallMayHaveDoneIsUndone(t *testing.T) {
	for name, c := range map[string]struct {
		can   []csipb.NodeServiceCapability_RPC_Type
		fails string
		code  codes.Code
		// leaves is what is at the path of the call afterwards: "directory", "file", or "" for
		// nothing.
		leaves string
		want   []string
	}{
		"staging, rejected":                         {[]csipb.NodeServiceCapability_RPC_Type{stages}, "NodeStageVolume", codes.InvalidArgument, "", []string{"Stage"}},
		"staging, rejected, with something left":    {[]csipb.NodeServiceCapability_RPC_Type{stages}, "NodeStageVolume", codes.InvalidArgument, "file", []string{"Stage", "Unstage"}},
		"staging, unknown":                          {[]csipb.NodeServiceCapability_RPC_Type{stages}, "NodeStageVolume", codes.DeadlineExceeded, "", []string{"Stage", "Unstage"}},
		"publishing, rejected":                      {nil, "NodePublishVolume", codes.InvalidArgument, "", []string{"Publish"}},
		"publishing, rejected, with a directory":    {nil, "NodePublishVolume", codes.InvalidArgument, "directory", []string{"Publish"}},
		"publishing, rejected, with something left": {nil, "NodePublishVolume", codes.InvalidArgument, "file", []string{"Publish", "Unpublish"}},
		"publishing, unknown":                       {nil, "NodePublishVolume", codes.Aborted, "", []string{"Publish", "Unpublish"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := withDriver(t, c.can...)
			v := n.persistent("a", driverName, "h")
			path, undo := n.Path(v), "NodeUnpublishVolume"
			if c.fails == "NodeStageVolume" {
				path, undo = n.paths(v).staging, "NodeUnstageVolume"
			}
			f.on(c.fails, func(context.Context) error {
				if c.leaves != "" {
					if err := os.MkdirAll(path, 0o755); err != nil {
						return err
					}
				}
				if c.leaves == "file" {
					if err := os.WriteFile(filepath.Join(path, "left"), nil, 0o600); err != nil {
						return err
					}
				}
				return status.Error(c.code, "no")
			})
			f.on(undo, func(context.Context) error { return os.RemoveAll(filepath.Join(path, "left")) })
			want := "kubernetes.io/csi: " + c.fails + ": rpc error: code = " + c.code.String() + " desc = no"
			if _, err := n.SetUp(t.Context(), v); err == nil || err.Error() != want {
				t.Errorf("got %v, want %q", err, want)
			}
			n.mustTearDown(v)
			wantCalls(t, f, c.want...)
		})
	}
}

// jam makes it impossible to write the record in a directory, as on a full disk, until free
// is called.
func jam(dir string) (free func() error, err error) {
	half := filepath.Join(dir, recordFile+".new") // of package atomicfile
	return func() error { return os.RemoveAll(half) }, os.MkdirAll(filepath.Join(half, "x"), 0o750)
}

// The driver is not called before podd has recorded that, and what it was called for is undone.
func TestARecordThatCannotBeWrittenFailsTheSetup(t *testing.T) {
	for name, c := range map[string]struct {
		during string // a call; "" for before the first
		staged bool   // the record of the staged volume
		want   []string
		undone []string
	}{
		"of the pod, first":                  {"", false, nil, nil},
		"of the pod, before it is published": {"NodeStageVolume", false, []string{"Stage"}, []string{"Unstage"}},
		"of the pod, published":              {"NodePublishVolume", false, []string{"Stage", "Publish"}, []string{"Unpublish", "Unstage"}},
		"of the staged volume, first":        {"", true, nil, nil},
		"of the staged volume, staged":       {"NodeStageVolume", true, []string{"Stage"}, []string{"Unstage"}},
		"of the staged volume, expanded":     {"NodeExpandVolume", true, []string{"Stage", "Publish", "Expand"}, []string{"Unpublish", "Unstage"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := withDriver(t, stages, expands)
			v := n.persistent("a", driverName, "h")
			v.Persistent.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
			dir := v.Dir
			if c.staged {
				dir = n.paths(v).stagingRecordDir
			}
			var free func() error
			fill := func(context.Context) (err error) {
				free, err = jam(dir)
				return err
			}
			if c.during == "" {
				if err := fill(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				f.on(c.during, fill)
			}
			if _, err := n.SetUp(t.Context(), v); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, recordFile)) {
				t.Errorf("got %v, want that %s/%s cannot be written", err, dir, recordFile)
			}
			wantCalls(t, f, c.want...)
			if err := free(); err != nil {
				t.Fatal(err)
			}
			if err := n.TearDown(t.Context(), v.Dir); err != nil {
				t.Errorf("TearDown: %v", err)
			}
			wantCalls(t, f, slices.Concat(c.want, c.undone)...)
		})
	}
}

// Somebody has removed it: how large the volume is now could not be known later.
func TestAStagedVolumeThatLosesItsRecordIsNoSuccess(t *testing.T) {
	n, f := withDriver(t, stages, expands)
	v := n.persistent("a", driverName, "h")
	v.Persistent.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	record := filepath.Join(n.paths(v).stagingRecordDir, recordFile)
	f.on("NodeExpandVolume", func(context.Context) error { return os.Remove(record) })
	if _, err := n.SetUp(t.Context(), v); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), record) {
		t.Errorf("got %v, want that %s is missing", err, record)
	}
	wantCalls(t, f, "Stage", "Publish", "Expand")
}

// Whatever is in the way stays there, for somebody to look at.
func TestWhatIsInTheWayOfAVolumeIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		path func(paths) string
		text string
		want string
	}{
		"a file at the pod's directory":         {func(p paths) string { return p.dir }, "", "not a directory"},
		"a file where it is to be staged":       {func(p paths) string { return p.staging }, "", "not a directory"},
		"a broken record of the staged volume":  {func(p paths) string { return filepath.Join(p.stagingRecordDir, recordFile) }, "{", "does not say which volume it was"},
		"another's record of the staged volume": {func(p paths) string { return filepath.Join(p.stagingRecordDir, recordFile) }, `{"driverName": ".."}`, "driver name \"..\""},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := withDriver(t, stages)
			v := n.persistent("a", driverName, "h")
			path := c.path(n.paths(v))
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(c.text), 0o600)); err != nil {
				t.Fatal(err)
			}
			if _, err := n.SetUp(t.Context(), v); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q about %s", err, c.want, path)
			}
			wantCalls(t, f)
			if text, err := os.ReadFile(path); err != nil || string(text) != c.text {
				t.Errorf("%s has %q now (%v)", path, text, err)
			}
		})
	}
}

func TestWhichVolumesAreExpandedWithoutACluster(t *testing.T) {
	for name, c := range map[string]struct {
		can      []csipb.NodeServiceCapability_RPC_Type
		readOnly bool
		want     []string
	}{
		"of a driver that stages and expands": {[]csipb.NodeServiceCapability_RPC_Type{stages, expands}, false, []string{"Stage", "Publish", "Expand"}},
		"read-only":                           {[]csipb.NodeServiceCapability_RPC_Type{stages, expands}, true, []string{"Stage", "Publish"}},
		"of a driver that only expands":       {[]csipb.NodeServiceCapability_RPC_Type{expands}, false, []string{"Publish"}},
		"of a driver that only stages":        {[]csipb.NodeServiceCapability_RPC_Type{stages}, false, []string{"Stage", "Publish"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := withDriver(t, c.can...)
			v := n.persistent("a", driverName, "h")
			v.ReadOnly, v.Persistent.Spec.Capacity = c.readOnly, v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
			n.mustSetUp(v)
			wantCalls(t, f, c.want...)
		})
	}
}

func TestAnExpansionThatIsRejectedForGoodIsNotTriedAgain(t *testing.T) {
	for code, again := range map[codes.Code]bool{
		codes.InvalidArgument: false, codes.OutOfRange: false, codes.NotFound: false, codes.FailedPrecondition: false, codes.Unimplemented: false,
		codes.Internal: true, codes.Unavailable: true,
	} {
		n, f := withDriver(t, stages, expands)
		v := n.persistent("a", driverName, "h")
		v.Persistent.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
		f.on("NodeExpandVolume", func(context.Context) error { return status.Error(code, "no") })
		if _, err := n.SetUp(t.Context(), v); (err != nil) != again {
			t.Errorf("%v: got %v; want an error: %t", code, err, again)
		}
		f.on("NodeExpandVolume", nil)
		n.mustSetUp(v)
		want := []string{"Stage", "Publish", "Expand", "Publish"}
		if again {
			want = append(want, "Expand")
		}
		wantCalls(t, f, want...)
	}
}

// What is mounted is in use: also Stats are those of a published volume.
func TestAVolumeThatIsRejectedWhenItIsPublishedAgainIsStillPublished(t *testing.T) {
	n, f := withDriver(t, measures)
	f.stats = usageOf(someBytes)
	n.allow(driverName, func(s *storagev1.CSIDriverSpec) { yes := true; s.RequiresRepublish = &yes }, storagev1.VolumeLifecycleEphemeral)
	v := n.inline("a", driverName)
	n.mustSetUp(v)
	f.on("NodePublishVolume", func(context.Context) error { return status.Error(codes.InvalidArgument, "no") })
	if _, err := n.setUp(t.Context(), v, true); err == nil || !strings.Contains(err.Error(), "NodePublishVolume: rpc error: code = InvalidArgument") {
		t.Errorf("got %v", err)
	}
	if _, err := n.Stats(t.Context(), v.Dir); err != nil {
		t.Errorf("Stats: %v", err)
	}
	if _, err := os.Stat(n.Path(v)); errors.Is(err, fs.ErrNotExist) {
		t.Error("its target was removed")
	}
	// The driver may be publishing it still.
	f.on("NodePublishVolume", func(context.Context) error { return status.Error(codes.Unavailable, "away") })
	if _, err := n.setUp(t.Context(), v, true); err == nil || !strings.Contains(err.Error(), "NodePublishVolume: rpc error: code = Unavailable") {
		t.Errorf("got %v", err)
	}
	if _, err := n.Stats(t.Context(), v.Dir); err == nil || !strings.Contains(err.Error(), "not published") {
		t.Errorf("Stats while it is not known whether it is published: got %v", err)
	}
	n.mustTearDown(v)
}

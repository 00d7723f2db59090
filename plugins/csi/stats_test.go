package csi

import (
	"context"
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podd/internal/pod"
)

// published returns a node with a published volume, whose driver gives this response.
func published(t *testing.T, answer *csipb.NodeGetVolumeStatsResponse, can ...csipb.NodeServiceCapability_RPC_Type) (*testNode, *fake, pod.CSIVolume) {
	n, f := withDriver(t, can...)
	f.stats = answer
	v := n.persistent("a", driverName, "h")
	n.mustSetUp(v)
	return n, f, v
}

func usageOf(all ...*csipb.VolumeUsage) *csipb.NodeGetVolumeStatsResponse {
	return &csipb.NodeGetVolumeStatsResponse{Usage: all}
}

var (
	someBytes  = &csipb.VolumeUsage{Unit: csipb.VolumeUsage_BYTES, Available: 1, Total: 3, Used: 2}
	someInodes = &csipb.VolumeUsage{Unit: csipb.VolumeUsage_INODES, Available: 10, Total: 30, Used: 20}
)

// Responses are interpreted as upstream does.
func TestStatsAreTheDriversUsage(t *testing.T) {
	type capabilities = []csipb.NodeServiceCapability_RPC_Type
	inBytes := pod.VolumeStats{AvailableBytes: 1, CapacityBytes: 3, UsedBytes: 2}
	whole := inBytes
	whole.InodesFree, whole.Inodes, whole.InodesUsed = 10, 30, 20
	for name, c := range map[string]struct {
		answer *csipb.NodeGetVolumeStatsResponse
		can    capabilities
		want   pod.VolumeStats
		err    string
	}{
		"bytes and inodes":       {usageOf(someBytes, someInodes), capabilities{measures}, whole, ""},
		"bytes alone":            {usageOf(someBytes), capabilities{measures}, inBytes, ""},
		"an unknown unit":        {usageOf(someBytes, &csipb.VolumeUsage{Unit: 7, Total: 9}), capabilities{measures}, inBytes, ""},
		"nothing at all":         {usageOf(), capabilities{measures}, pod.VolumeStats{}, "kubernetes.io/csi: NodeGetVolumeStats: the driver's response has no usage"},
		"without the capability": {usageOf(someBytes), nil, pod.VolumeStats{}, pod.ErrNoStats.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			n, f, v := published(t, c.answer, c.can...)
			got, err := n.Stats(t.Context(), v.Dir)
			if c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
				t.Fatalf("got error %v, want %q", err, c.err)
			}
			if err == nil && !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if errors.Is(err, pod.ErrNoStats) {
				return
			}
			if q := last[*csipb.NodeGetVolumeStatsRequest](f); q.VolumeId != "h" || q.VolumePath != n.Path(v) {
				t.Errorf("asked %v", q)
			}
		})
	}
}

// The error must not be pod.ErrNoStats, after which the caller would use statfs.
func TestAnUnavailableDriverHasNoStats(t *testing.T) {
	n, f, v := published(t, usageOf(someBytes), measures)
	want := func(what, text string) {
		t.Helper()
		if _, err := n.Stats(t.Context(), v.Dir); err == nil || errors.Is(err, pod.ErrNoStats) || !strings.HasPrefix(err.Error(), "kubernetes.io/csi: "+text) {
			t.Errorf("%s: got %v, want %q", what, err, text)
		}
	}
	f.on("NodeGetVolumeStats", func(context.Context) error { return status.Error(codes.NotFound, "no such volume") })
	want("one that refuses", "NodeGetVolumeStats: rpc error: code = NotFound")
	f.on("NodeGetVolumeStats", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	n.timeout = 100 * time.Millisecond
	want("one that hangs", "NodeGetVolumeStats: rpc error: code = DeadlineExceeded")
	n.timeout = callTimeout
	f.on("NodeGetCapabilities", func(context.Context) error { return status.Error(codes.Internal, "starting") })
	want("one that cannot say what it can do", "NodeGetCapabilities: rpc error: code = Internal desc = starting")
	f.stop()
	eventually(t, "the driver is forgotten", func() bool { return len(n.Drivers()) == 0 })
	want("one that is gone", "driver name "+driverName+" not found in the list of registered CSI drivers")
}

func TestADriverIsNotAskedForStatsOfAnUnpublishedVolume(t *testing.T) {
	n, f := withDriver(t, measures)
	v := n.persistent("a", driverName, "h")
	if _, err := n.Stats(t.Context(), v.Dir); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, pod.ErrNoStats) {
		t.Errorf("a volume that was never set up: got %v", err)
	}
	f.on("NodePublishVolume", func(context.Context) error { return status.Error(codes.DeadlineExceeded, "later") })
	if _, err := n.SetUp(t.Context(), v); err == nil {
		t.Fatal("it was set up")
	}
	f.on("NodeGetVolumeStats", func(context.Context) error { t.Error("the driver was asked"); return nil })
	if _, err := n.Stats(t.Context(), v.Dir); err == nil || !strings.Contains(err.Error(), "not published") {
		t.Errorf("a volume that could not be published yet: got %v", err)
	}
}

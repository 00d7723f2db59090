package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/sys/mountinfo"

	"podd/server"
)

// TestAVolumeIsBoundToWhatIsMountedThereLast, or to its directory, or to nothing yet.
func TestAVolumeIsBoundToWhatIsMountedThereLast(t *testing.T) {
	podDir := t.TempDir()
	made := filepath.Join(podDir, "volumes/kubernetes.io~empty-dir/made")
	if err := os.MkdirAll(made, 0o755); err != nil {
		t.Fatal(err)
	}
	table := []*mountinfo.Info{
		{Mountpoint: "/mnt/nas", Source: "under", FSType: "ext4"}, {Mountpoint: "/mnt/nas", Source: "nas:/export", FSType: "nfs4"},
		{Mountpoint: filepath.Dir(made), Source: "above", FSType: "ext4"},
	}
	for path, want := range map[string]server.Volume{
		made:                                 {Name: "v", Path: made},
		filepath.Join(podDir, "volumes/x/y"): {Name: "v", Message: "not set up"},
		"/mnt/nas":                           {Name: "v", Path: "/mnt/nas", Source: "nas:/export", FSType: "nfs4"},
		"/not/there":                         {Name: "v", Path: "/not/there"},
	} {
		if got := describeVolume("v", path, podDir, table); got != want {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
}

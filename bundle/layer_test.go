package bundle

import (
	"testing"

	"github.com/containerd/containerd/api/types"
)

func TestTheWritableLayerIsWhereASnapshotIsWrittenTo(t *testing.T) {
	for name, tc := range map[string]struct {
		mounts []*types.Mount
		want   string
	}{
		"overlayfs":                  {[]*types.Mount{{Type: "overlay", Source: "overlay", Options: []string{"workdir=/s/7/work", "upperdir=/s/7/fs", "lowerdir=/s/1/fs"}}}, "/s/7/fs"},
		"overlayfs without an image": {[]*types.Mount{{Type: "bind", Source: "/s/7/fs", Options: []string{"rw", "rbind"}}}, "/s/7/fs"},
		"native":                     {[]*types.Mount{{Type: "bind", Source: "/n/7", Options: []string{"rbind", "rw"}}}, "/n/7"},
		"a view":                     {[]*types.Mount{{Type: "overlay", Options: []string{"lowerdir=/s/1/fs:/s/2/fs"}}}, ""},
		"a device":                   {[]*types.Mount{{Type: "ext4", Source: "/dev/mapper/x"}}, ""},
		"nothing":                    {nil, ""},
	} {
		if got := writableDir(tc.mounts); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

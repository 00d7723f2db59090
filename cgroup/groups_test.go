package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"podd/internal/pod"
)

// TestGroupsAreListedFromTheTop, in the names of each driver and runtime.
func TestGroupsAreListedFromTheTop(t *testing.T) {
	const slice = "/p.slice/p-kubepods.slice"
	for driver, tt := range map[Driver]struct {
		dirs []string
		want []Group
	}{
		Cgroupfs: {
			[]string{"p/kubepods/pod1/abc", "p/kubepods/burstable/pod2-x/abd/inner", "p/kubepods/burstable/other", "elsewhere/pod9/x"},
			[]Group{
				{Path: "/p/kubepods"}, {Path: "/p/kubepods/pod1", Pod: "1"}, {"/p/kubepods/pod1/abc", "1", "abc"},
				{Path: "/p/kubepods/burstable"}, {Path: "/p/kubepods/burstable/pod2-x", Pod: "2-x"}, {"/p/kubepods/burstable/pod2-x/abd", "2-x", "abd"},
			},
		},
		Systemd: {
			[]string{
				slice + "/p-kubepods-pod1_a.slice/cri-containerd-abc.scope", slice + "/p-kubepods-pod1_a.slice/crio-conmon-abd.scope",
				slice + "/p-kubepods-besteffort.slice/p-kubepods-besteffort-pod2.slice/crio-abd.scope/container",
			},
			[]Group{
				{Path: slice}, {Path: slice + "/p-kubepods-pod1_a.slice", Pod: "1_a"},
				{slice + "/p-kubepods-pod1_a.slice/cri-containerd-abc.scope", "1_a", "abc"},
				{Path: slice + "/p-kubepods-besteffort.slice"}, {Path: slice + "/p-kubepods-besteffort.slice/p-kubepods-besteffort-pod2.slice", Pod: "2"},
				{slice + "/p-kubepods-besteffort.slice/p-kubepods-besteffort-pod2.slice/crio-abd.scope", "2", "abd"},
			},
		},
	} {
		t.Run(string(driver), func(t *testing.T) {
			mount := t.TempDir()
			for _, dir := range tt.dirs {
				if err := os.MkdirAll(filepath.Join(mount, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			tree := NewTree(Facts{Version: V2, Controllers: map[string]string{"memory": mount}}, driver, "/p/kubepods", Settings{})
			if got := tree.Groups(); !slices.Equal(got, tt.want) {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
			if got := tree.RootPath(); got != tt.want[0].Path {
				t.Errorf("root: got %s", got)
			}
			if !Matches("1_a", pod.UID("1-a")) {
				t.Error("UIDs of slices do not match")
			}
		})
	}
}

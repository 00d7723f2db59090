package spec

import (
	"testing"

	"podd/internal/pod"
)

func TestDevicesHaveUpstreamsPermissions(t *testing.T) {
	got := devices(pod.ContainerRequest{Devices: []pod.Device{
		{HostPath: "/dev/loop0", ContainerPath: "/dev/xvda"}, {HostPath: "/dev/sdb", ContainerPath: "/dev/xvdb", ReadOnly: true},
	}})
	if len(got) != 2 || got[0].HostPath != "/dev/loop0" || got[0].ContainerPath != "/dev/xvda" || got[0].Permissions != "mrw" || got[1].Permissions != "r" {
		t.Errorf("got %v", got)
	}
	if got := devices(pod.ContainerRequest{}); got != nil {
		t.Errorf("got %v", got)
	}
}

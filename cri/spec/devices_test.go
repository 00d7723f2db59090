package spec

import (
	"testing"

	v1 "k8s.io/api/core/v1"

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

// What a device plugin wants is given to the runtime, but for annotations by which podd
// recognises its own.
func TestWhatDevicePluginsWantReachesTheRuntime(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	req := pod.ContainerRequest{
		Pod: p, Container: &p.Spec.Containers[0], CDI: []string{"example.com/gpu=a"},
		Devices: []pod.Device{{HostPath: "/dev/null", ContainerPath: "/dev/gpu0", Permissions: "rw"}},
		Annotations: map[string]string{
			"example.com/gpu": "a", "podd/instance": "another", "podd/kept": "x", "io.kubernetes.container.hash": "x", "kubernetes.io/config.source": "api",
		},
	}
	req.SandboxInputs.UserNamespace = nil
	c, err := Container(Options{Instance: "own"}.WithDefaults(), req)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.CDIDevices) != 1 || c.CDIDevices[0].Name != "example.com/gpu=a" || len(c.Devices) != 1 || c.Devices[0].Permissions != "rw" {
		t.Errorf("got %v, %v", c.CDIDevices, c.Devices)
	}
	for key, want := range map[string]string{"example.com/gpu": "a", "podd/instance": "own", "podd/kept": "", "kubernetes.io/config.source": ""} {
		if got := c.Annotations[key]; got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
	if c.Annotations["io.kubernetes.container.hash"] == "x" {
		t.Error("the hash is the plugin's")
	}
}

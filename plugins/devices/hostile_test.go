package devices

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/checkpoint"
)

func TestWhoMayNotRegister(t *testing.T) {
	r := served(t, "")
	r.serve(newFake("a"), "gpu.sock")
	outside := filepath.Join(r.root, "outside.sock")
	l, err := net.Listen("unix", outside)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, target := range map[string]string{"link": outside, "up": r.root} {
		if err := os.Symlink(target, filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ version, resource, endpoint, want string }{
		"another version":           {"v1alpha", gpu, "gpu.sock", `requested API version "[v1alpha]" is not supported by kubelet. Supported version is ["v1beta1"]`},
		"no domain":                 {"v1beta1", "gpu", "gpu.sock", `the ResourceName "gpu" is invalid`},
		"Kubernetes' own":           {"v1beta1", "kubernetes.io/gpu", "gpu.sock", "is invalid"},
		"a quota":                   {"v1beta1", "requests.example.com/gpu", "gpu.sock", "is invalid"},
		"slashes":                   {"v1beta1", "example.com/../../gpu", "gpu.sock", "is invalid"},
		"long":                      {"v1beta1", "example.com/" + strings.Repeat("x", 60000), "gpu.sock", "is invalid"},
		"a path that leads out":     {"v1beta1", gpu, "../outside.sock", "is not the name of a socket in"},
		"an absolute path":          {"v1beta1", gpu, outside, "is not the name of a socket in"},
		"a link that leads out":     {"v1beta1", gpu, "link", "escapes"},
		"a directory that does":     {"v1beta1", gpu, "up/outside.sock", "escapes"},
		"no socket":                 {"v1beta1", gpu, "file", "is no socket"},
		"nothing":                   {"v1beta1", gpu, "nothing", "no such file"},
		"an empty name":             {"v1beta1", gpu, "", "is not the name of a socket in"},
		"a request without a limit": {"v1beta1", gpu, strings.Repeat("x", 100000), "larger than max"},
	} {
		err := r.register(&pluginapi.RegisterRequest{Version: tc.version, ResourceName: tc.resource, Endpoint: tc.endpoint})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %.300v, want %q", name, err, tc.want)
		}
	}
	if len(r.resources) > 0 {
		t.Errorf("got %v", r.resources)
	}
	r.registerAs(gpu, "gpu.sock")
}

func TestTheNumberOfResourcesIsBounded(t *testing.T) {
	r := newRig(t, t.TempDir())
	for i := range maxResources {
		r.plug(fmt.Sprintf("example.com/gpu%d", i), newFake())
	}
	if err := r.addPlugin("example.com/more", &plugin{}); err == nil || err.Error() != "there are 256 resources of device plugins, which is the most" {
		t.Errorf("another one: got %v", err)
	}
	r.resources["example.com/gpu7"].gone = true
	if err := r.addPlugin("example.com/more", &plugin{}); err != nil || len(r.resources) != maxResources {
		t.Errorf("one is gone: got %v, %d", err, len(r.resources))
	}
}

// What the node's own files are is nobody's to remove.
func TestOnlyOldSocketsAreRemoved(t *testing.T) {
	r := newRig(t, "")
	if err := os.MkdirAll(filepath.Join(r.dir, "sub"), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"old.sock", "sub/deep.sock", "../outside.sock"} {
		l, err := net.Listen("unix", filepath.Join(r.dir, path))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	if err := errors.Join(os.WriteFile(filepath.Join(r.dir, "kubelet_internal_checkpoint"), nil, 0o600),
		os.Symlink("../outside.sock", filepath.Join(r.dir, "link"))); err != nil {
		t.Fatal(err)
	}
	r.removeSockets()
	for path, stays := range map[string]bool{"old.sock": false, "sub/deep.sock": true, "../outside.sock": true, "link": true, "kubelet_internal_checkpoint": true} {
		if _, err := os.Lstat(filepath.Join(r.dir, path)); (err == nil) != stays {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got := r.logged.String(); got != "" {
		t.Errorf("nothing has failed, and the log has %s", got)
	}
}

// Somebody removes the directory while podd runs: a plugin that registers must hear of it.
func TestWithoutItsDirectoryThereIsNoEndpoint(t *testing.T) {
	r := newRig(t, "")
	if at, err := r.socketPath("gpu.sock"); at != "" || err == nil || !strings.Contains(err.Error(), r.dir) {
		t.Errorf("got %q, %v; want an error that names %s", at, err, r.dir)
	}
}

func TestWhatAPluginMayNotWantOfAContainer(t *testing.T) {
	for name, tc := range map[string]struct {
		response *pluginapi.ContainerAllocateResponse
		want     string
	}{
		"nothing":             {&pluginapi.ContainerAllocateResponse{}, ""},
		"a variable":          {&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"A": "b=c"}}, ""},
		"an empty variable":   {&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"A": ""}}, ""},
		"no name":             {&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"": "b"}}, `"" is no environment variable`},
		"a name with =":       {&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"A=B": "b"}}, `"A=B" is no environment variable`},
		"NUL":                 {&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"A": "b\x00c"}}, `"A" is no environment variable`},
		"a device":            {&pluginapi.ContainerAllocateResponse{Devices: []*pluginapi.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/x", Permissions: "mrw"}}}, ""},
		"a relative device":   {&pluginapi.ContainerAllocateResponse{Devices: []*pluginapi.DeviceSpec{{HostPath: "dev/null", ContainerPath: "/dev/x"}}}, `the device "dev/null" is no absolute path`},
		"its place":           {&pluginapi.ContainerAllocateResponse{Devices: []*pluginapi.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "x"}}}, `the place of a device "x" is no absolute path`},
		"permissions":         {&pluginapi.ContainerAllocateResponse{Devices: []*pluginapi.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/x", Permissions: "rx"}}}, `the permissions "rx" of device /dev/null are none of r, w and m`},
		"a relative mount":    {&pluginapi.ContainerAllocateResponse{Mounts: []*pluginapi.Mount{{HostPath: "../etc", ContainerPath: "/x"}}}, `the mount "../etc" is no absolute path`},
		"a mount on a NUL":    {&pluginapi.ContainerAllocateResponse{Mounts: []*pluginapi.Mount{{HostPath: "/etc", ContainerPath: "/x\x00"}}}, `the place of a mount "/x\x00" is no absolute path`},
		"a mount":             {&pluginapi.ContainerAllocateResponse{Mounts: []*pluginapi.Mount{{HostPath: "/etc", ContainerPath: "/x"}}}, ""},
		"the second one only": {&pluginapi.ContainerAllocateResponse{Mounts: []*pluginapi.Mount{{HostPath: "/etc", ContainerPath: "/x"}, {HostPath: "/etc", ContainerPath: "y"}}}, `the place of a mount "y" is no absolute path`},
	} {
		text := ""
		if err := checkResponse(tc.response); err != nil {
			text = err.Error()
		}
		if text != tc.want {
			t.Errorf("%s: got %q, want %q", name, text, tc.want)
		}
	}
}

// A response or a list without a limit ends the call, not podd.
func TestWhatPluginsSendIsBounded(t *testing.T) {
	r := served(t, "")
	f := newFake("a")
	f.respond = func(context.Context, []string) (*pluginapi.ContainerAllocateResponse, error) {
		return &pluginapi.ContainerAllocateResponse{Envs: map[string]string{"A": strings.Repeat("x", maxResponse)}}, nil
	}
	r.serve(f, "gpu.sock")
	r.registerAs(gpu, "gpu.sock")
	r.eventually("it is listed", func() bool { all, _ := r.amount(gpu); return all == 1 })
	p := aPod("p", gpu, "1")
	var err error
	r.eventually("it is refused", func() bool { _, err = r.Admit(p); return err != nil })
	if !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("got %v", err)
	}
	var ids []string
	for i := range 10000 {
		ids = append(ids, fmt.Sprintf("%0*d", maxDeviceID, i))
	}
	f.lists <- healthy(ids...)
	r.eventually("the plugin is dropped", func() bool { _, usable := r.amount(gpu); return usable == 0 })
}

func TestADamagedCheckpointIsSaid(t *testing.T) {
	r := newRig(t, t.TempDir())
	r.plug(gpu, newFake())
	o := &podDevices{containers: map[string]map[string]*grant{"c": {gpu: {ids: []string{"a"}, response: &pluginapi.ContainerAllocateResponse{}}}}}
	r.Manager.pods["uid-p"], r.resources[gpu].everRegistered = o, true
	r.save()
	whole, err := os.ReadFile(r.checkpoint.Path)
	if err != nil {
		t.Fatal(err)
	}
	later, err := checkpoint.Checksummed.Encode(checkpointData{Version: 2})
	if err != nil {
		t.Fatal(err)
	}
	if next := newRig(t, r.root); next.Health("uid-p") == nil || len(next.Problems()) > 0 || next.resources[gpu] == nil {
		t.Errorf("a whole one: got %v, %v", next.Manager.pods, next.Problems())
	}
	for name, content := range map[string]string{
		"cut off": string(whole[:len(whole)-10]), "empty": "", "another device": strings.Replace(string(whole), `"a"`, `"b"`, 1),
		"of a later version": string(later),
	} {
		if err := os.WriteFile(r.checkpoint.Path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		next := newRig(t, r.root)
		if len(next.Manager.pods) > 0 || len(next.Problems()) != 1 {
			t.Errorf("%s: got %v, %v", name, next.Manager.pods, next.Problems())
		}
		next.saveIfNeeded() // as soon as Run runs
		if last := newRig(t, r.root); last.ShouldResetExtendedResourceCapacity() {
			t.Errorf("%s: the podd after it takes itself for the first one", name)
		}
		if kept, err := os.ReadFile(r.checkpoint.Path + ".broken"); err != nil || string(kept) != content {
			t.Errorf("%s: kept is %q, %v", name, kept, err)
		}
	}
}

// It is there to be copied: podd must not overwrite it before a pod gets a device.
func TestADamagedCheckpointThatCannotBeSetAsideStays(t *testing.T) {
	r := newRig(t, "")
	if err := os.WriteFile(r.checkpoint.Path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(r.checkpoint.Path+".broken", 0o700); err != nil { // in the way
		t.Fatal(err)
	}
	next := newRig(t, r.root)
	if all := next.Problems(); len(all) != 1 || !strings.Contains(all[0].Hint, "copy "+r.checkpoint.Path+" before podd overwrites it") || !strings.Contains(all[0].Message, "rename "+r.checkpoint.Path) || next.ShouldResetExtendedResourceCapacity() {
		t.Errorf("got %v", all)
	}
	next.saveIfNeeded()
	if content, err := os.ReadFile(r.checkpoint.Path); err != nil || string(content) != "damaged" {
		t.Errorf("got %q, %v", content, err)
	}
}

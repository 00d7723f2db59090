package cri_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/cri/critest"
	"podd/test/e2e/testnode"
)

// TestRecordTheKubelet writes the recordings anew when KUBELET names upstream's
// binary. It needs root, and leaves no cgroup, mount or link behind.
func TestRecordTheKubelet(t *testing.T) {
	binary := os.Getenv("KUBELET")
	if binary == "" {
		t.Skip("KUBELET does not name upstream's kubelet")
	}
	srv := critest.New(t)
	imagesOfBoth(srv)
	k := startKubelet(t, binary, srv.Endpoint())
	files, err := filepath.Glob(filepath.Join(kubeletData, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(k.Manifests(), filepath.Base(file)), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	where, pods := recordedMachine(t, k, srv, len(files))
	writeJSON(t, filepath.Join(kubeletData, "machine.json"), where)
	for _, p := range pods {
		var ip string
		for _, s := range srv.Sandboxes() {
			if s.UID == string(p.UID) {
				ip = s.IP
			}
		}
		if ip == "" { // on the node's network
			ip = where.NodeIP
		}
		out := recordedOf(t, srv, &p, ip, places{k.Root(), k.PodLogs(), k.Place.CgroupRoot}, where)
		if len(out.Containers) != len(containersOf(&p)) {
			t.Errorf("%s: %d containers were made: %s %s", p.Name, len(out.Containers), p.Status.Reason, p.Status.Message)
			for _, c := range p.Status.ContainerStatuses {
				if w := c.State.Waiting; w != nil {
					t.Errorf("%s: %s: %s", c.Name, w.Reason, w.Message)
				}
			}
			continue
		}
		writeJSON(t, filepath.Join(kubeletData, strings.TrimSuffix(p.Name, "-node")+".json"), out)
	}
}

// startKubelet runs upstream's binary in a place of its own, which is swept at
// the end: mounts, cgroups, links to logs.
func startKubelet(t *testing.T, binary, endpoint string) *testnode.Kubelet {
	t.Helper()
	place, err := testnode.Claim(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(place.Sweep(), place.Release()); err != nil {
			t.Error(err)
		}
	})
	k := testnode.NewKubelet(place, endpoint, binary)
	resolvConf := filepath.Join(place.Dir, "resolv.conf")
	if err := errors.Join(os.MkdirAll(place.Dir, 0o755), os.WriteFile(resolvConf, []byte(resolvConfOfBoth), 0o644)); err != nil {
		t.Fatal(err)
	}
	k.Config = map[string]any{
		"resolvConf": resolvConf, "clusterDNS": []string{"192.0.2.10"}, "clusterDomain": "cluster.local",
		"localStorageCapacityIsolation": false,
	}
	k.Args = []string{"--hostname-override", "node", "--v", "2"}
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(k.LogTail(1 << 20))
		}
	})
	return k
}

// recordedMachine waits until every container was made, and says where that was
// and which pods there are.
func recordedMachine(t *testing.T, k *testnode.Kubelet, srv *critest.Server, pods int) (machine, []v1.Pod) {
	t.Helper()
	for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		made, want := len(srv.Containers()), 0
		list, err := k.Pods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := machine{CPUs: int64(runtime.NumCPU())}
		for _, p := range list {
			want += len(containersOf(&p))
		}
		if len(list) == pods && made >= want || time.Now().After(deadline) {
			text, err := os.ReadFile("/proc/meminfo")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &out.Memory); err != nil {
				t.Fatal(err)
			}
			out.Memory <<= 10
			for _, c := range srv.Containers() {
				for _, h := range c.Config.Linux.Resources.HugepageLimits {
					if !slices.Contains(out.HugePageSizes, h.PageSize) {
						out.HugePageSizes = append(out.HugePageSizes, h.PageSize)
					}
				}
				for _, e := range c.Config.Envs {
					if e.Key == "HOST_IP" { // the status does not say without an apiserver
						out.NodeIP = string(e.Value)
					}
				}
				out.CgroupV2 = out.CgroupV2 || len(c.Config.Linux.Resources.Unified) > 0
			}
			t.Logf("%d of %d containers of %d of %d pods", made, want, len(list), pods)
			return out, list
		}
	}
}

func writeJSON(t *testing.T, file string, v any) {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

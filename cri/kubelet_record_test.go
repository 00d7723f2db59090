package cri_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"podd/cri/critest"
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
	k := &recordedKubelet{dir: t.TempDir(), port: 38250}
	k.start(t, binary, srv.Endpoint())
	files, err := filepath.Glob(filepath.Join(kubeletData, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(k.dir, "manifests", filepath.Base(file)), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	where := k.machine(t, srv, len(files))
	writeJSON(t, filepath.Join(kubeletData, "machine.json"), where)
	for _, p := range k.pods(t) {
		var ip string
		for _, s := range srv.Sandboxes() {
			if s.UID == string(p.UID) {
				ip = s.IP
			}
		}
		if ip == "" { // on the node's network
			ip = where.NodeIP
		}
		out := recordedOf(t, srv, &p, ip, places{filepath.Join(k.dir, "root"), filepath.Join(k.dir, "logs"), "/podd-oracle"}, where)
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

type recordedKubelet struct {
	dir  string
	port int
}

func (k *recordedKubelet) config(endpoint string) map[string]any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupRoot": "/podd-oracle",
		"oomScoreAdj": 0, "failSwapOn": false, "enforceNodeAllocatable": []string{},
		"staticPodPath": filepath.Join(k.dir, "manifests"), "podLogsDir": filepath.Join(k.dir, "logs"),
		"resolvConf": filepath.Join(k.dir, "resolv.conf"), "clusterDNS": []string{"192.0.2.10"}, "clusterDomain": "cluster.local",
		"containerRuntimeEndpoint": endpoint,
		"authentication":           map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":            map[string]any{"mode": "AlwaysAllow"},
		"address":                  "127.0.0.1", "healthzBindAddress": "127.0.0.1",
		"port": k.port, "readOnlyPort": k.port + 1, "healthzPort": k.port + 2,
		"evictionHard": map[string]string{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%", "pid.available": "0%",
		},
		"imageGCHighThresholdPercent": 100, "localStorageCapacityIsolation": false, "makeIPTablesUtilChains": false,
	}
}

func (k *recordedKubelet) start(t *testing.T, binary, endpoint string) {
	t.Helper()
	text, err := yaml.Marshal(k.config(endpoint))
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"manifests/.keep": "", "config.yaml": string(text), "resolv.conf": resolvConfOfBoth} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(k.dir, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(k.dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range oracleCgroups(t) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		prepareCPUSet(t, dir)
	}
	log, err := os.Create(filepath.Join(k.dir, "kubelet.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--config", filepath.Join(k.dir, "config.yaml"), "--root-dir", filepath.Join(k.dir, "root"),
		"--cert-dir", filepath.Join(k.dir, "certs"), "--hostname-override", "node", "--v", "2")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s", text)
		}
		k.cleanUp(t)
	})
}

// cleanUp takes away what the kubelet leaves: mounts, cgroups, links to logs.
func (k *recordedKubelet) cleanUp(t *testing.T) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	lines := strings.Split(string(table), "\n")
	slices.Reverse(lines)
	for _, line := range lines {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], k.dir+"/") {
			if err := unix.Unmount(f[4], 0); err != nil {
				t.Errorf("unmount %s: %v", f[4], err)
			}
		}
	}
	for _, root := range oracleCgroups(t) {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		slices.Reverse(dirs)
		for _, dir := range dirs {
			if err := unix.Rmdir(dir); err != nil {
				t.Errorf("remove cgroup %s: %v", dir, err)
			}
		}
	}
	links, _ := filepath.Glob("/var/log/containers/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, k.dir+"/") {
			_ = os.Remove(link)
		}
	}
}

// oracleCgroups are /podd-oracle in each hierarchy.
func oracleCgroups(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup/podd-oracle"}
	}
	all, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	seen := map[string]bool{}
	for _, f := range all {
		dir, err := filepath.EvalSymlinks(filepath.Dir(f))
		if err == nil && !seen[dir] {
			seen[dir] = true
			out = append(out, filepath.Join(dir, "podd-oracle"))
		}
	}
	return out
}

// prepareCPUSet: a cpuset of cgroup v1 is empty at first.
func prepareCPUSet(t *testing.T, dir string) {
	t.Helper()
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), f))
		if err != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, f), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// machine waits until every container was made, and says where that was.
func (k *recordedKubelet) machine(t *testing.T, srv *critest.Server, pods int) machine {
	t.Helper()
	for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		made, want := len(srv.Containers()), 0
		list := k.pods(t)
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
			return out
		}
	}
}

// pods are none while the kubelet does not answer.
func (k *recordedKubelet) pods(t *testing.T) []v1.Pod {
	t.Helper()
	r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/pods", k.port+1))
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	var list v1.PodList
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return list.Items
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

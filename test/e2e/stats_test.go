package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/cgroup"
	"podd/test/e2e/testnode"
)

// mixin are the series that the rules, alerts and dashboards of kubernetes-mixin (release
// 1.3: rules/apps.libsonnet, rules/k8s_*.libsonnet, alerts/resource_alerts.libsonnet,
// dashboards/resources/*.libsonnet, dashboards/network-usage/*.libsonnet) take from the
// jobs "cadvisor" and "kubelet" about what pods use.
var mixin = strings.Fields(`
	container_cpu_usage_seconds_total container_cpu_cfs_periods_total container_cpu_cfs_throttled_periods_total
	container_memory_working_set_bytes container_memory_rss container_memory_cache container_memory_swap container_memory_usage_bytes
	container_network_receive_bytes_total container_network_transmit_bytes_total container_network_receive_packets_total
	container_network_transmit_packets_total container_network_receive_packets_dropped_total container_network_transmit_packets_dropped_total
	container_fs_reads_total container_fs_writes_total container_fs_reads_bytes_total container_fs_writes_bytes_total
	machine_cpu_cores machine_memory_bytes`)

// faces are the three answers, read one after the other.
type faces struct {
	summary            api.Summary
	resource, cadvisor map[string]*dto.MetricFamily
}

func (e *env) faces() faces {
	e.Helper()
	var f faces
	get := func(path string) []byte {
		body, err := testnode.GetLoopback(e.Context(), e.podd.ReadOnlyPort(), path)
		if err != nil {
			e.Fatal(err)
		}
		return body
	}
	if err := json.Unmarshal(get("/stats/summary"), &f.summary); err != nil {
		e.Fatal(err)
	}
	parse := func(path string) map[string]*dto.MetricFamily {
		p := expfmt.NewTextParser(model.LegacyValidation)
		all, err := p.TextToMetricFamilies(bytes.NewReader(get(path)))
		if err != nil {
			e.Fatalf("%s: %v", path, err)
		}
		return all
	}
	f.resource, f.cadvisor = parse("/metrics/resource"), parse("/metrics/cadvisor")
	return f
}

// series returns the one series of a family with these labels; -1 and an error if there is
// none, or more.
func (e *env) series(all map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	e.Helper()
	found := []float64{}
	for _, m := range all[name].GetMetric() {
		have := map[string]string{}
		for _, l := range m.Label {
			have[l.GetName()] = l.GetValue()
		}
		match := true
		for i := 0; i < len(labels); i += 2 {
			match = match && have[labels[i]] == labels[i+1]
		}
		if match {
			found = append(found, m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	if len(found) != 1 {
		e.Errorf("%s %v: got %d series, want one", name, labels, len(found))
		return -1
	}
	return found[0]
}

// rising fails unless each number is at least the one before.
func (e *env) rising(what string, numbers ...float64) {
	e.Helper()
	for i := 1; i < len(numbers); i++ {
		if numbers[i] < numbers[i-1] {
			e.Errorf("%s: got %v, want a counter, read in this order", what, numbers)
			return
		}
	}
}

// control reads a file of a container's cgroup, without podd.
func (e *env) control(p *v1.Pod, v1Controller, v1File, v2File string) float64 {
	e.Helper()
	facts, err := cgroup.Detect()
	if err != nil {
		e.Fatal(err)
	}
	controller, file := v1Controller, v1File
	if facts.Version == cgroup.V2 {
		controller, file = "memory", v2File
	}
	found, err := filepath.Glob(filepath.Join(facts.Controllers[controller], "*", "kubepods", "*", "pod"+string(p.UID), "*"+containerID(p, "main")+"*", file))
	if err != nil || len(found) != 1 {
		e.Fatalf("got %v, %v, want the container's %s", found, err, file)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		e.Fatal(err)
	}
	if _, usage, ok := strings.Cut(string(text), "usage_usec "); ok { // cpu.stat of v2
		line, _, _ := strings.Cut(usage, "\n")
		text = []byte(line + "000")
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil {
		e.Fatal(err)
	}
	return n
}

// received is what the container itself sees of its interface.
func (e *env) received(p *v1.Pod) float64 {
	e.Helper()
	_, line, _ := strings.Cut(e.exec(p, "main", "cat", "/proc/net/dev"), "eth0:")
	fields := strings.Fields(line)
	if len(fields) < 16 {
		e.Fatalf("got %q", line)
	}
	n, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		e.Fatal(err)
	}
	return n
}

// send writes n bytes to a port of a pod, and waits until the pod has read them.
func (e *env) send(p *v1.Pod, port string, n int64) {
	e.Helper()
	e.eventually("the pod takes a connection", func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(p.Status.PodIP, port))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.CopyN(conn, zeros{}, n); err != nil {
			return err
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, conn)
		return err
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

const (
	busyMemory  = 48 << 20
	busyTraffic = 8 << 20
)

// TestThreeFacesOfWhatAPodUses: a pod that burns CPU, holds a known amount of memory and is
// sent a known amount of bytes. The summary, the resource metrics and cAdvisor's agree with
// each other, and with the kernel's files, read without podd before and after.
func TestThreeFacesOfWhatAPodUses(t *testing.T) {
	e := begin(t)
	script := fmt.Sprintf("trap 'exit 0' TERM; dd if=/dev/zero of=/dev/shm/held bs=1M count=%d; nc -l -p 7007 > /dev/null; : > /out/sent; : > /out/busy-ready; while :; do :; done", busyMemory>>20)
	text := strings.Replace(e.podOf("busy", script), "    volumeMounts:", "    resources: {requests: {cpu: 50m}, limits: {cpu: 200m, memory: 192Mi}}\n    volumeMounts:", 1)
	e.write("busy.yaml", text)
	p := e.ready("busy")
	before := e.received(p)
	e.send(p, "7007", busyTraffic)
	e.mark("busy-ready")

	of := []string{"namespace", p.Namespace, "pod", p.Name, "container", "main"}
	pod := []string{"namespace", p.Namespace, "pod", p.Name}
	first := e.faces() // the point that a rate begins at
	cpu := e.control(p, "cpuacct", "cpuacct.usage", "cpu.stat")
	memory, heard, at := e.control(p, "memory", "memory.usage_in_bytes", "memory.current"), e.received(p), time.Now()
	f := e.faces()
	after, took := e.control(p, "cpuacct", "cpuacct.usage", "cpu.stat"), time.Since(at)

	if len(f.summary.Pods) != 1 || len(f.summary.Pods[0].Containers) != 1 {
		t.Fatalf("got %+v", f.summary.Pods)
	}
	s := f.summary.Pods[0]
	main := s.Containers[0]
	e.rising("CPU", cpu/1e9, float64(*main.CPU.UsageCoreNanoSeconds)/1e9, e.series(f.resource, "container_cpu_usage_seconds_total", of...),
		e.series(f.cadvisor, "container_cpu_usage_seconds_total", of...), after/1e9)
	e.rising("CPU of the pod, which has a sandbox, too", float64(*main.CPU.UsageCoreNanoSeconds), float64(*s.CPU.UsageCoreNanoSeconds))
	if earlier := first.summary.Pods[0].Containers[0].CPU; *earlier.UsageCoreNanoSeconds >= *main.CPU.UsageCoreNanoSeconds || main.CPU.UsageNanoCores == nil || *main.CPU.UsageNanoCores == 0 {
		t.Errorf("CPU: got %+v after %+v, from a loop", main.CPU, earlier)
	} else if rate := float64(*main.CPU.UsageNanoCores); rate > 0.4e9 {
		t.Errorf("a rate of %v cores, in %v, with a limit of 0.2", rate/1e9, took)
	}
	// The shared memory is neither mapped nor inactive file cache: it is in the working
	// set. What else a shell needs is less than a tenth of it.
	for name, got := range map[string]float64{
		"summary": float64(*main.Memory.WorkingSetBytes), "summary of the pod": float64(*s.Memory.WorkingSetBytes),
		"resource": e.series(f.resource, "container_memory_working_set_bytes", of...), "resource of the pod": e.series(f.resource, "pod_memory_working_set_bytes", pod...),
		"cadvisor": e.series(f.cadvisor, "container_memory_working_set_bytes", of...), "the kernel's file": memory,
	} {
		if got < busyMemory || got > busyMemory*1.3 {
			t.Errorf("%s: got %v bytes, want %d and a little", name, got, busyMemory)
		}
	}
	if got := *main.Memory.AvailableBytes + *main.Memory.WorkingSetBytes; got != 192<<20 {
		t.Errorf("available and used are %d, want the limit", got)
	}
	box := append(pod, "container", "", "interface", "eth0")
	net := []float64{before + busyTraffic, heard, float64(*s.Network.RxBytes), e.series(f.cadvisor, "container_network_receive_bytes_total", box...), e.received(p)}
	if e.rising("received", net...); s.Network.Name != "eth0" || net[3] > before+busyTraffic*1.2 {
		t.Errorf("received: got %v of %s", net, s.Network.Name)
	}
	if n := *s.ProcessStats.ProcessCount; n != 2 {
		t.Errorf("got %d processes, want the sandbox's and the shell", n)
	}
	e.restOf(f, of)
	top := strings.Fields(e.run("top", "pods", "--containers", "--no-headers"))
	if len(top) != 5 || top[1] != p.Name || top[2] != "main" || !strings.HasSuffix(top[3], "m") || top[3] == "0m" || top[4] < "48Mi" || top[4] > "62Mi" {
		t.Errorf("podd top: got %v", top)
	}
	if top := strings.Fields(e.run("top", "node", "--no-headers")); len(top) != 5 || top[0] != e.podd.NodeName() || !strings.HasSuffix(top[4], "%") {
		t.Errorf("podd top node: got %v", top)
	}
}

// restOf checks what is not compared with a control.
func (e *env) restOf(f faces, of []string) {
	e.Helper()
	for _, name := range mixin {
		if len(f.cadvisor[name].GetMetric()) == 0 && !(strings.HasPrefix(name, "container_fs_") && !e.hasDevices()) {
			e.Errorf("kubernetes-mixin needs %s", name)
		}
	}
	if n := e.series(f.cadvisor, "container_cpu_cfs_throttled_periods_total", of...); n == 0 {
		e.Error("a loop with a limit was never throttled")
	}
	if n := e.series(f.cadvisor, "container_spec_memory_limit_bytes", of...); n != 192<<20 {
		e.Errorf("limit: got %v", n)
	}
	if n := e.series(f.cadvisor, "container_spec_cpu_quota", of...) / e.series(f.cadvisor, "container_spec_cpu_period", of...); n != 0.2 {
		e.Errorf("quota: got %v cores", n)
	}
	image := ""
	for _, m := range f.cadvisor["container_last_seen"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["container"] == "main" {
			image = labels["image"]
		}
	}
	if image == "" {
		e.Error("the container has no image")
	}
	a, b := e.series(f.resource, "container_start_time_seconds", of...), e.series(f.cadvisor, "container_start_time_seconds", of...)
	if float64(int64(a)) != b {
		e.Errorf("started at %v and %v", a, b)
	}
	if e.series(f.resource, "resource_scrape_error") != 0 || e.series(f.cadvisor, "container_scrape_error") != 0 {
		e.Error("a scrape had errors")
	}
	n := f.summary.Node
	if n.CPU == nil || *n.CPU.UsageCoreNanoSeconds == 0 || n.Memory == nil || *n.Memory.WorkingSetBytes == 0 || n.Memory.AvailableBytes == nil || n.Swap == nil || n.Network == nil || *n.Rlimit.NumOfRunningProcesses == 0 {
		e.Errorf("node: got %+v", n)
	}
	system := map[string]bool{}
	for _, s := range n.SystemContainers {
		system[s.Name] = s.CPU != nil && s.Memory != nil && *s.CPU.UsageCoreNanoSeconds > 0 && *s.Memory.WorkingSetBytes > 0
	}
	if len(system) != 3 || !system[api.SystemContainerKubelet] || !system[api.SystemContainerRuntime] || !system[api.SystemContainerPods] {
		e.Errorf("system containers: got %v", system)
	}
}

// hasDevices says whether any process here has read or written a block device that the
// kernel counts.
func (e *env) hasDevices() bool {
	e.Helper()
	facts, err := cgroup.Detect()
	if err != nil {
		e.Fatal(err)
	}
	name := "blkio.throttle.io_service_bytes_recursive"
	controller := "blkio"
	if facts.Version == cgroup.V2 {
		name, controller = "io.stat", "io"
	}
	text, err := os.ReadFile(filepath.Join(facts.Controllers[controller], name))
	return err == nil && strings.Contains(string(text), ":")
}

// TestUsageOfAPodOfTheClusterComesThroughTheApiserver: as metrics-server and Prometheus ask
// for it, from the API that is authorized.
func TestUsageOfAPodOfTheClusterComesThroughTheApiserver(t *testing.T) {
	m := join(t)
	m.bind(m.resting("measured"))
	m.shown("measured", "ready", isReady)
	for path, want := range map[string]string{
		"metrics/resource":                       `pod_memory_working_set_bytes{namespace="default",pod="measured"} `,
		"metrics/cadvisor":                       `,namespace="default",pod="measured",cpu="total"} `,
		"stats/summary?only_cpu_and_memory=true": `"podRef":{"name":"measured","namespace":"default"`,
	} {
		got, err := m.server.Client().Raw(t.Context(), "/api/v1/nodes/"+m.podd.NodeName()+"/proxy/"+path)
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: got %.2000s, %v, want %s", path, got, err, want)
		}
	}
	m.delete("measured")
	m.gone("measured")
}

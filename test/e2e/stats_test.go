package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
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
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// control is a number that the kernel has of a cgroup: a file of v1's controller or of v2,
// and the line of it, where it has several.
type control struct{ controller, v1, v2, line string }

var (
	cpuTime    = control{"cpuacct", "cpuacct.usage", "cpu.stat", "usage_usec"} // in nanoseconds
	memoryUsed = control{"memory", "memory.usage_in_bytes", "memory.current", ""}
	throttled  = control{"cpu", "cpu.stat", "cpu.stat", "nr_throttled"}
)

// control reads a number of a pod's cgroup or, with container, of its container's, without
// podd.
func (e *env) control(p *v1.Pod, container bool, c control) float64 {
	e.Helper()
	facts, err := cgroup.Detect()
	if err != nil {
		e.Fatal(err)
	}
	controller, file := c.controller, c.v1
	if facts.Version == cgroup.V2 {
		controller, file = "memory", c.v2
	}
	if container {
		file = filepath.Join("*"+containerID(p, "main")+"*", file)
	}
	found, err := filepath.Glob(filepath.Join(facts.Controllers[controller], "*", "kubepods", "*", "pod"+string(p.UID), file))
	if err != nil || len(found) != 1 {
		e.Fatalf("got %v, %v, want one %s", found, err, file)
	}
	content, err := os.ReadFile(found[0])
	if err != nil {
		e.Fatal(err)
	}
	text, unit := string(content), 1.
	if c.line != "" {
		if _, rest, ok := strings.Cut(text, c.line+" "); ok {
			text, _, _ = strings.Cut(rest, "\n")
			if c.line == "usage_usec" {
				unit = 1000
			}
		}
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		e.Fatal(err)
	}
	return n * unit
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
	text := replaced(e, e.podOf("busy", script), "    volumeMounts:", "    resources: {requests: {cpu: 50m}, limits: {cpu: 200m, memory: 192Mi}}\n    volumeMounts:")
	written := e.write("busy.yaml", text)
	p := e.ready("busy")
	before, runs := e.received(p), time.Now()
	e.send(p, "7007", busyTraffic)
	e.mark("busy-ready")
	// Its pod has the same limit, and either may hold it back, once it gets that much of a
	// busy machine. Twice is a whole period, the shortest time that a rate is of.
	e.eventually("the loop is throttled twice", func(context.Context) error {
		if own, whole := e.control(p, true, throttled), e.control(p, false, throttled); max(own, whole) < 2 {
			return fmt.Errorf("it was throttled in %v periods, its pod in %v", own, whole)
		}
		return nil
	})

	// Who asks waits for the count of a fresh runtime's snapshots for a second at most.
	e.eventually("the runtime's snapshots have been counted", func(context.Context) error {
		if r := e.faces().summary.Node.Runtime; r == nil || r.ImageFs == nil || r.ImageFs.UsedBytes == nil || r.ContainerFs == nil || r.ContainerFs.UsedBytes == nil {
			return fmt.Errorf("got %s", asJSON(r))
		}
		return nil
	})
	of := []string{"namespace", p.Namespace, "pod", p.Name, "container", "main"}
	pod := []string{"namespace", p.Namespace, "pod", p.Name}
	start, begun := e.control(p, true, cpuTime), time.Now()
	first := e.faces() // the point that a rate begins at
	ended, cpu := time.Now(), e.control(p, true, cpuTime)
	held, heldWhole := e.control(p, true, throttled), e.control(p, false, throttled)
	memory, heard := e.control(p, true, memoryUsed), e.received(p)
	f := e.faces()
	after, afterWhole := e.control(p, true, cpuTime), e.control(p, false, cpuTime)

	for _, s := range []api.Summary{first.summary, f.summary} {
		if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 || s.Pods[0].Containers[0].CPU == nil {
			t.Fatalf("got %+v", s.Pods)
		}
	}
	s := f.summary.Pods[0]
	main := s.Containers[0]
	e.rising("CPU", cpu/1e9, float64(*main.CPU.UsageCoreNanoSeconds)/1e9, e.series(f.resource, "container_cpu_usage_seconds_total", of...),
		e.series(f.cadvisor, "container_cpu_usage_seconds_total", of...), after/1e9)
	// podd reads the pod's counter before the container's, which goes on in between: the
	// pod's is at least what the container had used before.
	e.rising("CPU of the pod, which has a sandbox, too", cpu, float64(*s.CPU.UsageCoreNanoSeconds), afterWhole)
	earlier := first.summary.Pods[0].Containers[0].CPU
	if *earlier.UsageCoreNanoSeconds >= *main.CPU.UsageCoreNanoSeconds || main.CPU.UsageNanoCores == nil || *main.CPU.UsageNanoCores == 0 {
		t.Errorf("CPU: got %+v after %+v, from a loop", main.CPU, earlier)
	}
	// The first rate is of the container's whole life: from when its cgroup was made, after
	// the manifest was written and before the container was seen running.
	if earlier.UsageNanoCores == nil {
		t.Errorf("CPU: got %+v, without a rate", earlier)
	} else {
		e.rising("rate since the container was created", start/1e9/ended.Sub(written).Seconds(), float64(*earlier.UsageNanoCores)/1e9, cpu/1e9/begun.Sub(runs).Seconds())
	}
	const periods = "container_cpu_cfs_throttled_periods_total"
	e.rising("throttled periods", held, e.series(f.cadvisor, periods, of...), e.control(p, true, throttled))
	e.rising("throttled periods of the pod", heldWhole, e.series(f.cadvisor, periods, append(pod, "container", "", "name", "")...), e.control(p, false, throttled))
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
	if e.rising("received", net...); s.Network.Name != "eth0" {
		t.Errorf("received: got %v of %s", net, s.Network.Name)
	}
	if n := *s.ProcessStats.ProcessCount; n != 2 {
		t.Errorf("got %d processes, want the sandbox's and the shell", n)
	}
	e.opened(p, f, of)
	e.restOf(f, of)
	top := strings.Fields(e.run("top", "pods", "--containers", "--no-headers"))
	if len(top) != 5 || top[1] != p.Name || top[2] != "main" || !strings.HasSuffix(top[3], "m") || top[3] == "0m" {
		t.Errorf("podd top: got %v", top)
	} else if held, err := resource.ParseQuantity(top[4]); err != nil || held.Value() < 48<<20 || held.Value() > 62<<20 {
		t.Errorf("podd top: got %v, %v", top, err)
	}
	if top := strings.Fields(e.run("top", "node", "--no-headers")); len(top) != 5 || top[0] != e.podd.NodeName() || !strings.HasSuffix(top[4], "%") {
		t.Errorf("podd top node: got %v", top)
	}
}

// opened compares what the shell has open, and may have, with what it sees of itself.
func (e *env) opened(p *v1.Pod, f faces, of []string) {
	e.Helper()
	fields := strings.Fields(e.exec(p, "main", "sh", "-c", "ls /proc/1/fd | wc -l; ls -l /proc/1/fd | grep -c socket; grep 'open files' /proc/1/limits | awk '{print $4}'"))
	if len(fields) != 3 {
		e.Fatalf("got %q, want three numbers", fields)
	}
	for i, name := range []string{"container_file_descriptors", "container_sockets", "container_ulimits_soft"} {
		if want, err := strconv.ParseFloat(fields[i], 64); err != nil || e.series(f.cadvisor, name, of...) != want {
			e.Errorf("%s: want %v, which the container sees, %v", name, fields[i], err)
		}
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
	if r := n.Runtime; r == nil || r.ImageFs == nil || r.ContainerFs == nil || *r.ImageFs.CapacityBytes != *n.Fs.CapacityBytes || *r.ContainerFs.Inodes != *n.Fs.Inodes {
		e.Errorf("file systems of the runtime: got %s, want those of pods, %s", asJSON(r), asJSON(n.Fs))
	} else {
		for name, fs := range map[string]*api.FsStats{"imageFs": r.ImageFs, "containerFs": r.ContainerFs} {
			if fs.UsedBytes == nil || *fs.UsedBytes == 0 || *fs.UsedBytes > *n.Fs.UsedBytes || fs.InodesUsed == nil || *fs.InodesUsed == 0 || time.Since(fs.Time.Time) > 5*time.Minute {
				e.Errorf("%s: got %s, want what images use of the %d bytes that are used", name, asJSON(fs), *n.Fs.UsedBytes)
			}
		}
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

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// openings watches over the files of a pod's cgroups, and returns how many of them somebody has
// opened since the last call.
func (e *env) openings(p *v1.Pod) func() (names []string) {
	e.Helper()
	facts, err := cgroup.Detect()
	if err != nil {
		e.Fatal(err)
	}
	pod := filepath.Join(facts.Controllers["memory"], "*", "kubepods", "*", "pod"+string(p.UID))
	dirs, err := filepath.Glob(filepath.Join(pod, "*"+containerID(p, "main")+"*"))
	own, _ := filepath.Glob(pod) // the same pattern as above
	if err != nil || len(dirs) != 1 || len(own) != 1 {
		e.Fatalf("got %v, %v, %v, want the container's cgroup and the pod's", dirs, own, err)
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = unix.Close(fd) })
	for _, dir := range append(dirs, own...) {
		if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN); err != nil {
			e.Fatalf("watch %s: %v", dir, err)
		}
	}
	return func() (names []string) {
		e.Helper()
		buffer := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, buffer)
			if err != nil || n == 0 {
				return names // EAGAIN: no more for now
			}
			for rest := buffer[:n]; len(rest) > 0; {
				size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
				names = append(names, strings.TrimRight(string(rest[unix.SizeofInotifyEvent:size]), "\x00"))
				rest = rest[size:]
			}
		}
	}
}

// The kubelet's cAdvisor reads them every ten seconds, whoever asks or not
// (kubernetes/kubernetes#16296).
func TestNothingIsMeasuredUntilSomebodyAsks(t *testing.T) {
	e := begin(t)
	e.write("web.yaml", e.resting("web"))
	opened := e.openings(e.ready("web"))
	e.faces() // what is asked for once does not go on
	opened()
	time.Sleep(15 * time.Second) // in which something that is periodical would be seen
	if files := opened(); len(files) > 0 {
		t.Errorf("while nobody asked, these files of cgroups were opened: %q", files)
	}
	e.faces()
	if len(opened()) == 0 {
		t.Error("the test does not see it when somebody asks")
	}
}

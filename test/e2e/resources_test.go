package e2e

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/cgroup"
	"podd/internal/perftest"
)

// cgroups reads the groups of a test's pods, by v1's or v2's names.
type cgroups struct {
	*env
	facts cgroup.Facts
}

func (e *env) cgroups() cgroups {
	e.Helper()
	facts, err := cgroup.Detect()
	if err != nil {
		e.Fatal(err)
	}
	return cgroups{env: e, facts: facts}
}

// read returns a setting of a group below the root of the pods; one is its name
// on v1, two on v2.
func (c cgroups) read(rel, one, two string) string {
	controller, _, _ := strings.Cut(one, ".")
	name := one
	if c.facts.Version == cgroup.V2 {
		name = two
	}
	text, err := os.ReadFile(filepath.Join(c.facts.Controllers[controller], c.node.CgroupRoot, "kubepods", rel, name))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// want waits until a setting has a value, which v2 may write otherwise.
func (c cgroups) want(rel, one, two, value1, value2 string) {
	c.Helper()
	want := value1
	if c.facts.Version == cgroup.V2 {
		want = value2
	}
	c.eventually(fmt.Sprintf("wait until %s of %s is %s", one, rel, want), func(context.Context) error {
		if got := c.read(rel, one, two); got != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// refused waits until the node refuses a pod for that reason.
func (e *env) refused(name, reason string) *v1.Pod {
	e.Helper()
	return e.waitPod(name, "refused with "+reason, func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != reason {
			return fmt.Errorf("it is %s", describe(p))
		}
		return nil
	})
}

// withResources puts resources into a manifest of podOf.
func withResources(manifest, resources string) string {
	return replaced(nil, manifest, "    command:", "    resources: "+resources+"\n    command:")
}

func TestCgroupsHoldWhatPodsAskFor(t *testing.T) {
	e := prepare(t)
	e.podd.Config["podPidsLimit"] = 123
	e.start()
	e.write("g.yaml", withResources(e.resting("g"), "{limits: {cpu: 500m, memory: 64Mi}}"))
	e.write("b1.yaml", withResources(e.resting("b1"), "{requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: '1', memory: 64Mi}}"))
	e.write("b2.yaml", withResources(e.resting("b2"), "{requests: {cpu: 250m}}"))
	e.write("be.yaml", e.resting("be"))
	g, b1, b2, be := e.ready("g"), e.ready("b1"), e.ready("b2"), e.ready("be")
	c := e.cgroups()
	of := func(class string, p *v1.Pod) string { return filepath.Join(class, "pod"+string(p.UID)) }

	c.want("burstable", "cpu.shares", "cpu.weight", "512", "20")
	c.want("besteffort", "cpu.shares", "cpu.weight", "2", "1")
	c.want(of("", g), "cpu.shares", "cpu.weight", "512", "20")
	c.want(of("", g), "cpu.cfs_quota_us", "cpu.max", "50000", "50000 100000")
	c.want(of("", g), "memory.limit_in_bytes", "memory.max", "67108864", "67108864")
	c.want(of("", g), "pids.max", "pids.max", "123", "123")
	c.want(of("burstable", b1), "cpu.shares", "cpu.weight", "256", "10")
	c.want(of("burstable", b1), "cpu.cfs_quota_us", "cpu.max", "100000", "100000 100000")
	c.want(of("burstable", b1), "memory.limit_in_bytes", "memory.max", "67108864", "67108864")
	c.want(of("burstable", b2), "cpu.cfs_quota_us", "cpu.max", "-1", "max 100000")
	c.want(of("besteffort", be), "cpu.shares", "cpu.weight", "2", "1")
	c.want(of("besteffort", be), "pids.max", "pids.max", "123", "123")
	container := filepath.Join(of("", g), containerID(g, "main"))
	c.want(container, "cpu.cfs_quota_us", "cpu.max", "50000", "50000 100000")
	c.want(container, "memory.limit_in_bytes", "memory.max", "67108864", "67108864")

	// A podd that is started again finds the pods, and the class' weight with them.
	e.kill()
	e.start()
	e.write("b3.yaml", withResources(e.resting("b3"), "{requests: {cpu: 500m}}"))
	e.ready("b3")
	c.want("burstable", "cpu.shares", "cpu.weight", "1024", "39")
	e.remove("b1.yaml", "b3.yaml")
	c.want("burstable", "cpu.shares", "cpu.weight", "256", "10")
}

func TestAContainerThatEatsItsMemoryLimitIsOOMKilled(t *testing.T) {
	e := begin(t)
	e.write("eater.yaml", withResources(e.podOf("eater", "x=x; while :; do x=$x$x; done", "restartPolicy: Never"), "{limits: {memory: 24Mi}}"))
	e.write("beside.yaml", e.resting("beside"))
	p := e.waitPod("eater", "killed", func(p *v1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Terminated != nil {
				return nil
			}
		}
		return fmt.Errorf("it is %s", describe(p))
	})
	if s := p.Status.ContainerStatuses[0].State.Terminated; s.Reason != "OOMKilled" || s.ExitCode != 137 {
		t.Errorf("got reason %q, exit code %d; want OOMKilled, 137", s.Reason, s.ExitCode)
	}
	e.ready("beside")
}

// TestAnInitContainerThatIsOOMKilledAndEndsWith0HasFailed: the kernel kills what its
// shell runs, and the shell does not care.
func TestAnInitContainerThatIsOOMKilledAndEndsWith0HasFailed(t *testing.T) {
	e := begin(t)
	for i := range 5 {
		name := fmt.Sprintf("half%d", i)
		manifest := e.podOf(name, ": > /out/"+name, "restartPolicy: Never", "initContainers:", "- name: unpack", "  image: localhost/podd/busybox:1",
			"  resources: {limits: {memory: 24Mi}}", `  command: [sh, -c, "dd if=/dev/zero of=/dev/null bs=200M count=1; exit 0"]`)
		e.write(name+".yaml", manifest)
	}
	for i := range 5 {
		name := fmt.Sprintf("half%d", i)
		p := e.waitPod(name, "over", func(p *v1.Pod) error {
			if p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded {
				return nil
			}
			return fmt.Errorf("it is %s", describe(p))
		})
		s := p.Status.InitContainerStatuses[0].State.Terminated
		if p.Status.Phase != v1.PodFailed || s == nil || s.Reason != "OOMKilled" || s.ExitCode != 0 || e.marked(name) {
			t.Errorf("%s is %s, its init container %+v, its container ran: %v; want Failed, OOMKilled with code 0, and not", name, p.Status.Phase, s, e.marked(name))
		}
	}
}

// TestAForkBombSlowsAnotherPodsStartNoMoreThanABusyPodDoes: it has its processes
// and no more, and one pod's weight. On two processors any pod that keeps both busy
// slows a start; beside a bomb without a limit none would come about.
func TestAForkBombSlowsAnotherPodsStartNoMoreThanABusyPodDoes(t *testing.T) {
	e := prepare(t)
	e.podd.Config["podPidsLimit"] = 200
	e.start()
	start := func(name string) time.Duration {
		took := e.started(name)
		e.remove(name + ".yaml")
		return took
	}
	for i := range 3 {
		start(fmt.Sprintf("warm%d", i))
	}
	// A shell that cannot fork ends: the one that forks is not the container's first process.
	e.write("bomb.yaml", e.podOf("bomb", ": > /out/bomb; while :; do sh -c 'while :; do :; done' & done & while :; do :; done", "restartPolicy: Always"))
	e.mark("bomb")
	bomb, c := e.ready("bomb"), e.cgroups()
	group := filepath.Join("besteffort", "pod"+string(bomb.UID))
	c.want(group, "pids.max", "pids.max", "200", "200")
	e.eventually("wait until the bomb has what it gets", func(context.Context) error {
		var n int
		if _, err := fmt.Sscan(c.read(group, "pids.current", "pids.current"), &n); err != nil || n < 150 {
			return fmt.Errorf("it has %d processes (%v)", n, err)
		}
		return nil
	})
	// By turns, for other tests run meanwhile: a bomb of which one process a
	// processor runs is any busy pod, and one that stands still is none.
	n := 0
	beside := func(running int) func() time.Duration {
		return func() time.Duration {
			c.freeze(group, running)
			n++
			return start(fmt.Sprintf("beside%d", n))
		}
	}
	got := perftest.Compare(9, 2, beside(math.MaxInt), beside(runtime.NumCPU()))
	t.Logf("starts beside a fork bomb, and beside a busy pod: %v", got)
	if r := got.Ratio(); r > 2 {
		t.Errorf("beside a fork bomb a pod takes %.2f times as long to start as beside a busy one", r)
	}
}

// freeze stops all processes of a pod's containers but the last few.
func (c cgroups) freeze(rel string, but int) {
	c.Helper()
	lists, err := filepath.Glob(filepath.Join(c.facts.Controllers["pids"], c.node.CgroupRoot, "kubepods", rel, "*", "cgroup.procs"))
	if err != nil || len(lists) == 0 {
		c.Fatalf("no containers in %s: %v", rel, err)
	}
	var pids []int
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			c.Fatal(err)
		}
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	for i, pid := range pids {
		sig := unix.SIGSTOP
		if but >= len(pids)-i {
			sig = unix.SIGCONT
		}
		_ = unix.Kill(pid, sig) // it may have ended
	}
}

func TestAPodThatDoesNotFitRunsWhenThereIsRoom(t *testing.T) {
	e := prepare(t)
	e.podd.Config["maxPods"] = 2
	e.start()
	e.write("one.yaml", e.resting("one"))
	e.write("two.yaml", e.resting("two"))
	e.ready("one")
	e.ready("two")
	e.write("three.yaml", e.resting("three"))
	p := e.refused("three", "UnexpectedAdmissionError")
	if !strings.Contains(p.Status.Message, "[(res: pods, q: 1), ]") {
		t.Errorf("got %s", p.Status.Message)
	}
	e.event("three", "UnexpectedAdmissionError", "no set of running pods found to reclaim resources")
	e.metric(`kubelet_admission_rejections_total{reason="UnexpectedAdmissionError"} 1`)
	e.remove("one.yaml")
	e.ready("three")
}

func TestAPodForAnotherNodeIsRefused(t *testing.T) {
	e := prepare(t)
	e.podd.Args = append(e.podd.Args, "--node-labels", "disk=ssd")
	e.start()
	e.write("here.yaml", e.podOf("here", ": > /out/here; ${REST}", "nodeSelector: {disk: ssd, kubernetes.io/os: linux}"))
	e.write("there.yaml", e.podOf("there", ": > /out/there; ${REST}", "nodeSelector: {disk: hdd}"))
	e.ready("here")
	p := e.refused("there", "NodeAffinity")
	if !strings.HasPrefix(p.Status.Message, "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector") {
		t.Errorf("got %s", p.Status.Message)
	}
	if e.marked("there") {
		t.Error("it runs")
	}
}

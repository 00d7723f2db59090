package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestAPodStartsWhenItsManifestAppears(t *testing.T) {
	e := begin(t)
	at := e.write("one.yaml", e.resting("one"))
	first := e.mark("one")
	p := e.ready("one")
	t.Logf("first instruction after %v, shown as ready after %v", first.Sub(at).Round(time.Millisecond), time.Since(at).Round(time.Millisecond))
	ip, err := netip.ParseAddr(p.Status.PodIP)
	if err != nil || !e.node.Subnet.Contains(ip) {
		t.Errorf("got pod IP %q (%v), want one of %v", p.Status.PodIP, err, e.node.Subnet)
	}
	for _, kind := range []v1.PodConditionType{v1.PodReadyToStartContainers, v1.PodInitialized, v1.ContainersReady, v1.PodReady, v1.PodScheduled} {
		if got := condition(p, kind); got != v1.ConditionTrue {
			t.Errorf("condition %s: got %q, want True", kind, got)
		}
	}
	if p.Namespace != "default" || p.UID == "" || p.Status.StartTime == nil || p.Status.QOSClass != v1.PodQOSBestEffort {
		t.Errorf("got namespace %q, UID %q, start time %v, QoS %q", p.Namespace, p.UID, p.Status.StartTime, p.Status.QOSClass)
	}
}

// TestTheReadmesFirstPodAnswers: a web server in a namespace of its own
// answers at its pod address.
func TestTheReadmesFirstPodAnswers(t *testing.T) {
	e := begin(t)
	e.apply("web.yaml")
	p := e.ready("web")
	e.eventually("ask the pod", func(ctx context.Context) error {
		body, err := httpGet(ctx, p.Status.PodIP+":8080")
		if err == nil && !strings.Contains(body, "It runs") {
			err = fmt.Errorf("it answered %q", body)
		}
		return err
	})
	if p.Namespace != "shop" {
		t.Errorf("got namespace %q, want shop", p.Namespace)
	}
}

// TestACrashedContainerIsRestartedBeforeAnyBackOff: the node's first is 10 s.
func TestACrashedContainerIsRestartedBeforeAnyBackOff(t *testing.T) {
	e := begin(t)
	e.write("crash.yaml", e.podOf("crash", "if [ -e /out/first ]; then : > /out/again; ${REST}; fi; : > /out/first; sleep 2; : > /out/exit; exit 1"))
	exit := e.mark("exit")
	again := e.mark("again")
	e.atMost("the successor", again.Sub(exit), 10)
	p := e.waitPod("crash", "ready after one restart", func(p *v1.Pod) error {
		if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].RestartCount != 1 || !c[0].Ready {
			return errors.New(describe(p))
		}
		return nil
	})
	last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.ExitCode != 1 || last.Reason != "Error" {
		t.Errorf("got last state %+v, want exit code 1 with reason Error", last)
	}
}

// TestEachRestartPolicyWithExitCode0And1 runs the six combinations at once.
func TestEachRestartPolicyWithExitCode0And1(t *testing.T) {
	e := begin(t)
	type want struct {
		phase     v1.PodPhase
		restarted bool
		reason    string
	}
	cases := map[string]struct {
		policy string
		code   int
		want   want
	}{
		"always-0":    {"Always", 0, want{v1.PodRunning, true, "Completed"}},
		"always-1":    {"Always", 1, want{v1.PodRunning, true, "Error"}},
		"onfailure-0": {"OnFailure", 0, want{v1.PodSucceeded, false, "Completed"}},
		"onfailure-1": {"OnFailure", 1, want{v1.PodRunning, true, "Error"}},
		"never-0":     {"Never", 0, want{v1.PodSucceeded, false, "Completed"}},
		"never-1":     {"Never", 1, want{v1.PodFailed, false, "Error"}},
	}
	for name, c := range cases {
		// Ends once with the code, then rests.
		script := fmt.Sprintf("if [ -e /out/%[1]s ]; then : > /out/%[1]s-again; ${REST}; fi; : > /out/%[1]s; exit %[2]d", name, c.code)
		e.write(name+".yaml", e.podOf(name, script, "restartPolicy: "+c.policy))
	}
	for name, c := range cases {
		p := e.waitPod(name, string(c.want.phase), func(p *v1.Pod) error {
			s := p.Status.ContainerStatuses
			if p.Status.Phase != c.want.phase || len(s) != 1 || (s[0].RestartCount > 0) != c.want.restarted {
				return errors.New(describe(p))
			}
			if c.want.restarted != (s[0].State.Running != nil) {
				return errors.New(describe(p))
			}
			return nil
		})
		ended := p.Status.ContainerStatuses[0].State.Terminated
		if c.want.restarted {
			ended = p.Status.ContainerStatuses[0].LastTerminationState.Terminated
		}
		if ended == nil || ended.Reason != c.want.reason || ended.ExitCode != int32(c.code) {
			t.Errorf("%s: got %+v, want exit code %d with reason %s", name, ended, c.code, c.want.reason)
		}
		if c.want.restarted {
			e.mark(name + "-again") // a moment after it is shown as running
		} else if e.marked(name + "-again") {
			t.Errorf("%s ran again", name)
		}
	}
}

// TestAChangedManifestReplacesThePod: the old one ends before the new one
// starts, and the new one is another pod with another UID.
func TestAChangedManifestReplacesThePod(t *testing.T) {
	e := begin(t)
	e.write("app.yaml", e.holding("app", "old"))
	old := e.ready("app")
	e.mark("old")
	e.write("app.yaml", e.holding("app", "new"))
	e.mark("new")
	p := e.waitPod("app", "replaced", func(p *v1.Pod) error {
		if p.UID == old.UID || condition(p, v1.PodReady) != v1.ConditionTrue {
			return errors.New("it is still the old one, or not ready")
		}
		return nil
	})
	if e.twice("app") {
		t.Error("the old and the new pod ran at the same time")
	}
	pods, err := e.podd.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 1 || pods[0].UID != p.UID {
		t.Errorf("got %d pods, want the new one only", len(pods))
	}
}

// TestARemovedPodMayFinishItsWork: SIGTERM first, and all the time it asked
// for (containers/podman#21767: databases were killed at once).
func TestARemovedPodMayFinishItsWork(t *testing.T) {
	e := begin(t)
	e.write("db.yaml", e.podOf("db", "trap ': > /out/term; sleep 2; : > /out/flushed; exit 0' TERM; : > /out/up; while :; do sleep 3600 & wait; done"))
	e.mark("up")
	e.ready("db")
	e.remove("db.yaml")
	e.mark("term", "flushed")
}

// TestAContainerThatIgnoresSIGTERMEndsWithItsGracePeriod, and not before.
func TestAContainerThatIgnoresSIGTERMEndsWithItsGracePeriod(t *testing.T) {
	e := begin(t)
	text := e.podOf("deaf", "trap '' TERM; : > /out/up; while :; do sleep 1; done")
	e.write("deaf.yaml", replaced(e, text, "PeriodSeconds: 5", "PeriodSeconds: 2"))
	e.mark("up")
	e.ready("deaf")
	at := time.Now()
	e.remove("deaf.yaml")
	e.eventually("wait for the end", func(ctx context.Context) error {
		list, err := e.node.CRI.Containers(ctx)
		if err == nil && len(list) > 0 {
			err = errors.New("the container is there")
		}
		return err
	})
	took := time.Since(at)
	if took < 1900*time.Millisecond {
		t.Errorf("it took %v, want the 2 s of the grace period", took)
	}
	e.atMost("the end after the grace period", took-2*time.Second, 20)
}

func TestTwoContainersShareNetworkAndEmptyDir(t *testing.T) {
	e := begin(t)
	e.apply("shared.yaml")
	e.mark("fetched")
	if got := e.contents("fetched"); got != "hello over loopback\n" {
		t.Errorf("got %q over loopback", got)
	}
	p := e.ready("shared")
	// What the pod wrote goes with it: the emptyDir is on disk until then.
	dir := filepath.Join(e.node.Root(), "pods", string(p.UID))
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the pod's directory: %v", err)
	}
	e.remove("shared.yaml")
	e.eventually("wait until the emptyDir is gone", func(context.Context) error {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is there (%w)", dir, err)
		}
		return nil
	})
	if !e.marked("fetched") {
		t.Error("data in the hostPath went with the pod")
	}
}

func TestAnEmptyDirInMemoryKeepsItsLimit(t *testing.T) {
	e := begin(t)
	e.apply("memory.yaml")
	e.mark("tried")
	if got := e.contents("mount"); !strings.HasPrefix(got, "tmpfs /scratch tmpfs") {
		t.Errorf("got mount %q, want a tmpfs", got)
	}
	if e.marked("no-limit") {
		t.Error("4 MiB went into an emptyDir of 1 MiB")
	}
}

func TestAHostPortIsReachable(t *testing.T) {
	e := begin(t)
	e.apply("hostport.yaml")
	p := e.ready("hostport")
	port := fmt.Sprint(e.node.Port + 5)
	for _, address := range []string{p.Status.PodIP + ":8080", "127.0.0.1:" + port, bridgeAddress(e) + ":" + port} {
		e.eventually("ask "+address, func(ctx context.Context) error {
			body, err := httpGet(ctx, address)
			if err == nil && !strings.Contains(body, "It runs") {
				err = fmt.Errorf("it answered %q", body)
			}
			return err
		})
	}
	e.remove("hostport.yaml")
	e.eventually("the port is closed again", func(ctx context.Context) error {
		if _, err := httpGet(ctx, "127.0.0.1:"+port); err == nil {
			return errors.New("it still answers")
		}
		return nil
	})
}

// bridgeAddress is the node's own address in the pod network.
func bridgeAddress(e *env) string { return e.node.Subnet.Masked().Addr().Next().String() }

func TestDNSConfigAndHostsFileInsideTheContainer(t *testing.T) {
	e := begin(t)
	e.apply("dns.yaml")
	p := e.ready("dns")
	resolv := e.exec(p, "main", "cat", "/etc/resolv.conf")
	for _, line := range []string{"nameserver 192.0.2.53\n", "nameserver 192.0.2.54\n", "search example.test svc.example.test\n", "ndots:3", "edns0"} {
		if !strings.Contains(resolv, line) {
			t.Errorf("resolv.conf has no %q:\n%s", line, resolv)
		}
	}
	hosts := e.exec(p, "main", "cat", "/etc/hosts")
	for _, line := range []string{"127.0.0.1\tlocalhost", p.Status.PodIP + "\tinner", "192.0.2.9\tprinter\tprinter.example.test"} {
		if !strings.Contains(hosts, line) {
			t.Errorf("/etc/hosts has no %q:\n%s", line, hosts)
		}
	}
	if got := strings.TrimSpace(e.exec(p, "main", "hostname")); got != "inner" {
		t.Errorf("got host name %q, want inner", got)
	}
}

func TestEnvAndDownwardValuesInsideTheContainer(t *testing.T) {
	e := begin(t)
	e.apply("env.yaml")
	e.mark("env")
	p := e.ready("env")
	got := map[string]string{}
	for line := range strings.Lines(e.contents("env")) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		got[k] = v
	}
	for k, want := range map[string]string{
		"GREETING": "hello world", "LITERAL": "$(WHO) $(NOBODY)", "POD_NAME": p.Name, "POD_NAMESPACE": "shop",
		"POD_UID": string(p.UID), "TIER": "front", "TEAM": "blue", "NODE": e.podd.NodeName(), "POD_IP": p.Status.PodIP,
		"CPUS": "2", "MEMORY": "64", "HOSTNAME": p.Name,
	} {
		if got[k] != want {
			t.Errorf("%s: got %q, want %q", k, got[k], want)
		}
	}
	if got := e.contents("arg"); got != "hello world\n" {
		t.Errorf("$(GREETING) in the command: got %q", got)
	}
	if got := e.contents("pwd"); got != "/tmp/work\n" {
		t.Errorf("working directory: got %q", got)
	}
	// limits without requests make requests of themselves: guaranteed.
	if p.Status.QOSClass != v1.PodQOSGuaranteed {
		t.Errorf("got QoS class %s, want Guaranteed", p.Status.QOSClass)
	}
}

// TestLogsAreWhereLogShippersLook: the kubelet's paths and CRI's format, one
// file a restart.
func TestLogsAreWhereLogShippersLook(t *testing.T) {
	e := begin(t)
	e.write("logs.yaml", e.podOf("logs", "if [ -e /out/first ]; then echo second life; : > /out/again; ${REST}; fi; : > /out/first; echo to stdout; echo to stderr >&2; exit 1"))
	e.mark("again")
	p := e.ready("logs")
	dir := filepath.Join(e.podd.PodLogs(), fmt.Sprintf("default_%s_%s", p.Name, p.UID), "main")
	for file, lines := range map[string][]string{
		"0.log": {" stdout F to stdout\n", " stderr F to stderr\n"},
		"1.log": {" stdout F second life\n"},
	} {
		e.eventually("read "+file, func(context.Context) error {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				return err
			}
			for _, line := range lines {
				if !strings.Contains(string(text), line) {
					return fmt.Errorf("no %q in %q", line, text)
				}
			}
			return nil
		})
	}
	// And the flat directory of links that shippers tail.
	link := filepath.Join(e.podd.ContainerLogs(), fmt.Sprintf("%s_default_main-%s.log", p.Name, containerID(p, "main")))
	if target, err := filepath.EvalSymlinks(link); err != nil || target != filepath.Join(dir, "1.log") {
		t.Errorf("link %s: got %q (%v), want %s/1.log", link, target, err, dir)
	}
}

func TestATerminationMessageIsShown(t *testing.T) {
	e := begin(t)
	e.write("last.yaml", e.podOf("last", "echo out of cheese > /dev/termination-log; exit 3", "restartPolicy: Never"))
	p := e.waitPod("last", "Failed", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed {
			return errors.New(describe(p))
		}
		return nil
	})
	if got := p.Status.ContainerStatuses[0].State.Terminated; got == nil || got.Message != "out of cheese\n" || got.ExitCode != 3 {
		t.Errorf("got %+v, want exit code 3 and the message", got)
	}
}

// TestABurstOf50LosesNone: fifty manifests at once, fifty running pods, each
// started once.
func TestABurstOf50LosesNone(t *testing.T) {
	e := begin(t)
	var names []string
	at := time.Now()
	for i := range 50 {
		name := fmt.Sprintf("b%d", i)
		names = append(names, name)
		e.write(name+".yaml", e.holding(name, name))
	}
	last := e.mark(names...)
	t.Logf("all 50 at their first instruction after %v", last.Sub(at).Round(time.Millisecond))
	for _, name := range names {
		p := e.ready(name)
		if n := p.Status.ContainerStatuses[0].RestartCount; n != 0 {
			t.Errorf("%s was restarted %d times", name, n)
		}
		if e.twice(name) {
			t.Errorf("%s ran twice at once", name)
		}
	}
}

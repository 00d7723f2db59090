package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/versions"
	"podd/test/e2e/testnode"
)

// withFields puts lines into the only container of a manifest.
func withFields(manifest string, lines ...string) string {
	return replaced(nil, manifest, "    volumeMounts:", "    "+strings.Join(lines, "\n    ")+"\n    volumeMounts:")
}

// web is the manifest of a pod of the web server; /out/NAME.sick makes it sick.
func (e *env) web(name string, lines ...string) string {
	text := replaced(e, e.podOf(name, ""), `command: [/bin/sh, -c, ""]`,
		fmt.Sprintf("args: [-sick, /out/%s.sick, -grpc-port, \"9090\"]", name))
	text = replaced(e, text, testnode.ImageBusybox, testnode.ImageWeb)
	return withFields(text, lines...)
}

// sick makes what a test's probes ask for sick, or well again.
func (e *env) sick(name string, is bool) {
	e.Helper()
	path := filepath.Join(e.out, name+".sick")
	var err error
	if is {
		err = os.WriteFile(path, nil, 0o644)
	} else {
		err = os.Remove(path)
	}
	if err != nil {
		e.Fatal(err)
	}
}

// restarts waits until a pod's only container runs for the nth time.
func (e *env) restarted(name string, n int32) *v1.Pod {
	e.Helper()
	return e.waitPod(name, fmt.Sprintf("running after %d restarts", n), func(p *v1.Pod) error {
		if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].RestartCount != n || c[0].State.Running == nil {
			return errors.New(describe(p))
		}
		return nil
	})
}

// TestAFailedLivenessProbeRestartsItsContainer, asked in each of the four ways.
func TestAFailedLivenessProbeRestartsItsContainer(t *testing.T) {
	e := begin(t)
	how := "initialDelaySeconds: 2, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1, terminationGracePeriodSeconds: 1}"
	e.write("http.yaml", e.web("http", "livenessProbe: {httpGet: {path: /healthz, port: 8080}, "+how))
	e.write("grpc.yaml", e.web("grpc", "livenessProbe: {grpc: {port: 9090, service: any}, "+how))
	e.write("exec.yaml", withFields(e.podOf("exec", "${REST}"),
		`livenessProbe: {exec: {command: [/bin/sh, -c, "[ ! -e /out/exec.sick ] || { echo is sick; exit 1; }"]}, `+how))
	e.write("tcp.yaml", withFields(e.podOf("tcp", "httpd -f -p 7000 & s=$!; trap 'exit 0' TERM; while :; do [ ! -e /out/tcp.sick ] || kill $s; sleep 0.2; done"),
		"ports: [{name: db, containerPort: 7000}]", "livenessProbe: {tcpSocket: {port: db}, "+how))
	said := map[string]string{
		"http": "Liveness probe failed: HTTP probe failed with statuscode: 503",
		"grpc": `Liveness probe failed: service unhealthy (responded with "NOT_SERVING")`,
		"exec": "Liveness probe failed: is sick",
		"tcp":  "Liveness probe failed: dial tcp ",
	}
	for name := range said {
		e.ready(name)
	}
	time.Sleep(4500 * time.Millisecond) // a few runs of each, after their delay
	for name := range said {
		e.restarted(name, 0)
		e.sick(name, true)
	}
	for name, words := range said {
		e.event(name, "Unhealthy", words)
		e.event(name, "Killing", "Container main failed liveness probe, will be restarted")
		e.waitPod(name, "restarted", func(p *v1.Pod) error {
			if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].RestartCount == 0 {
				return errors.New(describe(p))
			}
			return nil
		})
		e.sick(name, false)
	}
	body, err := testnode.GetLoopback(t.Context(), e.podd.ReadOnlyPort(), "/metrics/probes")
	if err != nil {
		t.Fatal(err)
	}
	for name := range said {
		want := fmt.Sprintf(`prober_probe_total{container="main",namespace="default",pod="%s-%s",pod_uid=`, name, e.podd.NodeName())
		if !strings.Contains(string(body), want) || !strings.Contains(string(body), `probe_type="Liveness",result="failed"} `) {
			t.Errorf("/metrics/probes has no row that begins with %s:\n%s", want, body)
		}
	}
}

// TestReadinessFollowsItsProbe and restarts nothing.
func TestReadinessFollowsItsProbe(t *testing.T) {
	e := begin(t)
	e.write("shop.yaml", e.web("shop", "readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 1}"))
	e.ready("shop")
	turns := func(to v1.ConditionStatus) {
		e.waitPod("shop", "Ready "+string(to), func(p *v1.Pod) error {
			if condition(p, v1.PodReady) != to || condition(p, v1.ContainersReady) != to {
				return errors.New(describe(p))
			}
			return nil
		})
	}
	e.sick("shop", true)
	turns(v1.ConditionFalse)
	e.event("shop", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
	e.shows("Not ready:\n  default/shop-" + e.podd.NodeName() + ": main: Readiness probe failed: HTTP probe failed with statuscode: 503")
	e.sick("shop", false)
	turns(v1.ConditionTrue)
	e.restarted("shop", 0)
}

// TestAStartupProbeHoldsBackTheOthers until it succeeds, then the pod is ready
// before a period of its readiness probe is over.
func TestAStartupProbeHoldsBackTheOthers(t *testing.T) {
	e := begin(t)
	command := func(script string) string {
		return `{exec: {command: [/bin/sh, -c, "` + script + `"]}, timeoutSeconds: 5, `
	}
	e.write("slow.yaml", withFields(e.podOf("slow", ": > /out/up; ${REST}"),
		"startupProbe: "+command("[ -e /out/started ]")+"periodSeconds: 1, failureThreshold: 60}",
		"readinessProbe: "+command(": > /out/asked-ready")+"periodSeconds: 3600}",
		"livenessProbe: "+command(": > /out/asked-live")+"periodSeconds: 1}"))
	e.mark("up")
	e.event("slow", "Unhealthy", "Startup probe failed")
	p := e.restarted("slow", 0)
	if c := p.Status.ContainerStatuses[0]; c.Started == nil || *c.Started || c.Ready || e.marked("asked-ready") || e.marked("asked-live") {
		t.Errorf("before the startup probe's success: started %v, ready %v, other probes ran: %v, %v",
			*c.Started, c.Ready, e.marked("asked-ready"), e.marked("asked-live"))
	}
	if err := os.WriteFile(filepath.Join(e.out, "started"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	e.ready("slow") // with a readiness period of an hour
	e.mark("asked-live")
}

// TestProbesBelowASecondMakeAPodReadyBeforeItsPeriod (kubernetes/kubernetes#76951).
func TestProbesBelowASecondMakeAPodReadyBeforeItsPeriod(t *testing.T) {
	e := begin(t)
	text := e.web("quick", "readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 3600}")
	e.sick("quick", true)
	e.write("quick.yaml", replaced(e, text, "  name: quick\n", "  name: quick\n  annotations: {podd/probe-until-success: 50ms}\n"))
	e.restarted("quick", 0)
	time.Sleep(1500 * time.Millisecond)
	e.sick("quick", false)
	at := time.Now()
	e.ready("quick")
	took := time.Since(at)
	t.Logf("ready %v after the server was well", took.Round(time.Millisecond))
}

// TestAnExecProbeThatHangsIsEnded by its timeout, and leaves no process. What its
// command started in the background stays in the container, as with upstream's
// kubelet: the runtime kills the command alone. It holds up nothing, though.
func TestAnExecProbeThatHangsIsEnded(t *testing.T) {
	e := begin(t)
	e.write("hangs.yaml", withFields(e.podOf("hangs", "${REST}"),
		`readinessProbe: {exec: {command: [/bin/sleep, "4711"]}, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 1}`))
	e.write("other.yaml", withFields(e.podOf("other", "${REST}"),
		`readinessProbe: {exec: {command: [/bin/true]}, periodSeconds: 1, timeoutSeconds: 5}`))
	e.write("leaves.yaml", withFields(e.podOf("leaves", "${REST}"),
		`readinessProbe: {exec: {command: [/bin/sh, -c, "sleep 4712; true"]}, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 1}`))
	e.ready("other")
	e.event("leaves", "Unhealthy", "Readiness probe failed: command timed out")
	e.event("hangs", "Unhealthy", `Readiness probe failed: command timed out: "/bin/sleep 4711" timed out after 1s`)
	p := e.restarted("hangs", 0)
	time.Sleep(3 * time.Second)
	if n := strings.Count(e.exec(p, "main", "/bin/ps"), "sleep 4711"); n > 2 {
		t.Errorf("got %d processes of hanging probes in the container, want at most the one that runs", n)
	}
}

// TestHooksAreRun around a container's life, and a failing one ends it.
func TestHooksAreRun(t *testing.T) {
	e := begin(t)
	var asked atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stop" && r.UserAgent() == "kube-lifecycle/"+versions.KubernetesMinor && r.Header.Get("X-Why") == "end" {
			asked.Add(1)
		}
	})}
	go func() { _ = server.Serve(l) }()
	defer func() { _ = server.Close() }()
	e.write("good.yaml", withFields(e.podOf("good", ": > /out/main; ${REST}"), "lifecycle:",
		`  postStart: {exec: {command: [/bin/sh, -c, ": > /out/poststart"]}}`,
		`  preStop: {exec: {command: [/bin/sh, -c, "sleep 0.3; : > /out/prestop"]}}`))
	e.write("asks.yaml", withFields(e.podOf("asks", ": > /out/asks; ${REST}"), "lifecycle:",
		fmt.Sprintf(`  preStop: {httpGet: {host: 127.0.0.1, port: %d, path: /stop, httpHeaders: [{name: X-Why, value: end}]}}`, l.Addr().(*net.TCPAddr).Port)))
	e.write("fails.yaml", withFields(e.podOf("fails", "${REST}"), "lifecycle:",
		`  postStart: {exec: {command: [/bin/sh, -c, "echo not today; exit 3"]}}`))
	e.write("naps.yaml", withFields(e.podOf("naps", ": > /out/naps; ${REST}"), "lifecycle:", `  preStop: {sleep: {seconds: 2}}`))
	e.mark("main", "poststart", "asks", "naps")
	e.ready("good")
	e.ready("asks")
	e.ready("naps")
	e.event("fails", "FailedPostStartHook", "PostStartHook failed")
	e.shows("default/fails-" + e.podd.NodeName() + ": main: CrashLoopBackOff: PostStartHook failed; exited with code ")
	e.waitPod("fails", "shown with its failed hook", func(p *v1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && (w.Reason == "PostStartHookError" || w.Reason == "CrashLoopBackOff") {
				return nil
			}
		}
		return errors.New(describe(p))
	})
	at := time.Now()
	e.remove("good.yaml", "asks.yaml", "fails.yaml", "naps.yaml")
	e.mark("prestop")
	gone := func(name string) {
		e.eventually(name+" is gone", func(ctx context.Context) error {
			if _, err := e.pod(ctx, name); err == nil {
				return errors.New("it is still listed")
			}
			return nil
		})
	}
	for _, name := range []string{"good", "asks", "naps"} {
		gone(name)
	}
	if took := time.Since(at); took < 2*time.Second {
		t.Errorf("the pod that sleeps for 2 s before its end was gone after %v", took)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the preStop handler asked %d times as it should, want once", n)
	}
}

// TestARestartOfPoddFlapsNoReadiness (kubernetes/kubernetes#100277), in neither
// direction.
func TestARestartOfPoddFlapsNoReadiness(t *testing.T) {
	e := begin(t)
	probe := "readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 3, timeoutSeconds: 30, failureThreshold: 1}"
	startup := "startupProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, failureThreshold: 30}"
	e.sick("unready", true)
	e.write("ready.yaml", e.web("ready", probe, startup))
	e.write("unready.yaml", e.web("unready", probe))
	e.ready("ready")
	e.event("unready", "Unhealthy", "statuscode: 503")
	time.Sleep(time.Second) // the results are on disk
	e.kill()
	e.start()
	watched, seen := time.Now(), 0
	for time.Since(watched) < 5*time.Second {
		ready, err1 := e.pod(t.Context(), "ready")
		unready, err2 := e.pod(t.Context(), "unready")
		if err := errors.Join(err1, err2); err != nil || len(ready.Status.ContainerStatuses) == 0 || ready.Status.ContainerStatuses[0].State.Running == nil ||
			len(unready.Status.ContainerStatuses) == 0 || unready.Status.ContainerStatuses[0].State.Running == nil {
			time.Sleep(time.Millisecond)
			continue // not looked at yet
		}
		seen++
		if condition(ready, v1.PodReady) != v1.ConditionTrue || condition(unready, v1.PodReady) != v1.ConditionFalse {
			t.Fatalf("%v after the restart: Ready is %s and %s, want True and False as before",
				time.Since(watched), condition(ready, v1.PodReady), condition(unready, v1.PodReady))
		}
		time.Sleep(5 * time.Millisecond)
	}
	if seen == 0 {
		t.Fatal("the pods were not seen after the restart")
	}
	e.sick("unready", false)
	e.ready("unready")
	e.restarted("ready", 0)
}

// TestPodsOnTheHostsNetworkAreAskedAtTheLocalSystem, as a kubelet without an
// apiserver asks them: a server on 127.0.0.1 alone is healthy, for probes and
// for hooks that name no host.
func TestPodsOnTheHostsNetworkAreAskedAtTheLocalSystem(t *testing.T) {
	e := begin(t)
	hooks := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hooks <- r.UserAgent() + " " + r.URL.Path
	}))
	defer server.Close()
	hook, free := server.Listener.Addr().(*net.TCPAddr).Port, freePort(t)
	how := ", periodSeconds: 1, timeoutSeconds: 5, failureThreshold: "
	e.write("local.yaml", withFields(
		e.podOf("local", fmt.Sprintf("mkdir /tmp/w; echo hello > /tmp/w/index.html; httpd -p 127.0.0.1:%d -h /tmp/w; : > /out/local; ${REST}", free), "hostNetwork: true"),
		fmt.Sprintf("startupProbe: {httpGet: {port: %d}%s60}", free, how),
		fmt.Sprintf("livenessProbe: {httpGet: {port: %d}%s1}", free, how),
		fmt.Sprintf("readinessProbe: {tcpSocket: {port: %d}%s1}", free, how),
		fmt.Sprintf("lifecycle: {postStart: {httpGet: {path: /began, port: %d}}, preStop: {httpGet: {path: /ends, port: %d}}}", hook, hook)))
	asked := func(want string) {
		t.Helper()
		select {
		case got := <-hooks:
			if got != want {
				t.Errorf("got a request %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("the hook %q was not called", want)
		}
	}
	e.ready("local")
	asked("kube-lifecycle/" + versions.KubernetesMinor + " /began")
	e.restarted("local", 0)
	e.remove("local.yaml")
	asked("kube-lifecycle/" + versions.KubernetesMinor + " /ends")
}

// freePort is a TCP port of loopback that nobody had a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// TestACommandThatDoesNotExistIsNamed: in the status and as an event.
func TestACommandThatDoesNotExistIsNamed(t *testing.T) {
	e := begin(t)
	e.write("nocmd.yaml", replaced(e, e.resting("nocmd"), "/bin/sh", "/bin/no-such-command"))
	p := e.waitPod("nocmd", "waiting after a failed start", func(p *v1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && (w.Reason == "RunContainerError" || w.Reason == "CrashLoopBackOff") {
				return nil
			}
		}
		return errors.New(describe(p))
	})
	if p.Status.Phase == v1.PodFailed {
		t.Errorf("got phase %s, want it to be tried again", p.Status.Phase)
	}
	e.eventually("the command is named", func(ctx context.Context) error {
		p, err := e.pod(ctx, "nocmd")
		if err != nil {
			return err
		}
		if text := describe(p) + fmt.Sprint(p.Status.ContainerStatuses[0].LastTerminationState); !strings.Contains(text, "no-such-command") {
			return errors.New(text)
		}
		return nil
	})
	e.event("nocmd", "Failed", "no-such-command")
	e.write("other.yaml", e.resting("other"))
	e.ready("other")
}

// TestAHostPortTwiceIsRefusedForTheSecond: it is told for what, the
// first goes on answering; when that goes, the second has the port by itself.
func TestAHostPortTwiceIsRefusedForTheSecond(t *testing.T) {
	e := begin(t)
	e.apply("hostport.yaml")
	holder := e.ready("hostport")
	port := fmt.Sprint(e.node.Port + 5)
	second := replaced(e, e.resting("second"), "    command:", "    ports: [{containerPort: 80, hostPort: "+port+"}]\n    command:")
	e.write("second.yaml", second)
	p := e.refused("second", "NodePorts")
	words := []string{"host port " + port + "/TCP", holder.Name, "another hostPort"}
	if !holdsAll(p.Status.Message, words) {
		t.Errorf("got the sentence %q, want %q in it", p.Status.Message, words)
	}
	e.event("second", "NodePorts", words...)
	if table := e.run("ps"); !oneLineHolds(table, "", append(words, "second")) {
		t.Errorf("podd ps does not say that and why the second waits:\n%s", table)
	}
	if e.marked("second") {
		t.Error("the second pod runs with a port that is another's")
	}
	body, err := httpGet(t.Context(), "127.0.0.1:"+port)
	if err != nil || !strings.Contains(body, "It runs") {
		t.Errorf("the first pod at its port: got %q (%v)", body, err)
	}
	e.remove("hostport.yaml")
	e.mark("second")
	if p := e.ready("second"); p.Status.Reason != "" {
		t.Errorf("the second pod has its port, but is still shown as %s", describe(p))
	}
}

// TestAHostPathOfTheWrongTypeIsNamed and the pod starts once it is right.
func TestAHostPathOfTheWrongTypeIsNamed(t *testing.T) {
	e := begin(t)
	path := filepath.Join(e.podd.Dir, "thing")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	text := e.resting("typed") + "  - name: thing\n    hostPath: {path: " + path + ", type: Directory}\n"
	text = replaced(e, text, "mountPath: /out}]", "mountPath: /out}, {name: thing, mountPath: /thing}]")
	e.write("typed.yaml", text)
	e.event("typed", "FailedMount", path)
	e.waiting("typed", "ContainerCreating")
	e.write("other.yaml", e.resting("other"))
	e.ready("other")
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "mine"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	e.mark("typed")
	e.remove("typed.yaml")
	e.eventually("the pod goes", func(ctx context.Context) error {
		if p, err := e.pod(ctx, "typed"); err == nil {
			return errors.New(describe(p))
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(path, "mine")); err != nil {
		t.Errorf("the data of the hostPath after the pod's end: %v", err)
	}
}

// TestAnOrderIsHeardRightAfterAFailedRound: a worker was deaf for a second after it
// had failed, also to its pod's removal and to an edit.
func TestAnOrderIsHeardRightAfterAFailedRound(t *testing.T) {
	e := begin(t)
	failing := func(name string) string {
		text := e.resting(name) + "  - name: thing\n    hostPath: {path: " + e.podd.Dir + "/no/such/dir, type: Directory}\n"
		return replaced(e, text, "mountPath: /out}]", "mountPath: /out}, {name: thing, mountPath: /thing}]")
	}
	const times = 5
	var removals, edits time.Duration
	for i := range times {
		name := fmt.Sprint("unwanted", i)
		e.write(name+".yaml", failing(name))
		e.event(name, "FailedMount", "no/such/dir")
		at := time.Now()
		e.remove(name + ".yaml")
		e.eventually("the pod goes", func(ctx context.Context) error {
			if _, err := e.pod(ctx, name); err == nil {
				return errors.New("it is there")
			}
			return nil
		})
		removals += time.Since(at)
	}
	for i := range times {
		name := fmt.Sprint("mended", i)
		e.write(name+".yaml", failing(name))
		e.event(name, "FailedMount", "no/such/dir")
		at := e.write(name+".yaml", e.resting(name))
		edits += e.mark(name).Sub(at)
	}
	e.atMost(fmt.Sprintf("%d removals, each right after a failed round,", times), removals, 2*times)
	e.atMost(fmt.Sprintf("%d edits, each right after a failed round, until the pod ran,", times), edits, 4*times)
}

// TestWithoutANetworkConfigurationPoddSaysSo: readiness is false with a
// sentence, pods with the host's network run, the others wait and start when
// the configuration is there.
func TestWithoutANetworkConfigurationPoddSaysSo(t *testing.T) {
	e := begin(t)
	e.write("before.yaml", e.resting("before"))
	e.ready("before")
	configs, err := filepath.Glob(filepath.Join(e.node.Containerd.NetworkDir(), "*"))
	if err != nil || len(configs) != 1 {
		t.Fatalf("got CNI configurations %q (%v), want one", configs, err)
	}
	text, err := os.ReadFile(configs[0])
	if err != nil {
		t.Fatal(err)
	}
	// Written and not moved back: containerd hears of writes only.
	back := func() {
		if err := os.WriteFile(configs[0], text, 0o644); err != nil {
			t.Error(err)
		}
	}
	defer back()
	if err := os.Remove(configs[0]); err != nil {
		t.Fatal(err)
	}
	e.notReady("network")
	e.write("needs.yaml", e.resting("needs"))
	e.write("host.yaml", e.podOf("host", ": > /out/host; ${REST}", "hostNetwork: true"))
	e.mark("host")
	e.ready("host")
	e.waiting("needs", "ContainerCreating")
	e.event("needs", "NetworkNotReady", "network", e.node.Containerd.NetworkDir())
	if table := e.run("ps"); !holdsAll(table, []string{"needs", e.node.Containerd.NetworkDir()}) {
		t.Errorf("podd ps does not say what the pod waits for:\n%s", table)
	}
	if said := strings.Count(e.podd.LogTail(1<<20), "reason=NetworkNotReady"); said > 3 {
		t.Errorf("the log says the same %d times", said)
	}
	if e.marked("needs") {
		t.Error("a pod runs without the network it needs")
	}
	e.ready("before") // who has a network keeps it
	back()
	e.mark("needs")
	e.isReady()
}

// notReady waits until /readyz fails with these words in its explanation.
func (e *env) notReady(words ...string) {
	e.Helper()
	e.eventually("/readyz fails", func(ctx context.Context) error {
		body, err := e.podd.Get(ctx, "/readyz?verbose")
		if err == nil {
			return fmt.Errorf("it says %q", body)
		}
		if !holdsAll(string(body)+err.Error(), words) {
			return err
		}
		return nil
	})
}

// livesUnhealthy asserts that podd works (/livez) and says in these words why
// it cannot do its work (/healthz).
func (e *env) livesUnhealthy(words ...string) {
	e.Helper()
	if _, err := e.podd.Get(e.Context(), "/livez"); err != nil {
		e.Errorf("podd itself works, but: %v", err)
	}
	body, err := e.podd.Get(e.Context(), "/healthz")
	if err == nil || !holdsAll(string(body), words) {
		e.Errorf("/healthz: got %s (%v), want it to fail and say %q", body, err, words)
	}
}

// isReady waits until /readyz succeeds.
func (e *env) isReady() {
	e.Helper()
	e.eventually("/readyz succeeds", func(ctx context.Context) error {
		_, err := e.podd.Get(ctx, "/readyz?verbose")
		return err
	})
}

// TestWithoutARuntimePoddSaysSoAndGoesOn: a runtime that is not there yet is
// named in /readyz; podd answers all the same, and when the runtime comes the
// pods start.
func TestWithoutARuntimePoddSaysSoAndGoesOn(t *testing.T) {
	e := prepare(t)
	if err := e.node.Containerd.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	e.podd.Args = []string{"--container-runtime-endpoint", e.node.Containerd.Endpoint()}
	e.write("patient.yaml", e.resting("patient"))
	e.start()
	e.notReady("runtime")
	e.livesUnhealthy("runtime")
	p := e.waitPod("patient", "listed", func(*v1.Pod) error { return nil })
	if p.Status.Phase != v1.PodPending {
		t.Errorf("got %s, want Pending", describe(p))
	}
	if err := e.node.Containerd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.mark("patient")
	e.isReady()
}

// TestARuntimeThatHangsIsNamedAndRecovered: while it hangs podd answers, /readyz says what hangs, and afterwards everything goes on, started
// once.
func TestARuntimeThatHangsIsNamedAndRecovered(t *testing.T) {
	e := begin(t)
	e.write("before.yaml", e.resting("before"))
	e.ready("before")
	before := e.identities()
	if err := e.node.Containerd.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	e.write("meanwhile.yaml", e.holding("meanwhile", "meanwhile"))
	e.notReady("runtime")
	e.livesUnhealthy("runtime", "hangs")
	for _, path := range []string{"/pods", "/livez", "/metrics", "/podd/v1/pods"} {
		ctx, cancel := context.WithTimeout(t.Context(), patience) // it hangs until it is let go
		if _, err := e.podd.Get(ctx, path); err != nil {
			t.Errorf("%s while the runtime hangs: %v", path, err)
		}
		cancel()
	}
	if err := e.node.Containerd.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	e.mark("meanwhile")
	e.ready("meanwhile")
	e.isReady()
	if e.twice("meanwhile") {
		t.Error("a pod of the hang ran twice at once")
	}
	for key, want := range before {
		if got := e.identities()[key]; got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
}

// TestAFullDiskStopsNobodyWhoRuns: podd's root directory is full; what runs
// goes on, podd answers, the new pod says why it waits and starts when there is
// room.
func TestAFullDiskStopsNobodyWhoRuns(t *testing.T) {
	e := prepare(t)
	pods := filepath.Join(e.node.Root(), "pods")
	if err := os.MkdirAll(pods, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("full", pods, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	// After everything else of the test: the mount is the test's own.
	e.before["mount"] = append(e.before["mount"], "tmpfs on "+pods)
	e.Cleanup(func() {
		if err := unix.Unmount(pods, 0); err != nil {
			t.Error(err)
		}
	})
	e.start()
	e.write("runs.yaml", e.resting("runs"))
	e.ready("runs")
	ballast := filepath.Join(pods, "ballast")
	fill(t, ballast)
	scratch := e.resting("late") + "  - name: scratch\n    emptyDir: {}\n"
	e.write("late.yaml", replaced(e, scratch, "mountPath: /out}]", "mountPath: /out}, {name: scratch, mountPath: /scratch}]"))
	e.eventually("somebody says that the disk is full", func(ctx context.Context) error {
		body, err := e.podd.Get(ctx, "/podd/v1/events")
		if err == nil && !strings.Contains(string(body), "no space left on device") {
			err = fmt.Errorf("no event says so: %.2000s", body)
		}
		return err
	})
	e.ready("runs")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	e.mark("late")
	e.ready("late")
}

// fill writes until there is no room for a byte or a directory any more.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for size := 64 << 10; size > 0; size /= 2 {
		for {
			if _, err = f.Write(make([]byte, size)); err != nil {
				break
			}
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
}

// TestOneBadPodSlowsNoOther: twenty pods that fail in all the ways there are,
// and the good one beside them starts as if it were alone
// (kubernetes/kubernetes#45419).
func TestOneBadPodSlowsNoOther(t *testing.T) {
	e := begin(t)
	for i := range 4 {
		name := func(kind string) string { return fmt.Sprintf("%s%d", kind, i) }
		e.write(name("crash")+".yaml", e.podOf(name("crash"), "exit 1"))
		e.write(name("noimage")+".yaml", withImage(e.resting(name("noimage")), "localhost/nowhere:1\n    imagePullPolicy: Never"))
		e.write(name("nocmd")+".yaml", replaced(e, e.resting(name("nocmd")), "/bin/sh", "/no/such"))
		e.write(name("nopath")+".yaml", replaced(e, e.resting(name("nopath")), "path: "+e.out, "path: /no/such"))
		e.write(name("broken")+".yaml", replaced(e, e.resting(name("broken")), "containers:", "contaniers:"))
	}
	e.waitPod("crash3", "crash-looping", func(p *v1.Pod) error {
		if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].State.Waiting == nil || c[0].State.Waiting.Reason != "CrashLoopBackOff" {
			return errors.New(describe(p))
		}
		return nil
	})
	for i := range 3 {
		name := fmt.Sprintf("good%d", i)
		at := e.write(name+".yaml", e.resting(name))
		e.atMost("beside bad pods the start of "+name, e.mark(name).Sub(at), 10)
		e.ready(name)
	}
}

// TestABrokenEditKeepsTheLastGoodVersionRunning, says so, and takes the mended
// version.
func TestABrokenEditKeepsTheLastGoodVersionRunning(t *testing.T) {
	e := begin(t)
	good := e.holding("app", "v1")
	e.write("app.yaml", good)
	e.ready("app")
	before := e.identities()
	e.write("app.yaml", replaced(e, good, "command:", "comand:"))
	problem := e.problem("app.yaml", "comand", "command")
	if !problem.LastGoodInUse {
		t.Errorf("got %+v, want it to say that the last good version runs on", problem)
	}
	if now := e.identities(); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("after a broken edit: got %v, want %v", now, before)
	}
	e.write("app.yaml", e.holding("app", "v2"))
	e.mark("v2")
	e.eventually("the problem is gone", func(ctx context.Context) error {
		l, err := e.listing(ctx)
		if err == nil && len(l.Problems) > 0 {
			err = fmt.Errorf("got %+v", l.Problems)
		}
		return err
	})
}

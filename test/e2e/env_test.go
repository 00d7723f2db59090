package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/test/e2e/testnode"
)

// env is one test's podd on its node.
type env struct {
	*testing.T
	node *testnode.Node
	podd *testnode.Podd
	// out is /out in containers by the manifests' hostPath; marks sees files
	// appear in it.
	out   string
	marks *testnode.Marks

	before testnode.Snapshot
	paths  []string
	// mayEnd: the test ends podd itself.
	mayEnd bool
	// floors counts the pods of floor.
	floors int
}

var serial atomic.Int64

// prepare takes a node and makes podd's directories; the test may change
// e.podd before e.start.
func prepare(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	return prepareOn(t, takeNode(t), nodes.bundle)
}

// prepareOn is prepare on a node of the test's own, with the podd of a bundle.
func prepareOn(t *testing.T, node *testnode.Node, b testnode.Bundle) *env {
	t.Helper()
	dir := filepath.Join(node.Dir, fmt.Sprintf("t%d", serial.Add(1)))
	e := &env{T: t, node: node, out: filepath.Join(dir, "out")}
	if err := os.MkdirAll(e.out, 0o777); err != nil {
		t.Fatal(err)
	}
	var err error
	if e.podd, err = testnode.NewPodd(node.Place, b, dir); err != nil {
		t.Fatal(err)
	}
	// The root directory is that of earlier tests, too: their events are not this test's.
	if err := os.Remove(filepath.Join(node.Root(), "events.jsonl")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if e.marks, err = testnode.NewMarks(e.out); err != nil {
		t.Fatal(err)
	}
	root, state := node.Root(), node.State()
	e.paths = []string{
		filepath.Join(root, "pods"), filepath.Join(root, "ended"), filepath.Join(root, "accepted"), filepath.Join(root, "starts"), filepath.Join(root, "interrupted"), filepath.Join(state, "probes"),
	}
	if e.before, err = e.scope().Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.finish)
	return e
}

// begin is prepare and start.
func begin(t *testing.T) *env {
	t.Helper()
	e := prepare(t)
	e.start()
	return e
}

// start runs podd and waits until it answers.
func (e *env) start() {
	e.Helper()
	if err := e.podd.Start(); err != nil {
		e.Fatal(err)
	}
	if err := e.podd.WaitReady(e.Context()); err != nil {
		e.Fatal(err)
	}
}

// stop ends podd as systemd would.
func (e *env) stop() { e.Helper(); e.signal(unix.SIGTERM) }

// kill ends podd as a crash would.
func (e *env) kill() { e.Helper(); e.signal(unix.SIGKILL) }

func (e *env) signal(sig unix.Signal) {
	e.Helper()
	e.mayEnd = true
	if err := e.podd.Signal(sig); err != nil {
		e.Fatal(err)
	}
}

func (e *env) scope() testnode.Scope {
	scope := e.node.Scope([]int{e.podd.Pid()}, e.paths...)
	scope.LogRemovals = filepath.Join(cmp.Or(e.podd.Root, e.node.Root()), "log-removals")
	return scope
}

// finish removes every manifest, waits until nothing of the test is left on
// the node, and stops podd. A test that ended podd gets another one for that:
// what a dead podd left is the next one's to clear.
func (e *env) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if ended, how := e.podd.Ended(); ended && !e.mayEnd {
		e.Errorf("podd ended by itself: %s", how)
	}
	if err := errors.Join(e.podd.DeleteAll(), e.node.Containerd.Signal(unix.SIGCONT), e.revive(ctx)); err != nil {
		e.Error(err)
	}
	left := e.waitNothingLeft(ctx)
	if err := e.podd.Signal(unix.SIGTERM); err != nil {
		e.Error(err)
	}
	if text := e.podd.LogTail(1 << 20); strings.Contains(text, "panic:") || strings.Contains(text, "DATA RACE") {
		e.Error("podd's log has a panic or a data race")
	}
	if e.Failed() || left != nil {
		e.Logf("the end of podd's log:\n%s", e.podd.LogTail(6000))
		if err := e.node.CRI.RemoveAll(ctx); err != nil {
			e.Logf("clear the node for the next test: %v", err)
		}
	}
	if err := errors.Join(e.marks.Close(), os.RemoveAll(e.podd.Dir)); err != nil {
		e.Error(err)
	}
	if left != nil { // after the log: the end of a test's output is what survives
		e.Error(left)
	}
}

// revive brings back what the test ended.
func (e *env) revive(ctx context.Context) error {
	// A podd that was told of an endpoint does not start the runtime itself.
	if supervised := e.podd.Pid() != 0 && len(e.podd.Args) == 0; e.node.Containerd.Pid() == 0 && !supervised {
		if err := e.node.Containerd.Start(ctx); err != nil {
			return err
		}
	}
	if e.podd.Pid() == 0 {
		if err := e.podd.Start(); err != nil {
			return err
		}
	}
	return errors.Join(e.node.Containerd.WaitReady(ctx, nil), e.podd.WaitReady(ctx))
}

// waitNothingLeft waits a while for what is still being torn down, then returns as an
// error every sandbox, container, network namespace, veth, address, mount,
// cgroup, packet filter rule, process and directory that was not there before, and
// each claim that is still bound: the next test may have one of that name.
func (e *env) waitNothingLeft(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := testnode.Poll(ctx, 50*time.Millisecond, func() error {
		bound, err := os.ReadFile(filepath.Join(e.node.Root(), "volume-bindings.json"))
		if err == nil && strings.Contains(string(bound), `"claim"`) {
			return errors.New("bindings of claims: " + string(bound))
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err := errors.Join(err, e.scope().AwaitNothingLeft(ctx, e.before, 50*time.Millisecond)); err != nil {
		return fmt.Errorf("after the last manifest was removed: %w", err)
	}
	return nil
}

// vars replaces ${OUT}, ${IMAGE} and more in a manifest.
func (e *env) vars(more ...string) *strings.Replacer {
	return strings.NewReplacer(append(more,
		"${OUT}", e.out, "${IMAGE}", testnode.ImageBusybox, "${WEB}", testnode.ImageWeb,
		"${DIR}", e.podd.Dir, "${PORT}", strconv.Itoa(e.node.Port+5),
		// A container that does nothing and ends when it is told to.
		"${REST}", "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done",
	)...)
}

// apply puts a file of testdata into the manifest directory under its own
// name, by rename, and returns when it was there. more are pairs for vars.
func (e *env) apply(name string, more ...string) time.Time {
	e.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		e.Fatal(err)
	}
	return e.write(name, e.vars(more...).Replace(string(text)))
}

// write puts a text into the manifest directory.
func (e *env) write(file, text string) time.Time {
	e.Helper()
	at, err := e.podd.Apply(file, text)
	if err != nil {
		e.Fatal(err)
	}
	return at
}

// remove takes manifests away.
func (e *env) remove(files ...string) {
	e.Helper()
	if _, err := e.podd.Delete(files...); err != nil {
		e.Fatal(err)
	}
}

// resting is the manifest of a pod of one container that marks its start as
// NAME and rests.
func (e *env) resting(name string) string {
	return e.podOf(name, ": > /out/"+name+"; ${REST}")
}

// podOf is the manifest of a pod of one container that runs a shell script.
func (e *env) podOf(name, script string, spec ...string) string {
	extra := ""
	for _, line := range spec {
		extra += "\n  " + line
	}
	text, err := json.Marshal(e.vars().Replace(script))
	if err != nil {
		e.Fatal(err)
	}
	return e.vars("${NAME}", name, "${SCRIPT}", string(text), "${SPEC}", extra).Replace(`apiVersion: v1
kind: Pod
metadata:
  name: ${NAME}
spec:
  terminationGracePeriodSeconds: 5${SPEC}
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/sh, -c, ${SCRIPT}]
    volumeMounts: [{name: out, mountPath: /out}]
  volumes:
  - name: out
    hostPath: {path: ${OUT}, type: Directory}
`)
}

// holding is the manifest of a pod whose container holds the lock NAME while
// it lives, and marks its start as mark. Where another holds the lock at the
// same time, e.twice(NAME) is true.
func (e *env) holding(name, mark string) string {
	text := replaced(e, e.podOf(name, ""), `[/bin/sh, -c, ""]`,
		fmt.Sprintf("[/holder, /out/%[1]s.lock, /out/%[2]s, /out/%[1]s-twice]", name, mark))
	text = replaced(e, text, "mountPath: /out}]", "mountPath: /out}, {name: holder, mountPath: /holder, readOnly: true}]")
	return text + "  - name: holder\n    hostPath: {path: " + holder + ", type: File}\n"
}

func (e *env) twice(name string) bool { return e.marked(name + "-twice") }

// patience is when a test gives up: on an idle machine it waits for well under a
// second. It decides nothing but what hangs, and is shorter than any wait that
// podd must not have.
const patience = 2 * time.Minute

// floor is how long a pod takes by raw calls of the runtime, now and here, until
// its first instruction: the control for what podd takes.
func (e *env) floor() time.Duration {
	e.Helper()
	e.floors++
	name := fmt.Sprintf("floor%d", e.floors)
	pod := &testnode.FloorPod{
		Name: name, UID: name + "-uid", Image: testnode.ImageBusybox, HostDir: e.out,
		Command:      []string{"/bin/sh", "-c", e.vars().Replace(": > /out/" + name + "; ${REST}")},
		CgroupParent: e.node.CgroupRoot + "/kubepods", LogDir: filepath.Join(e.podd.Dir, name),
	}
	at := time.Now()
	err := pod.Run(e.Context(), e.node.CRI)
	var took time.Duration
	if err == nil {
		took = e.mark(name).Sub(at)
	}
	if err := errors.Join(err, pod.Remove(context.Background(), e.node.CRI)); err != nil {
		e.Fatal(err)
	}
	return took
}

// atMost fails the test when something took more than so many floors, measured
// right after it: the longest of three, for a busy machine is so by fits.
func (e *env) atMost(what string, took time.Duration, floors int) {
	e.Helper()
	floor := max(e.floor(), e.floor(), e.floor())
	e.Logf("%s took %v, %.1f times a raw pod's start of %v", what, took.Round(time.Millisecond), float64(took)/float64(floor), floor.Round(time.Millisecond))
	if took > time.Duration(floors)*floor {
		e.Errorf("%s took %v, want at most %d times what the runtime takes for a pod, %v", what, took, floors, floor)
	}
}

// eventually waits until f returns nil.
func (e *env) eventually(what string, f func(ctx context.Context) error) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	if err := testnode.Poll(ctx, 20*time.Millisecond, func() error { return f(ctx) }); err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

// mark waits until containers have made these files and returns when the last
// was made.
func (e *env) mark(names ...string) time.Time {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), 2*patience)
	defer cancel()
	at, err := e.marks.Wait(ctx, names...)
	if err != nil {
		e.Fatal(err)
	}
	return at
}

// marked says whether a container has made that file.
func (e *env) marked(name string) bool {
	_, err := os.Stat(filepath.Join(e.out, name))
	return err == nil
}

// contents is what a container wrote to a file of /out.
func (e *env) contents(name string) string {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(e.out, name))
	if err != nil {
		e.Fatal(err)
	}
	return string(text)
}

// pod is what GET /pods says of a pod, by the name in its manifest.
func (e *env) pod(ctx context.Context, name string) (*v1.Pod, error) {
	pods, err := e.podd.Pods(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		if p.Name == name+"-"+e.podd.NodeName() {
			return &p, nil
		}
	}
	return nil, fmt.Errorf("/pods does not list %s", name)
}

// waitPod waits until a pod is as want says (nil) and returns it.
func (e *env) waitPod(name, what string, want func(p *v1.Pod) error) *v1.Pod {
	e.Helper()
	var found *v1.Pod
	e.eventually(fmt.Sprintf("wait until pod %s is %s", name, what), func(ctx context.Context) error {
		p, err := e.pod(ctx, name)
		if err != nil {
			return err
		}
		found = p
		return want(p)
	})
	return found
}

// ready waits until all containers of a pod run and are ready.
func (e *env) ready(name string) *v1.Pod {
	e.Helper()
	return e.waitPod(name, "ready", func(p *v1.Pod) error {
		if p.Status.Phase == v1.PodRunning && condition(p, v1.PodReady) == v1.ConditionTrue {
			return nil
		}
		return fmt.Errorf("it is %s", describe(p))
	})
}

// waiting waits until a pod's first container waits for one of these reasons.
func (e *env) waiting(name string, reasons ...string) *v1.Pod {
	e.Helper()
	return e.waitPod(name, "waiting with "+strings.Join(reasons, " or "), func(p *v1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Waiting != nil && slices.Contains(reasons, c.State.Waiting.Reason) {
				return nil
			}
		}
		return fmt.Errorf("it is %s", describe(p))
	})
}

// firstContainer is the status of a pod's first container; empty before podd has asked the
// runtime for the first time.
func firstContainer(p *v1.Pod) v1.ContainerStatus {
	if len(p.Status.ContainerStatuses) == 0 {
		return v1.ContainerStatus{}
	}
	return p.Status.ContainerStatuses[0]
}

func condition(p *v1.Pod, kind v1.PodConditionType) v1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// describe puts a status into one line.
func describe(p *v1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", p.Status.Phase)
	if p.Status.Reason != "" {
		fmt.Fprintf(&b, " (%s: %s)", p.Status.Reason, p.Status.Message)
	}
	for _, c := range p.Status.ContainerStatuses {
		fmt.Fprintf(&b, ", %s", c.Name)
		switch s := c.State; {
		case s.Waiting != nil:
			fmt.Fprintf(&b, " waits (%s: %s)", s.Waiting.Reason, s.Waiting.Message)
		case s.Running != nil:
			fmt.Fprintf(&b, " runs")
		case s.Terminated != nil:
			fmt.Fprintf(&b, " ended (%d, %s: %s)", s.Terminated.ExitCode, s.Terminated.Reason, s.Terminated.Message)
		}
		fmt.Fprintf(&b, ", %d restarts", c.RestartCount)
	}
	return b.String()
}

// containerID is the runtime's ID of a pod's container.
func containerID(p *v1.Pod, name string) string {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == name {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			return id
		}
	}
	return ""
}

// exec runs a command in a container.
func (e *env) exec(p *v1.Pod, container string, command ...string) string {
	e.Helper()
	out, err := e.node.CRI.Exec(e.Context(), containerID(p, container), command...)
	if err != nil {
		e.Fatal(err)
	}
	return out
}

// terminate sends the first process of a pod's container SIGTERM and waits for its end.
func (e *env) terminate(p *v1.Pod, container string) {
	e.Helper()
	if err := e.node.CRI.Terminate(e.Context(), containerID(p, container)); err != nil {
		e.Fatal(err)
	}
}

// httpGet asks an address once.
func httpGet(ctx context.Context, hostPort string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+hostPort+"/", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body := make([]byte, 1000)
	n, _ := resp.Body.Read(body)
	if resp.StatusCode != http.StatusOK {
		return string(body[:n]), errors.New(resp.Status)
	}
	return string(body[:n]), nil
}

// listing is what podd ps gets.
type listing struct {
	Pods []struct {
		Pod    *v1.Pod `json:"pod"`
		Origin string  `json:"origin"`
	} `json:"pods"`
	Problems []pod.Problem `json:"problems"`
}

func (e *env) listing(ctx context.Context) (listing, error) {
	var l listing
	body, err := e.podd.Get(ctx, "/podd/v1/pods")
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(body, &l)
}

// shows waits until the output of podd ps has the text.
func (e *env) shows(text string) {
	e.Helper()
	e.eventually("wait until podd ps shows "+text, func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, e.podd.Binary, "ps", "--state-dir", e.node.State()).CombinedOutput()
		if err == nil && !strings.Contains(string(out), text) {
			err = errors.New("it does not")
		}
		if err != nil {
			return fmt.Errorf("%w:\n%s", err, out)
		}
		return nil
	})
}

// problem waits until podd reports a problem with that file whose text holds
// every one of words, and returns it.
func (e *env) problem(file string, words ...string) pod.Problem {
	e.Helper()
	var found pod.Problem
	e.eventually("wait for a problem with "+file, func(ctx context.Context) error {
		l, err := e.listing(ctx)
		if err != nil {
			return err
		}
		var others []string
		for _, p := range l.Problems {
			text := p.Field + " " + p.Message + " " + p.Hint
			if filepath.Base(p.Origin) == file && holdsAll(text, words) {
				found = p
				return nil
			}
			others = append(others, fmt.Sprintf("%s: %.200s", filepath.Base(p.Origin), text))
		}
		return fmt.Errorf("want %q, got %q", words, others)
	})
	return found
}

func holdsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(w)) {
			return false
		}
	}
	return true
}

// event waits for an event of a pod with that reason and these words.
func (e *env) event(name, reason string, words ...string) {
	e.Helper()
	e.eventually("wait for event "+reason+" of pod "+name, func(ctx context.Context) error {
		body, err := e.podd.Get(ctx, "/podd/v1/events")
		if err != nil {
			return err
		}
		var list v1.EventList
		if err := json.Unmarshal(body, &list); err != nil {
			return err
		}
		var others []string
		for _, ev := range list.Items {
			if ev.InvolvedObject.Name != name+"-"+e.podd.NodeName() {
				continue
			}
			if ev.Reason == reason && holdsAll(ev.Message, words) {
				return nil
			}
			others = append(others, ev.Reason+": "+ev.Message)
		}
		return fmt.Errorf("want one with %q, got %q", words, others)
	})
}

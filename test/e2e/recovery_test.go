package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/test/e2e/testnode"
)

// identities are the containers of the runtime that have not exited, by pod
// and name, with the time of their start: what a restart of podd must not
// change.
func (e *env) identities() map[string]string {
	e.Helper()
	list, err := e.node.CRI.Containers(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	ids := map[string]string{}
	for _, c := range list {
		// A container's first instruction comes before the runtime's note of it.
		var status *runtimeapi.ContainerStatus
		e.eventually("container "+c.Id+" is started", func(ctx context.Context) error {
			answer, err := e.node.CRI.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
			if grpcstatus.Code(err) == codes.NotFound {
				status = nil // removed since the list was made
				return nil
			}
			if status = answer.GetStatus(); status.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
				return errors.New("it was made and not started")
			}
			return err
		})
		if status == nil || status.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		key := c.Labels["io.kubernetes.pod.name"] + "/" + c.Labels["io.kubernetes.container.name"]
		ids[key] = fmt.Sprintf("%s started at %d, %s", c.Id, status.StartedAt, status.State)
	}
	return ids
}

// burst writes the manifests of twenty pods, and returns their names.
func (e *env) burst(prefix string) (names []string) {
	e.Helper()
	for i := range 20 {
		names = append(names, fmt.Sprintf("%s%d", prefix, i))
	}
	for _, name := range names {
		e.write(name+".yaml", e.holding(name, name))
	}
	return names
}

// allRunOnce waits until the pods run, and fails for each that ran twice at once.
func (e *env) allRunOnce(names []string) {
	e.Helper()
	e.mark(names...)
	for _, name := range names {
		e.ready(name)
		if e.twice(name) {
			e.Errorf("%s ran twice at once", name)
		}
	}
}

// TestKillingPoddInTheMiddleOfABurstLosesNoPodAndDoublesNone: wherever the
// kill strikes, every pod runs afterwards, and none ever ran twice at once.
func TestKillingPoddInTheMiddleOfABurstLosesNoPodAndDoublesNone(t *testing.T) {
	e := begin(t)
	names := e.burst("k")
	for _, after := range []int{2, 8} {
		e.eventually(fmt.Sprintf("wait for %d pods", after), func(context.Context) error {
			n := len(slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !e.marked(name) }))
			if n < after {
				return fmt.Errorf("%d have started", n)
			}
			return nil
		})
		e.kill()
		e.start()
	}
	e.allRunOnce(names)
	// And nothing but the wanted: a container that was made and forgotten
	// would be a second one of its pod. (One that the runtime ended because
	// podd's call broke off may still be listed, as any last one is.)
	e.eventually("one container runs a pod", func(ctx context.Context) error {
		list, err := e.node.CRI.Containers(ctx)
		list = slices.DeleteFunc(list, func(c *runtimeapi.Container) bool { return c.State == runtimeapi.ContainerState_CONTAINER_EXITED })
		if err == nil && len(list) != len(names) {
			err = fmt.Errorf("%d containers for %d pods", len(list), len(names))
		}
		return err
	})
}

// TestWhatASlowShimCreatesAfterItsCallFailedIsCollected: podd is killed in the middle
// of a burst and all shims stand still, for longer than containerd waits for one. What
// they then create, nobody waits for any more: neither may it hold up its pod, nor stay.
func TestWhatASlowShimCreatesAfterItsCallFailedIsCollected(t *testing.T) {
	e := begin(t)
	names := e.burst("s")
	e.eventually("wait for the first pod", func(context.Context) error {
		if !slices.ContainsFunc(names, e.marked) {
			return errors.New("none has started")
		}
		return nil
	})
	frozen := e.shims()
	for _, pid := range frozen {
		_ = unix.Kill(pid, unix.SIGSTOP)
	}
	thaw := func() {
		for _, pid := range frozen {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}
	defer thaw()
	e.kill()
	e.start()
	// containerd waits for 10 s, and podd looks when it starts and 10 s later.
	defer time.AfterFunc(25*time.Second, thaw).Stop()
	e.allRunOnce(names)
}

// TestKillingPoddWhileAPodEndsForgetsNothing: the pod's work is finished, its
// end is taken up by the next podd, and a second pod of the same name waits for
// it.
func TestKillingPoddWhileAPodEndsForgetsNothing(t *testing.T) {
	e := begin(t)
	slow := "mkdir /out/ends.lock || : > /out/twice; trap ': > /out/term; sleep 2; : > /out/flushed; rmdir /out/ends.lock; exit 0' TERM; : > /out/up; while :; do sleep 3600 & wait; done"
	e.write("ends.yaml", e.podOf("ends", slow))
	e.mark("up")
	e.ready("ends")
	e.remove("ends.yaml")
	e.mark("term")
	e.kill()
	e.write("ends.yaml", e.podOf("ends", "trap 'rmdir /out/ends.lock; exit 0' TERM; mkdir /out/ends.lock || : > /out/twice; : > /out/next; while :; do sleep 3600 & wait; done"))
	e.start()
	e.mark("flushed", "next")
	e.ready("ends")
	if e.marked("twice") {
		t.Error("the old and the new pod ran at the same time")
	}
}

// TestARestartOfPoddRestartsNoContainer: neither a stop nor a crash of podd is
// seen by a container, and a ready pod is never shown as unready
// (kubernetes/kubernetes#100277).
func TestARestartOfPoddRestartsNoContainer(t *testing.T) {
	e := begin(t)
	e.write("a.yaml", e.resting("a"))
	e.write("b.yaml", e.resting("b"))
	e.write("crashed.yaml", e.podOf("crashed", "if [ -e /out/crashed ]; then ${REST}; fi; : > /out/crashed; exit 1"))
	a := e.ready("a")
	e.ready("b")
	e.waitPod("crashed", "restarted once", restartedOnce)
	before := e.identities()
	for _, end := range []func(){e.stop, e.kill} {
		end()
		if now := e.identities(); !maps.Equal(before, now) {
			t.Errorf("without podd: got %v, want %v", now, before)
		}
		e.start()
		// The first answer that lists a pod must list it as it is.
		first := e.waitPod("a", "listed", func(*v1.Pod) error { return nil })
		if got := condition(first, v1.PodReady); got != v1.ConditionTrue {
			t.Errorf("after a restart pod a is first shown as Ready=%q: %s", got, describe(first))
		}
		again := e.ready("a")
		if again.UID != a.UID || !again.Status.StartTime.Equal(a.Status.StartTime) {
			t.Errorf("got UID %s and start time %v, want %s and %v", again.UID, again.Status.StartTime, a.UID, a.Status.StartTime)
		}
		e.ready("b")
		e.waitPod("crashed", "restarted once, as before", restartedOnce)
		if now := e.identities(); !maps.Equal(before, now) {
			t.Errorf("after a restart of podd: got %v, want %v", now, before)
		}
	}
}

func restartedOnce(p *v1.Pod) error {
	if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].RestartCount != 1 || c[0].State.Running == nil {
		return errors.New(describe(p))
	}
	return nil
}

// TestKillingContainerdLosesNoPod: containers outlive it, what crashed
// meanwhile is restarted, and new pods start when it is back.
func TestKillingContainerdLosesNoPod(t *testing.T) {
	e := begin(t)
	e.write("stays.yaml", e.resting("stays"))
	e.write("dies.yaml", e.podOf("dies", "if [ -e /out/dies ]; then : > /out/dies-again; ${REST}; fi; : > /out/dies; until [ -e /out/now ]; do sleep 0.05; done; exit 1"))
	e.ready("stays")
	e.ready("dies")
	stays := e.identities()["stays-"+e.podd.NodeName()+"/main"]
	if err := e.node.Containerd.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.out, "now"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	e.write("new.yaml", e.resting("new"))
	// podd supervises: nobody but it starts containerd again.
	if err := e.node.Containerd.WaitReady(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	e.mark("new", "dies-again")
	e.ready("new")
	e.ready("stays")
	if now := e.identities()["stays-"+e.podd.NodeName()+"/main"]; now != stays {
		t.Errorf("a container that ran on: got %s, want %s", now, stays)
	}
}

// TestManifestsThatChangeWhilePoddIsStopped: what was removed goes, what was
// changed is replaced, what was added comes, and the rest is not touched.
func TestManifestsThatChangeWhilePoddIsStopped(t *testing.T) {
	e := begin(t)
	for _, name := range []string{"kept", "removed", "changed"} {
		e.write(name+".yaml", e.holding(name, name))
		e.ready(name)
	}
	kept := e.identities()["kept-"+e.podd.NodeName()+"/main"]
	e.stop()
	e.remove("removed.yaml")
	e.write("changed.yaml", e.holding("changed", "changed-2"))
	e.write("added.yaml", e.resting("added"))
	e.start()
	e.mark("added", "changed-2")
	e.eventually("the removed pod's container ends", func(ctx context.Context) error {
		if ids := e.identities(); ids["removed-"+e.podd.NodeName()+"/main"] != "" {
			return fmt.Errorf("got %v", ids)
		}
		return nil
	})
	if e.twice("changed") {
		t.Error("the changed pod ran twice at once")
	}
	if now := e.identities()["kept-"+e.podd.NodeName()+"/main"]; now != kept {
		t.Errorf("the kept pod's container: got %s, want %s", now, kept)
	}
}

// TestAManifestRemovedAndPutBackRunsAgain, also when it comes back before the
// old pod has ended (kubernetes/kubernetes#104648: it stayed in error until
// the kubelet was restarted).
func TestAManifestRemovedAndPutBackRunsAgain(t *testing.T) {
	e := begin(t)
	// Takes a second to end, and must not run twice meanwhile. (As the first process of its
	// namespace it does not get a SIGTERM that it has no trap for: that comes before a mark.)
	text := e.podOf("phoenix", "trap 'sleep 1; rmdir /out/phoenix.lock; exit 0' TERM; mkdir /out/phoenix.lock || : > /out/twice; n=$(ls /out | grep -c life); : > /out/life$n; while :; do sleep 3600 & wait; done")
	e.write("phoenix.yaml", text)
	e.mark("life0")
	first := e.ready("phoenix")
	id := containerID(first, "main")
	e.remove("phoenix.yaml")
	e.eventually("it is being stopped, or gone from the runtime", func(ctx context.Context) error {
		if _, err := os.Stat(filepath.Join(e.podd.Manifests(), "phoenix.yaml")); err == nil {
			return errors.New("the manifest is there")
		}
		return nil
	})
	e.write("phoenix.yaml", text)
	second := e.waitPod("phoenix", "running in a container", func(p *v1.Pod) error {
		if condition(p, v1.PodReady) != v1.ConditionTrue {
			return errors.New(describe(p))
		}
		// Either the removal was never seen, or a successor runs.
		if containerID(p, "main") == id && e.marked("life1") {
			return errors.New("the successor is not shown")
		}
		return nil
	})
	if containerID(second, "main") != id {
		e.mark("life1")
	}
	// Now with a pause that no settle time hides.
	e.remove("phoenix.yaml")
	e.eventually("the lock is being given back", func(context.Context) error {
		if !e.marked("phoenix.lock") {
			return nil
		}
		return errors.New("it still runs")
	})
	n := 1
	for e.marked(fmt.Sprintf("life%d", n)) {
		n++
	}
	e.write("phoenix.yaml", text)
	e.mark(fmt.Sprintf("life%d", n))
	e.ready("phoenix")
	if e.marked("twice") {
		t.Error("it ran twice at once")
	}
}

// TestAPodNeverRunsTwiceAtOnce: ten edits in a row, each another pod of the
// same name; the lock in the hostPath is held by one of them at a time.
func TestAPodNeverRunsTwiceAtOnce(t *testing.T) {
	e := begin(t)
	for i := range 10 {
		e.write("edited.yaml", e.holding("edited", fmt.Sprintf("edit%d", i)))
		time.Sleep(time.Duration(i) * 60 * time.Millisecond) // an editor's pace, from hasty to slow
	}
	e.mark("edit9")
	e.ready("edited")
	if e.twice("edited") {
		t.Error("two generations ran at the same time")
	}
}

// TestOrphansGoWhenTheirOwnSourceHasSpoken: a silent manifest URL holds up no
// clean-up of the directory's pods (kubernetes/kubernetes#112814), and its own
// pods stay until it has said that it does not want them.
func TestOrphansGoWhenTheirOwnSourceHasSpoken(t *testing.T) {
	e := prepare(t)
	var answer atomic.Pointer[string]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := answer.Load()
		if text == nil {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(*text))
	}))
	defer server.Close()
	e.podd.Config["staticPodURL"] = server.URL
	e.podd.Config["httpCheckFrequency"] = "200ms"
	fromURL := e.resting("from-url")
	answer.Store(&fromURL)
	e.start()
	e.write("from-file.yaml", e.resting("from-file"))
	e.ready("from-url")
	e.ready("from-file")
	url := e.identities()["from-url-"+e.podd.NodeName()+"/main"]

	e.stop()
	e.remove("from-file.yaml")
	answer.Store(nil) // silent from now on
	e.start()
	gone := func(name string) {
		e.eventually("pod "+name+" goes", func(ctx context.Context) error {
			if id := e.identities()[name+"-"+e.podd.NodeName()+"/main"]; id != "" {
				return errors.New(id)
			}
			return nil
		})
	}
	gone("from-file")
	if now := e.identities()["from-url-"+e.podd.NodeName()+"/main"]; now != url {
		t.Errorf("the pod of the silent URL: got %q, want %q", now, url)
	}
	nothing := `{"apiVersion": "v1", "kind": "PodList", "items": []}`
	answer.Store(&nothing)
	gone("from-url")
}

// TestAPodStoppedBehindPoddsBackComesBack: its sandbox was ended by somebody
// else, crictl say.
func TestAPodStoppedBehindPoddsBackComesBack(t *testing.T) {
	e := begin(t)
	e.write("hit.yaml", e.podOf("hit", "n=$(ls /out | grep -c life); : > /out/life$n; ${REST}"))
	e.mark("life0")
	p := e.ready("hit")
	boxes, err := e.node.CRI.Sandboxes(t.Context())
	if err != nil || len(boxes) != 1 {
		t.Fatalf("got %d sandboxes (%v), want 1", len(boxes), err)
	}
	if _, err := e.node.CRI.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: boxes[0].Id}); err != nil {
		t.Fatal(err)
	}
	e.mark("life1")
	again := e.waitPod("hit", "ready in a new sandbox", func(p2 *v1.Pod) error {
		if condition(p2, v1.PodReady) != v1.ConditionTrue || containerID(p2, "main") == containerID(p, "main") {
			return errors.New(describe(p2))
		}
		return nil
	})
	if again.UID != p.UID {
		t.Errorf("got UID %s, want %s", again.UID, p.UID)
	}
}

// TestAForeignSandboxIsLeftAlone: podd is not the only one who may use the
// runtime, and clears up after itself only.
func TestAForeignSandboxIsLeftAlone(t *testing.T) {
	e := prepare(t)
	foreign := &testnode.FloorPod{
		Name: "foreign", UID: "foreign-uid", Image: testnode.ImageBusybox, HostDir: e.out,
		Command:      []string{"/bin/sh", "-c", e.vars().Replace(": > /out/foreign; ${REST}")},
		CgroupParent: e.node.CgroupRoot + "/kubepods", LogDir: filepath.Join(e.podd.Dir, "foreignlogs"),
	}
	if err := foreign.Run(t.Context(), e.node.CRI); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := foreign.Remove(context.Background(), e.node.CRI); err != nil {
			t.Error(err)
		}
	}()
	e.mark("foreign")
	e.start()
	e.write("own.yaml", e.resting("own"))
	e.ready("own")
	e.remove("own.yaml")
	e.eventually("podd's own pod goes", func(ctx context.Context) error {
		ids := e.identities()
		if len(ids) > 1 {
			return fmt.Errorf("got %v", ids)
		}
		return nil
	})
	if id := e.identities()["foreign/main"]; !strings.Contains(id, "RUNNING") {
		t.Errorf("the foreign container: got %q, want it running", id)
	}
}

// TestLeakedAddressesAreCollected: an address whose sandbox the runtime does
// not know any more is given back at podd's start, and those in use are kept
// (containernetworking/plugins#252, kubernetes/kubernetes#57280).
func TestLeakedAddressesAreCollected(t *testing.T) {
	e := begin(t)
	e.write("live.yaml", e.resting("live"))
	live := e.ready("live")
	e.stop()
	dir := filepath.Join(e.node.Containerd.LeaseDir(), e.node.Bridge)
	subnet := e.node.Subnet.Masked().Addr().As4()
	leaked := filepath.Join(dir, netip.AddrFrom4([4]byte{subnet[0], subnet[1], 7, 77}).String())
	if err := os.WriteFile(leaked, []byte(strings.Repeat("ab", 32)+"\r\neth0"), 0o644); err != nil {
		t.Fatal(err)
	}
	// As old as a leak is: the collector spares what may be in the making.
	old := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(leaked, old, old); err != nil {
		t.Fatal(err)
	}
	e.start()
	e.eventually("the leaked address is given back", func(context.Context) error {
		if _, err := os.Stat(leaked); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is there (%w)", leaked, err)
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(dir, live.Status.PodIP)); err != nil {
		t.Errorf("the address of a live pod: %v", err)
	}
	if _, err := httpGet(t.Context(), live.Status.PodIP+":1"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("the live pod at %s: got %v, want connection refused, which shows that it is reachable", live.Status.PodIP, err)
	}
}

// TestPoddStartsTheRuntimeItself: with none running, podd starts the bundled
// one, pods survive podd's end, and the next podd adopts both.
func TestPoddStartsTheRuntimeItself(t *testing.T) {
	e := prepare(t)
	if err := e.node.Containerd.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	e.start()
	e.write("one.yaml", e.resting("one"))
	e.ready("one")
	pid, before := e.node.Containerd.Pid(), e.identities()
	if pid == 0 {
		t.Fatal("no containerd runs")
	}
	e.stop()
	if now := e.node.Containerd.Pid(); now != pid {
		t.Errorf("podd's end left containerd %d, want %d to go on", now, pid)
	}
	e.start()
	e.ready("one")
	if now := e.identities(); !maps.Equal(before, now) || e.node.Containerd.Pid() != pid {
		t.Errorf("after podd's restart: containerd %d and %v, want %d and %v", e.node.Containerd.Pid(), now, pid, before)
	}
}

// TestRuntimeStopEndsThePodsOfARuntimeThatWasKilled: it used to take the bridge
// away and then to refuse the rest, because the mounts of the dead runtime's
// pods were still there, and nothing but a boot got rid of them.
func TestRuntimeStopEndsThePodsOfARuntimeThatWasKilled(t *testing.T) {
	e := begin(t)
	e.write("one.yaml", e.resting("one"))
	e.ready("one")
	e.write("job.yaml", e.once("job", "Never", 0))
	e.phase("job", v1.PodSucceeded, 0)
	e.mayEnd = true
	if err := e.node.KillAll(); err != nil {
		t.Fatal(err)
	}
	stop := func(more ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), e.podd.Binary, append(more, "runtime", "stop", "--root-dir", e.node.Root(), "--state-dir", e.node.State(),
			"--bridge", e.node.Bridge, "--pod-cidr", e.node.Subnet.String(), "--cgroup-root", e.node.CgroupRoot+"/kubepods")...)
		cmd.Env = append(os.Environ(), e.podd.Env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := stop("--runtime-dir", t.TempDir()); err == nil || !strings.Contains(out, "no container runtime found") {
		t.Errorf("without a runtime to start: got %v\n%s", err, out)
	}
	out, err := stop()
	if err != nil || !strings.Contains(out, "ending 2 pods\n") {
		t.Fatalf("podd runtime stop: %v\n%s", err, out)
	}
	if _, err := os.Stat(e.node.State()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state directory is still there: %v", err)
	}
	scope := e.scope()
	scope.CRI = nil        // there is no runtime to ask,
	scope.LogRemovals = "" // and no podd to remove the logs whose minute ends meanwhile
	after, err := scope.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if left := testnode.Left(e.before, after); len(left) > 0 {
		t.Errorf("left:\n\t%s", strings.Join(left, "\n\t"))
	}
	e.start() // with a runtime of its own: what was removed is made again
	e.ready("one")
	e.phase("job", v1.PodSucceeded, 0)
	if n := e.starts("job"); n != 2 { // whoever stops the runtime begins anew
		t.Errorf("the pod that had run to its end has run %d times, want 2", n)
	}
	// podd itself made it, before the runtime, for root alone: no pod with a user
	// namespace ran.
	if fi, err := os.Stat(e.node.State()); err != nil || fi.Mode().Perm()&0o001 == 0 {
		t.Errorf("the state directory of a first start: %v, %v; want it open to pods' users", fi.Mode(), err)
	}
}

// TestPodsRunAlikeWhoeverStartsPodd: the runtime that podd starts has neither the umask of podd's
// shell, which would keep other users out of a container's root directory (kubernetes/kubernetes#80668),
// nor its environment or its directory for temporary files.
func TestPodsRunAlikeWhoeverStartsPodd(t *testing.T) {
	e := prepare(t)
	if err := os.Chmod(e.out, 0o777); err != nil { // for other users, too
		t.Fatal(err)
	}
	odd := filepath.Join(e.podd.Dir, "odd")
	script := "#!/bin/sh\numask 077\ncd " + e.podd.Dir + "\nexport TMPDIR=/nonexistent ODD=1\nexec nice -n 5 " + e.podd.Binary + " \"$@\"\n"
	if err := os.WriteFile(odd, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	e.podd.Binary = odd
	e.start()
	if err := e.node.Containerd.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := e.node.Containerd.WaitReady(t.Context(), nil); err != nil { // podd has started another
		t.Fatal(err)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", e.node.Containerd.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	if text := "\x00" + string(env); strings.Contains(text, "\x00ODD=") || !strings.Contains(text, "\x00TMPDIR="+e.node.State()+"/tmp\x00") {
		t.Errorf("the runtime's environment: got %q", env)
	}
	e.write("user.yaml", e.podOf("user", "umask > /out/umask && cat /proc/self/stat > /out/stat && ls / > /out/root; ${REST}", "securityContext: {runAsUser: 1000}"))
	e.write("users.yaml", e.podOf("users", "ls / > /out/users; ${REST}", "hostUsers: false"))
	e.ready("user")
	e.ready("users")
	e.mark("root", "users")
	if umask := e.contents("umask"); strings.TrimSpace(umask) != "0022" {
		t.Errorf("in a container: got umask %q, want 0022", umask)
	}
	if stat := strings.Fields(e.contents("stat")); len(stat) < 19 || stat[18] != "0" {
		t.Errorf("in a container: got %q, want 0 for nice, the field 19", stat)
	}
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/agent/plan"
	"podd/internal/pod"
	"podd/internal/slots"
)

// world is what one pod has on a node. It complains when something goes before
// what must go first.
type world struct {
	Sandboxes
	Containers
	Volumes
	Cgroups
	Inputs
	Files
	Logs

	t    *testing.T
	has  map[string]bool
	fail map[string]error
	slow bool // the volumes are still to come
	busy bool // a process is in the cgroup
	// mistaken: it is one of the sandbox, which is not as dead as the runtime says.
	mistaken bool
	// deaf: that process outlives the stop of its sandbox, too.
	deaf  bool
	calls []string
}

func newWorld(t *testing.T) *world {
	return &world{t: t, has: make(map[string]bool), fail: make(map[string]error)}
}

func (w *world) do(call string, effect func()) error {
	w.calls = append(w.calls, call)
	if err := w.fail[call]; err != nil {
		return err
	}
	effect()
	return nil
}

func (w *world) add(thing string) func()  { return func() { w.has[thing] = true } }
func (w *world) drop(thing string) func() { return func() { delete(w.has, thing) } }

func (w *world) mustHave(when string, things ...string) {
	w.t.Helper()
	got := slices.Sorted(maps.Keys(w.has))
	slices.Sort(things)
	if !slices.Equal(got, things) {
		w.t.Errorf("%s: the node has %v, want %v", when, got, things)
	}
}

func (w *world) EnsureCgroup(context.Context, *v1.Pod) error {
	return w.do("EnsureCgroup", w.add("cgroup"))
}

func (w *world) RemoveCgroup(context.Context, *v1.Pod) error {
	if w.busy {
		return errors.New("a process is in it")
	}
	return w.do("RemoveCgroup", w.drop("cgroup"))
}

func (w *world) Ensure(context.Context, *v1.Pod) (pod.VolumeState, error) {
	if w.slow {
		return pod.VolumeState{Message: "not yet"}, nil
	}
	err := w.do("Ensure", func() { w.has["directory"], w.has["mounts"] = true, true })
	return pod.VolumeState{Ready: err == nil}, err
}

func (w *world) Follow(*v1.Pod) {}

func (w *world) Stopping(pod.UID) {}

func (w *world) Hold(*v1.Pod, *v1.Container) func() { return func() {} }

func (w *world) Release(context.Context, pod.UID) error { return w.do("Release", w.drop("mounts")) }

func (w *world) Discard(ctx context.Context, uid pod.UID) error { return w.Release(ctx, uid) }

func (w *world) TearDown(context.Context, pod.UID) error {
	if w.has["cgroup"] {
		w.t.Error("the directory is removed before the cgroup, in which a process may be")
	}
	return w.do("TearDown", func() {
		for _, thing := range []string{"directory", "mounts", "user namespace"} {
			delete(w.has, thing)
		}
	})
}

func (w *world) Handler(context.Context, *v1.Pod) (string, error) {
	return "", w.do("Handler", func() {})
}

func (w *world) Sandbox(*v1.Pod) (pod.SandboxInputs, error) {
	return pod.SandboxInputs{}, w.do("Sandbox", w.add("user namespace"))
}

func (w *world) PreparePod(*v1.Pod, pod.SandboxInputs) error {
	return w.do("PreparePod", w.add("logs"))
}

func (w *world) RunSandbox(_ context.Context, req pod.SandboxRequest) (string, error) {
	if req.Pod == nil {
		w.t.Error("a sandbox is made of nothing")
	}
	return "s1", w.do("RunSandbox", func() { w.has["sandbox"], w.has["network"] = true, true })
}

func (w *world) StopSandbox(context.Context, string) error {
	return w.do("StopSandbox", func() {
		delete(w.has, "network")
		if w.mistaken {
			w.busy = w.deaf
		}
	})
}

func (w *world) KillLeftover(_ pod.UID, ids []string) error {
	return w.do("End", func() {
		if slices.Contains(ids, "s1") {
			w.busy = false
		}
	})
}

func (w *world) RemoveSandbox(context.Context, string) error {
	if w.has["directory"] {
		w.t.Error("the sandbox, by which the pod is found again, is removed before the directory")
	}
	return w.do("RemoveSandbox", func() { delete(w.has, "sandbox"); delete(w.has, "network") })
}

func (w *world) SandboxRemoved(string) {}

// quiet takes events.
type quiet struct{}

func (quiet) Event(*v1.Pod, string, string, string)                  {}
func (quiet) ContainerEvent(*v1.Pod, string, string, string, string) {}
func (quiet) ForgetPod(pod.UID)                                      {}

// podOf returns a worker of a pod in the world, and a view of it.
func (w *world) podOf() (*worker, *view) {
	a := New(Config{
		Parts:  Parts{Sandboxes: w, Containers: w, Volumes: w, Cgroups: w, Inputs: w, Files: w},
		Logs:   w,
		Events: quiet{}, ParallelStarts: 1, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	d := &pod.Desired{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "default", UID: "u1"}}}
	return newWorker(a, d), &view{
		granted: d, seen: pod.Observed{UID: "u1", Sandboxes: []pod.Sandbox{{ID: "s1"}}},
		step: plan.Step{CreateSandbox: true, RemoveSandboxes: []string{"s1"}},
	}
}

var whole = []string{"cgroup", "directory", "logs", "mounts", "network", "sandbox", "user namespace"}

func TestEveryPrefixOfASetupIsUndone(t *testing.T) {
	steps, v := newWorld(t).podOf()
	for n := range len(steps.setup(v)) + 1 {
		for _, released := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d steps, released %v", n, released), func(t *testing.T) {
				node := newWorld(t)
				w, v := node.podOf()
				if ready, err := w.setup(v)[:n].create(t.Context()); !ready || err != nil {
					t.Fatalf("got ready %v (%v)", ready, err)
				}
				w.releaseStartSlot()
				if released {
					for range 2 {
						if err := w.setup(v).release(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					for _, thing := range []string{"cgroup", "mounts", "network"} {
						if node.has[thing] {
							t.Errorf("released, and the node still has the %s", thing)
						}
					}
				}
				for range 2 {
					if err := w.setup(v).remove(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				delete(node.has, "logs") // they have their own time
				node.mustHave("removed")
			})
		}
	}
}

func TestASetupIsDoneOnceHoweverOftenItIsAskedFor(t *testing.T) {
	node := newWorld(t)
	w, v := node.podOf()
	for range 2 {
		if ready, err := w.createSandboxAlone(t.Context(), v); !ready || err != nil {
			t.Fatalf("got ready %v (%v)", ready, err)
		}
		node.mustHave("made", whole...)
	}
}

// Its volumes are set up when the pod is, but for those that nobody mounts.
func TestVolumesAreSetUpAgainForAnEphemeralContainerThatMountsAnother(t *testing.T) {
	node := newWorld(t)
	w, v := node.podOf()
	look := func(volumes ...string) {
		p := v.granted.Pod.DeepCopy()
		c := v1.EphemeralContainer{}
		for _, name := range volumes {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name})
		}
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, c)
		v.granted = &pod.Desired{Pod: p}
		for range 2 {
			if ready, err := w.ensureVolumes(t.Context(), v); !ready || err != nil {
				t.Fatalf("got ready %v (%v)", ready, err)
			}
		}
	}
	look("data")
	node.mustHaveCalled("Ensure")
	look("data")
	look()
	node.mustHaveCalled()
	node.fail["Ensure"] = errors.New("it is not there")
	v.granted.Pod.Spec.EphemeralContainers[0].VolumeMounts[0].Name = "late"
	if ready, err := w.ensureVolumes(t.Context(), v); ready || err == nil {
		t.Errorf("got ready %v (%v), want the error", ready, err)
	}
	delete(node.fail, "Ensure")
	node.calls = nil
	look("late")
	node.mustHaveCalled("Ensure")
}

// createSandboxAlone is createSandbox without its checks.
func (w *worker) createSandboxAlone(ctx context.Context, v *view) (bool, error) {
	defer w.releaseStartSlot()
	return w.setup(v).create(ctx)
}

func TestTheOrderOfASetup(t *testing.T) {
	node := newWorld(t)
	w, v := node.podOf()
	if _, err := w.createSandboxAlone(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	node.mustHaveCalled("EnsureCgroup", "Ensure", "Handler", "Sandbox", "PreparePod", "RunSandbox")
	if err := w.setup(v).release(t.Context()); err != nil {
		t.Fatal(err)
	}
	node.mustHaveCalled("StopSandbox", "Release", "RemoveCgroup")
	node.mustHave("released", "directory", "logs", "sandbox", "user namespace")
	if err := w.setup(v).remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	node.mustHaveCalled("RemoveCgroup", "TearDown", "RemoveSandbox")
}

// mustHaveCalled is about the calls since the last time.
func (w *world) mustHaveCalled(want ...string) {
	w.t.Helper()
	if !slices.Equal(w.calls, want) {
		w.t.Errorf("got the calls %v, want %v", w.calls, want)
	}
	w.calls = nil
}

func TestAStepThatFailsEndsTheSetup(t *testing.T) {
	calls := []string{"EnsureCgroup", "Ensure", "Handler", "Sandbox", "PreparePod", "RunSandbox"}
	for i, call := range calls {
		t.Run(call, func(t *testing.T) {
			node := newWorld(t)
			w, v := node.podOf()
			broken := errors.New("broken")
			node.fail[call] = broken
			ready, err := w.createSandboxAlone(t.Context(), v)
			if _, told := errors.AsType[recordedError](err); ready || !errors.Is(err, broken) || !told {
				t.Errorf("got ready %v (%v), want the error, which an event has told of", ready, err)
			}
			node.mustHaveCalled(calls[:i+1]...)
			if w.agent.startSlots.InUse() != 0 {
				t.Error("its place among the sandboxes being started is lost")
			}
			delete(node.fail, call)
			if ready, err := w.createSandboxAlone(t.Context(), v); !ready || err != nil {
				t.Errorf("mended: got ready %v (%v)", ready, err)
			}
			node.mustHave("mended", whole...)
		})
	}
}

func TestASetupWaitsForItsVolumes(t *testing.T) {
	node := newWorld(t)
	w, v := node.podOf()
	node.slow = true
	if ready, err := w.createSandboxAlone(t.Context(), v); ready || err != nil {
		t.Errorf("got ready %v (%v), want that it waits", ready, err)
	}
	node.mustHaveCalled("EnsureCgroup")
	node.slow = false
	if ready, err := w.createSandboxAlone(t.Context(), v); !ready || err != nil {
		t.Errorf("got ready %v (%v)", ready, err)
	}
	node.mustHave("made", whole...)
}

// The directory of a pod whose cgroup still has a process is not removed: its
// files may be in use. Nor is what the pod is found by again.
func TestARemovalEndsAtACgroupWithAProcess(t *testing.T) {
	node := newWorld(t)
	w, v := node.podOf()
	if _, err := w.createSandboxAlone(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	node.busy = true
	if err := w.setup(v).remove(t.Context()); err == nil {
		t.Error("got no error")
	}
	node.mustHave("busy", "cgroup", "directory", "logs", "mounts", "sandbox", "user namespace")
	node.busy = false
	if err := w.setup(v).remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	node.mustHave("removed", "logs")
}

// A pod whose sandbox's start was canceled ended minutes later only, when the process
// that was left of it was collected as leaked.
func TestARemovalStopsADeadSandboxWhoseProcessIsInTheCgroup(t *testing.T) {
	node := newWorld(t)
	w, v := node.podOf()
	if _, err := w.createSandboxAlone(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	node.busy, node.mistaken, node.calls = true, true, nil
	if err := w.setup(v).remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	node.mustHaveCalled("StopSandbox", "RemoveCgroup", "TearDown", "RemoveSandbox")
	node.mustHave("removed", "logs")
}

// TestARemovalKillsWhatADeadSandboxHasLeftInTheCgroup: a pod whose start was canceled
// stayed for ever, and its name with it, when a process in the cgroup outlived the
// stop of the sandbox.
func TestARemovalKillsWhatADeadSandboxHasLeftInTheCgroup(t *testing.T) {
	node := newWorld(t)
	w, v := node.podOf()
	if _, err := w.createSandboxAlone(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	node.busy, node.mistaken, node.deaf, node.calls = true, true, true, nil
	v.seen.Sandboxes[0].Ready = true
	if err := w.setup(v).remove(t.Context()); err == nil || !node.busy {
		t.Fatalf("a sandbox that runs: got %v, want that its process is left alone", err)
	}
	v.seen.Sandboxes[0].Ready = false
	if err := w.setup(v).remove(t.Context()); err == nil || node.busy {
		t.Fatalf("one that ended: got %v, want that its process is killed, and an error to come back for", err)
	}
	node.calls = nil
	if err := w.setup(v).remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	node.mustHaveCalled("RemoveCgroup", "TearDown", "RemoveSandbox")
	node.mustHave("removed", "logs")
}

func TestAReleaseTriesEverythingAndIsTriedAgainForItsNetwork(t *testing.T) {
	for call, again := range map[string]bool{"StopSandbox": true, "Release": false, "RemoveCgroup": false} {
		t.Run(call, func(t *testing.T) {
			node := newWorld(t)
			w, v := node.podOf()
			if _, err := w.createSandboxAlone(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			node.calls, node.fail[call] = nil, errors.New("broken")
			if err := w.release(t.Context(), v); (err != nil) != again {
				t.Errorf("got %v, want an error: %v", err, again)
			}
			node.mustHaveCalled("StopSandbox", "Release", "RemoveCgroup")
			delete(node.fail, call)
			if err := w.release(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			if tried := len(node.calls) > 0; tried != again {
				t.Errorf("released again: %v, want %v", tried, again)
			}
		})
	}
}

func TestAPlaceIsWaitedForNoLongerThanThePodIsDesired(t *testing.T) {
	node := newWorld(t)
	w, v := node.podOf()
	if _, err := w.agent.startSlots.Acquire(t.Context(), slots.Rest{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errTerminating)
	defer cancel()
	if ready, err := w.createSandboxAlone(ctx, v); ready || !errors.Is(err, errTerminating) {
		t.Errorf("got ready %v (%v), want that the pod is to end", ready, err)
	}
	node.mustHaveCalled("EnsureCgroup", "Ensure")
	if w.agent.startSlots.InUse() != 1 {
		t.Error("somebody else's place was given back")
	}
}

// Observe implements Observer.
func (w *world) Observe(context.Context, pod.UID) (pod.Observed, error) {
	w.calls = append(w.calls, "Observe")
	seen := pod.Observed{UID: "u1", At: time.Now()}
	if w.has["sandbox"] {
		seen.Sandboxes = []pod.Sandbox{{ID: "s1", Ready: w.has["network"], IPs: []string{"10.0.0.1"}}}
	}
	return seen, nil
}

func (w *world) Lookup(ctx context.Context, uid pod.UID) (pod.Observed, error) {
	return w.Observe(ctx, uid)
}
func (w *world) Summaries(context.Context) ([]pod.Summary, error)           { return nil, nil }
func (w *world) RestartCounts(*v1.Pod) (map[string]int32, error)            { return nil, nil }
func (w *world) Link(pod.Observed)                                          {}
func (w *world) LostContainers(pod.UID, []string) ([]string, error)         { return nil, nil }
func (w *world) Pods() ([]pod.UID, error)                                   { return nil, nil }
func (w *world) OrphanedPods(context.Context, []pod.UID) ([]pod.UID, error) { return nil, nil }

// noImage has none, ever.
type noImage struct{}

func (noImage) Ensure(context.Context, *v1.Pod, *v1.Container) (pod.ImageState, error) {
	return pod.ImageState{Reason: pod.ReasonContainerCreating}, nil
}
func (noImage) Forget(pod.UID) {}
func (noImage) Retry(pod.UID)  {}

// reports keeps the last one.
type reports struct{ last pod.Report }

func (r *reports) Report(report pod.Report) { r.last = report }
func (r *reports) Forget(pod.UID)           {}
func (r *reports) Drop(pod.UID)             {}

// runPod runs an agent that has the world's pod to run, until the test ends.
func (w *world) runPod(t *testing.T) (a *Agent, status *reports, updates chan pod.Update, d *pod.Desired) {
	status, updates = new(reports), make(chan pod.Update)
	a = New(Config{
		Parts: Parts{Observer: w, Sandboxes: w, Containers: w, Volumes: w, Cgroups: w, Inputs: w, Files: w, Images: noImage{}},
		Logs:  w, Status: status, Events: quiet{}, Sources: []pod.Source{pod.SourceFile},
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx, updates) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	d = &pod.Desired{Source: pod.SourceFile, Pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "default", UID: "u1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "web", Image: "web"}}},
	}}
	updates <- pod.Update{Op: pod.OpAdd, Source: pod.SourceFile, Pods: []*pod.Desired{d}}
	return a, status, updates, d
}

func TestAPodThatWaitsForItsVolumesSaysSoAndIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newWorld(t)
		node.slow = true
		a, status, _, _ := node.runPod(t)
		time.Sleep(time.Hour)
		synctest.Wait()
		node.mustHaveCalled("Observe", "EnsureCgroup") // once: nothing syncs again by itself
		want := pod.Waiting{Reason: pod.ReasonContainerCreating, Message: "not yet"}
		if got := status.last.Waiting["web"]; got != want {
			t.Errorf("got waiting %+v, want %+v", got, want)
		}
		node.slow = false
		a.Wake("u1", time.Time{})
		synctest.Wait()
		node.mustHaveCalled("Observe", "EnsureCgroup", "Ensure", "Handler", "Sandbox", "PreparePod", "RunSandbox", "Observe")
		if got := status.last.Waiting["web"]; got.Message != "" {
			t.Errorf("got waiting %+v, and the volumes are there", got)
		}
	})
}

func TestAPodThatWaitsForItsVolumesEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newWorld(t)
		node.slow = true
		_, _, updates, d := node.runPod(t)
		synctest.Wait()
		began := time.Now()
		updates <- pod.Update{Op: pod.OpRemove, Source: pod.SourceFile, Pods: []*pod.Desired{d}}
		synctest.Wait()
		node.mustHave("removed")
		if took := time.Since(began); took != 0 {
			t.Errorf("its end took %v", took)
		}
		node.mustHaveCalled("Observe", "EnsureCgroup", "Observe", "Observe", "Observe", "RemoveCgroup", "TearDown")
	})
}

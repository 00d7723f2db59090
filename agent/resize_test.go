package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// smallNode has 1000m of CPU for resizes, and remembers what was done to cgroups.
type smallNode struct {
	mu    sync.Mutex
	calls []string
	// limit and usage are of every pod's memory; fail is what SetCgroup answers.
	limit, usage int64
	fail         error
	infeasible   bool
	raising      func() // before each raise; nil for nothing
}

func request(p *v1.Pod) (milli int64) {
	for i := range p.Spec.Containers {
		milli += p.Spec.Containers[i].Resources.Requests.Cpu().MilliValue()
	}
	return milli
}

func (s *smallNode) AdmitResize(desired, _ *v1.Pod, others []*v1.Pod) pod.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.infeasible {
		return pod.Verdict{Reason: v1.PodReasonInfeasible, Message: "never"}
	}
	used := int64(0)
	for _, p := range others {
		used += request(p)
	}
	if used+request(desired) > 1000 {
		return pod.Verdict{Reason: v1.PodReasonDeferred, Message: fmt.Sprintf("used: %d", used)}
	}
	return pod.Verdict{}
}

func (s *smallNode) note(what string, p *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf("%s %s %dm", what, p.Name, request(p)))
	if what == "hold" {
		return s.fail
	}
	return nil
}

func (s *smallNode) RaiseCgroup(_ context.Context, _ string, p *v1.Pod) error {
	if s.raising != nil {
		s.raising()
	}
	return s.note("raise", p)
}

func (s *smallNode) SetCgroup(_ context.Context, _ string, p *v1.Pod) error { return s.note("hold", p) }

func (s *smallNode) MemoryLimit(p *v1.Pod) (now, next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit, p.Spec.Containers[0].Resources.Limits.Memory().Value()
}

func (s *smallNode) MemoryUsage(*v1.Pod, string) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage, nil
}

// set changes the node while podd runs.
func (s *smallNode) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *smallNode) done() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// resizing plays a script on such a node with manifests NAME-MILLI.yaml of pods
// of one container, and NAME-MILLI-MEMORY.yaml.
func resizing(t *testing.T, play func(s *scenario, n *smallNode)) {
	synctest.Test(t, func(t *testing.T) {
		n := &smallNode{}
		s := &scenario{node: newNode(newFakeRuntime(t)), began: time.Now(), files: make(map[string][]byte)}
		s.resizer = n
		for _, name := range []string{"a", "b"} {
			for _, milli := range []int{100, 400, 600, 900} {
				for _, memory := range []string{"", "-10Mi", "-20Mi"} {
					limits := ""
					if memory != "" {
						limits = ", limits: {memory: " + memory[1:] + "}"
					}
					s.files[fmt.Sprintf("%s-%d%s.yaml", name, milli, memory)] = fmt.Appendf(nil,
						"metadata: {name: %s}\nspec: {containers: [{name: web, resources: {requests: {cpu: %dm}%s}}]}\n", name, milli, limits)
				}
			}
		}
		defer s.end()
		s.play("start-agent; speak file; speak http")
		play(s, n)
	})
}

// is says how a pod's condition stands; empty for none.
func (s *scenario) is(name string, kind v1.PodConditionType) string {
	synctest.Wait()
	s.disk.Lock()
	defer s.disk.Unlock()
	for _, c := range s.report[name].Conditions {
		if c.Type == kind {
			return fmt.Sprintf("%s/%s/%d", c.Reason, c.Message, c.ObservedGeneration)
		}
	}
	return ""
}

func (s *scenario) allocated(name string) string {
	s.disk.Lock()
	defer s.disk.Unlock()
	requests := s.report[name].Allocated["web"].Requests
	return requests.Cpu().String()
}

// podLimit is the memory limit with which a pod as a whole is reported.
func (s *scenario) podLimit(name string) string {
	synctest.Wait()
	s.disk.Lock()
	defer s.disk.Unlock()
	if r := s.report[name].ActuatedPod; r != nil {
		return r.Limits.Memory().String()
	}
	return "allocated"
}

func (s *scenario) count(name, reason string) int {
	s.disk.Lock()
	defer s.disk.Unlock()
	return s.events[name+" "+reason]
}

func TestAResizeIsCarriedOutFromOutsideIn(t *testing.T) {
	resizing(t, func(s *scenario, n *smallNode) {
		s.play("apply a-100.yaml api; sleep 1s; expect a/web running; update a-400.yaml; sleep 1s; expect a/web started=1")
		if got := n.done(); !slices.Equal(got, []string{"raise a 400m", "hold a 400m"}) {
			t.Errorf("cgroups: got %q", got)
		}
		if got := s.is("a", v1.PodResizeInProgress) + s.is("a", v1.PodResizePending); got != "" {
			t.Errorf("conditions: got %q, want none", got)
		}
		if s.count("a", "ResizeStarted") != 1 || s.count("a", "ResizeCompleted") != 1 {
			t.Errorf("events: got %v", s.events)
		}
		s.play("sleep 1h")
		if got := n.done(); len(got) != 0 {
			t.Errorf("afterwards: got %q, want nothing", got)
		}
	})
}

// A container that is restarted for its resize starts in a pod that has room for it: with
// cgroup v1 its start fails otherwise, and memory that the pod lacks would kill it.
func TestAPodIsRaisedBeforeItsContainersStartWithMore(t *testing.T) {
	resizing(t, func(s *scenario, n *smallNode) {
		for _, milli := range []int{100, 400} {
			s.files[fmt.Sprintf("a-%d.yaml", milli)] = fmt.Appendf(nil, "metadata: {name: a}\n"+
				"spec: {containers: [{name: web, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}], resources: {requests: {cpu: %dm}}}]}\n", milli)
		}
		var begun []int // how many had been started at each raise
		n.raising = func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			begun = append(begun, s.started["a/web"])
		}
		s.play("apply a-100.yaml api; sleep 1s; expect a/web running; update a-400.yaml; sleep 5s; expect a/web running started=2")
		if len(begun) == 0 || begun[0] != 1 {
			t.Errorf("got raises after %v starts, want the first after one", begun)
		}
		if got := n.done(); got[len(got)-1] != "hold a 400m" || s.count("a", "ResizeCompleted") != 1 {
			t.Errorf("got %q and %d completions", got, s.count("a", "ResizeCompleted"))
		}
	})
}

// A resize that was refused keeps no container from starting with what it was granted, but that one
// starts in a pod that has room for it.
func TestAPodIsRaisedBeforeItsContainersStartAlsoIfItsResizeIsRefused(t *testing.T) {
	resizing(t, func(s *scenario, n *smallNode) {
		for _, v := range []struct{ milli, mebi int }{{100, 20}, {400, 10}} {
			s.files[fmt.Sprintf("a-%d.yaml", v.milli)] = fmt.Appendf(nil, "metadata: {name: a}\n"+
				"spec: {containers: [{name: web, resources: {requests: {cpu: %dm}}}, {name: side, resources: {limits: {memory: %dMi}}}]}\n", v.milli, v.mebi)
		}
		n.set(func() { n.usage = 15 << 20 })
		s.play("apply a-100.yaml api; sleep 1s; expect a/web running; update a-400.yaml; sleep 3s")
		if got := n.done(); len(got) != 0 || s.count("a", "ResizeError") != 1 {
			t.Errorf("got %q and %d errors, want the resize refused for side's memory", got, s.count("a", "ResizeError"))
		}
		s.play("exit a/web code=1; sleep 3s; expect a/web running started=2; expect a/side started=1")
		if got := n.done(); !slices.Equal(got, []string{"raise a 400m"}) {
			t.Errorf("got %q, want the pod raised for web", got)
		}
	})
}

// A container that is to have more starts once another has given up its part: the pod as a
// whole has no more than before.
func TestAContainerThatGetsLessIsResizedBeforeAnotherStarts(t *testing.T) {
	resizing(t, func(s *scenario, n *smallNode) {
		for _, v := range []struct{ web, side int }{{100, 400}, {400, 100}} {
			s.files[fmt.Sprintf("a-%d.yaml", v.web)] = fmt.Appendf(nil, "metadata: {name: a}\n"+
				"spec: {containers: [{name: web, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], resources: {limits: {memory: %dMi}}},"+
				" {name: side, resources: {limits: {memory: %dMi}}}]}\n", v.web, v.side)
		}
		s.play("apply a-100.yaml api; sleep 1s; expect a/web running; hang UpdateContainer a; update a-400.yaml; sleep 5s; expect a/web started=1; " +
			"release UpdateContainer a; sleep 15s; expect a/web running started=2; expect a/side started=1")
		if got := s.count("a", "ResizeCompleted"); got != 1 {
			t.Errorf("got %d completions, want one", got)
		}
	})
}

func TestAResizeWaitsForRoom(t *testing.T) {
	resizing(t, func(s *scenario, n *smallNode) {
		s.play("apply a-100.yaml api; apply b-600.yaml api; sleep 1s; update a-900.yaml; sleep 1s")
		if got := s.is("a", v1.PodResizePending); got != "Deferred/used: 600/1" {
			t.Errorf("got condition %q, want Deferred", got)
		}
		if got := s.allocated("a"); got != "100m" || s.count("a", "ResizeDeferred") != 1 {
			t.Errorf("got %s allocated and %d events; want 100m and one", got, s.count("a", "ResizeDeferred"))
		}
		s.play("sleep 1h")
		if got := s.count("a", "ResizeDeferred"); got != 1 {
			t.Errorf("after an hour: %d events, want one", got)
		}
		if got := n.done(); len(got) != 0 {
			t.Errorf("cgroups: got %q, want nothing done", got)
		}
		// The one that ends makes room, and nobody waits for the clock.
		s.play("remove b api; sleep 40s; expect b known=false")
		if got := n.done(); !slices.Equal(got, []string{"raise a 900m", "hold a 900m"}) || s.is("a", v1.PodResizePending) != "" {
			t.Errorf("with room: got %q, condition %q", got, s.is("a", v1.PodResizePending))
		}
		// So does one that asks for less.
		s.play("apply b-100.yaml api; sleep 1s; update b-600.yaml; sleep 1s")
		if got := s.is("b", v1.PodResizePending); !strings.HasPrefix(got, "Deferred/") {
			t.Errorf("got condition %q, want Deferred", got)
		}
		s.play("update a-400.yaml; sleep 1s")
		if got := s.is("b", v1.PodResizePending); got != "" {
			t.Errorf("after the other shrank: got condition %q", got)
		}
	})
}

func TestAResizeThatIsTakenBackIsForgotten(t *testing.T) {
	resizing(t, func(s *scenario, n *smallNode) {
		n.set(func() { n.infeasible = true })
		s.play("apply a-100.yaml api; sleep 1s; update a-400.yaml; sleep 1s")
		if got := s.is("a", v1.PodResizePending); got != "Infeasible/never/1" || s.count("a", "ResizeInfeasible") != 1 {
			t.Errorf("got condition %q", got)
		}
		s.play("update a-100.yaml; sleep 1s")
		if got := s.is("a", v1.PodResizePending); got != "" || len(n.done()) != 0 {
			t.Errorf("taken back: got condition %q", got)
		}
	})
}

func TestMemoryInUseIsNotTakenAway(t *testing.T) {
	resizing(t, func(s *scenario, n *smallNode) {
		n.set(func() { n.limit, n.usage = 20<<20, 15<<20 })
		s.play("apply a-100-20Mi.yaml api; sleep 1s; update a-100-10Mi.yaml; sleep 1s")
		want := `Error/cannot decrease memory limits: [attempting to set pod memory limit (10485760) below current usage (15728640), ` +
			`attempting to set container "web" memory limit (10485760) below current usage (15728640)]/1`
		if got := s.is("a", v1.PodResizeInProgress); got != want || s.count("a", "ResizeError") != 1 {
			t.Errorf("got condition %q, %d events", got, s.count("a", "ResizeError"))
		}
		if got := n.done(); len(got) != 0 {
			t.Errorf("cgroups: got %q, want nothing done", got)
		}
		if got := s.podLimit("a"); got != "20Mi" {
			t.Errorf("the pod is reported with a limit of %s, want 20Mi, which it still has", got)
		}
		n.set(func() { n.usage = 5 << 20 })
		s.play("sleep 15s")
		if got := s.podLimit("a"); got != "allocated" {
			t.Errorf("once it is free, the pod is reported with a limit of %s, want what is allocated", got)
		}
		if got := s.is("a", v1.PodResizeInProgress); got != "" || len(n.done()) != 2 || s.count("a", "ResizeCompleted") != 1 {
			t.Errorf("once it is free: got condition %q", got)
		}
	})
}

// TestAPodThatARestartFindsWithAHigherLimitIsResized: the last podd ended before it lowered the
// pod's limit, and by now more memory is in use.
func TestAPodThatARestartFindsWithAHigherLimitIsResized(t *testing.T) {
	restarting(t, func(s *scenario, n *smallNode) {
		n.set(func() { n.limit, n.usage, n.fail = 20<<20, 5<<20, errors.New("no") })
		s.play("apply a-100-20Mi.yaml api; sleep 1s; update a-100-10Mi.yaml; sleep 1s")
		if got := n.done(); !slices.Equal(got, []string{"raise a 100m", "hold a 100m"}) {
			t.Fatalf("got %q, want the containers resized and the pod not", got)
		}
		n.set(func() { n.usage, n.fail = 15<<20, nil })
		s.play("restart-agent; sleep 1m")
		want := "Error/cannot decrease memory limits: attempting to set pod memory limit (10485760) below current usage (15728640)/1"
		if got := s.is("a", v1.PodResizeInProgress); got != want || len(n.done()) != 0 {
			t.Errorf("while it is in use: got condition %q", got)
		}
		n.set(func() { n.usage = 5 << 20 })
		s.play("sleep 15s; expect a/web started=1")
		if got := n.done(); !slices.Equal(got, []string{"raise a 100m", "hold a 100m"}) || s.is("a", v1.PodResizeInProgress) != "" {
			t.Errorf("once it is free: got %q, condition %q", got, s.is("a", v1.PodResizeInProgress))
		}
	})
}

func TestAResizeThatGoesWrongIsTriedAgainNowAndThen(t *testing.T) {
	resizing(t, func(s *scenario, n *smallNode) {
		n.set(func() { n.fail = errors.New("no") })
		s.play("apply a-100.yaml api; sleep 1s; update a-400.yaml; sleep 1m")
		if got := s.is("a", v1.PodResizeInProgress); got != "Error/hold the pod to its limits: no/1" {
			t.Errorf("got condition %q", got)
		}
		if got := len(n.done()); got < 8 || got > 14 || s.count("a", "ResizeError") != 1 {
			t.Errorf("got %d calls in a minute and %d events, want a try each ten seconds and one event", got, s.count("a", "ResizeError"))
		}
		n.set(func() { n.fail = nil })
		s.play("sleep 11s; expect a/web started=1")
		if got := s.is("a", v1.PodResizeInProgress); got != "" {
			t.Errorf("got condition %q", got)
		}
	})
}

// restarting is resizing with an apiserver among the sources, which says what it
// wants again at each start.
func restarting(t *testing.T, play func(s *scenario, n *smallNode)) {
	resizing(t, func(s *scenario, n *smallNode) {
		s.play("stop-agent")
		s.sources = []pod.Source{pod.SourceFile, pod.SourceHTTP, pod.SourceAPIServer}
		s.play("start-agent; speak api")
		play(s, n)
	})
}

// TestARestartGrantsNoPendingResize: it goes on waiting, with what it has, and is
// granted when it fits.
func TestARestartGrantsNoPendingResize(t *testing.T) {
	for _, how := range []string{"restart-agent", "kill-agent; sleep 100ms; start-agent"} {
		restarting(t, func(s *scenario, n *smallNode) {
			s.play("apply a-100.yaml api; apply b-600.yaml api; sleep 1s; update a-900.yaml; sleep 1s; " + how + "; sleep 1h; expect a/web running started=1")
			if got := s.is("a", v1.PodResizePending); got != "Deferred/used: 600/1" {
				t.Errorf("%s: got condition %q, want Deferred", how, got)
			}
			if got := s.allocated("a"); got != "100m" {
				t.Errorf("%s: got %s allocated, want 100m", how, got)
			}
			if got := n.done(); len(got) != 0 || s.count("a", "ResizeStarted") != 0 {
				t.Errorf("%s: cgroups: got %q, and %d events of a start; want nothing done", how, got, s.count("a", "ResizeStarted"))
			}
			s.play("remove b api; sleep 40s; expect b known=false")
			if got := n.done(); !slices.Equal(got, []string{"raise a 900m", "hold a 900m"}) || s.is("a", v1.PodResizePending) != "" {
				t.Errorf("%s, with room: got %q, condition %q", how, got, s.is("a", v1.PodResizePending))
			}
			// What was granted then is what the next podd finds.
			s.play(how + "; sleep 1m; expect a/web started=1")
			if got := n.done(); len(got) != 0 || s.is("a", v1.PodResizePending) != "" || s.count("a", "ResizeStarted") != 1 {
				t.Errorf("%s, once it was granted: got %q", how, got)
			}
			s.play("remove a api; sleep 2m; expect nothing left")
		})
	}
}

// TestARestartAsksAgainAboutAnInfeasibleResize, and grants it no more than before.
func TestARestartAsksAgainAboutAnInfeasibleResize(t *testing.T) {
	restarting(t, func(s *scenario, n *smallNode) {
		n.set(func() { n.infeasible = true })
		s.play("apply a-100.yaml api; sleep 1s; update a-400.yaml; sleep 1s; restart-agent; sleep 1m")
		if got := s.is("a", v1.PodResizePending); got != "Infeasible/never/1" || len(n.done()) != 0 {
			t.Errorf("got condition %q", got)
		}
		n.set(func() { n.infeasible = false })
		s.play("restart-agent; sleep 1m; expect a/web started=1")
		if got := n.done(); !slices.Equal(got, []string{"raise a 400m", "hold a 400m"}) {
			t.Errorf("on a node on which it fits: got %q", got)
		}
	})
}

// TestAResizeDuringADowntimeOfPoddIsDecided once all sources are
// ready: before, it is unknown what fits.
func TestAResizeDuringADowntimeOfPoddIsDecided(t *testing.T) {
	restarting(t, func(s *scenario, n *smallNode) {
		s.play("apply a-100.yaml api; sleep 1s; stop-agent; update a-400.yaml; silent http; start-agent; sleep 1m; expect a/web running")
		if got := n.done(); len(got) != 0 || s.is("a", v1.PodResizePending) != "" || s.allocated("a") != "100m" {
			t.Errorf("before all are ready: got %q, condition %q, %s allocated", got, s.is("a", v1.PodResizePending), s.allocated("a"))
		}
		s.play("speak http; sleep 1s; expect a/web started=1")
		if got := n.done(); !slices.Equal(got, []string{"raise a 400m", "hold a 400m"}) || s.count("a", "ResizeStarted") != 1 {
			t.Errorf("then: got %q", got)
		}
	})
}

// TestAfterABootAPodHasWhatItWasGranted: it is admitted with that, and what it
// desires is a proposal.
func TestAfterABootAPodHasWhatItWasGranted(t *testing.T) {
	restarting(t, func(s *scenario, n *smallNode) {
		s.play("apply a-100.yaml api; apply b-600.yaml api; sleep 1s; update a-900.yaml; sleep 1s; stop-agent; vanish a; vanish b; start-agent; sleep 1m; expect a/web running; expect b/web running")
		if got := s.is("a", v1.PodResizePending); got != "Deferred/used: 600/1" || s.allocated("a") != "100m" {
			t.Errorf("got condition %q, %s allocated", got, s.allocated("a"))
		}
	})
}

// TestAnAllocationThatCannotBeReadIsForgotten: the pod runs on, and is taken to have
// what its source desires.
func TestAnAllocationThatCannotBeReadIsForgotten(t *testing.T) {
	for _, text := range []string{"", "{", "null", `{"uid":"another"}`, "remove", "other"} {
		restarting(t, func(s *scenario, n *smallNode) {
			s.play("apply a-100.yaml api; sleep 1s; update a-400.yaml; sleep 1s; stop-agent")
			n.done()
			file := filepath.Join(s.allocations, string(s.wants[pod.SourceAPIServer]["a"].UID())+".json")
			written, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			switch text {
			case "remove":
				err = os.Remove(file)
			case "other": // against its checksum
				err = os.WriteFile(file, []byte(strings.Replace(string(written), "400m", "900m", 1)), 0o600)
			default:
				err = os.WriteFile(file, []byte(text), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			s.play("start-agent; sleep 1m; expect a/web running started=1")
			if got := s.is("a", v1.PodResizePending) + s.is("a", v1.PodResizeInProgress); got != "" || len(n.done()) != 0 {
				t.Errorf("%q: got condition %q", text, got)
			}
			if again, err := os.ReadFile(file); err != nil || string(again) != string(written) {
				t.Errorf("%q: got %s (%v), want %s again", text, again, err, written)
			}
		})
	}
}

// TestAnAllocationThatCannotBeKeptIsGranted: a full disk costs only the memory of it.
func TestAnAllocationThatCannotBeKeptIsGranted(t *testing.T) {
	restarting(t, func(s *scenario, n *smallNode) {
		s.play("stop-agent")
		s.allocations = filepath.Join(s.allocations, "file", "below")
		if err := os.WriteFile(filepath.Dir(s.allocations), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.play("start-agent; apply a-100.yaml api; sleep 1s; update a-400.yaml; sleep 1s; expect a/web running started=1")
		if got := n.done(); !slices.Equal(got, []string{"raise a 400m", "hold a 400m"}) {
			t.Errorf("got %q", got)
		}
	})
}

// TestAllocationsOfRemovedPodsAreForgotten, also when they went while podd was
// down; a static pod, whose resources are its identity, has none.
func TestAllocationsOfRemovedPodsAreForgotten(t *testing.T) {
	restarting(t, func(s *scenario, n *smallNode) {
		left := func() int {
			files, err := os.ReadDir(s.allocations)
			if err != nil {
				t.Fatal(err)
			}
			return len(files)
		}
		s.play("apply a-100.yaml api; apply b-100.yaml; sleep 1s")
		if got := left(); got != 1 {
			t.Errorf("got %d files, want that of the apiserver's pod", got)
		}
		s.play("stop-agent; vanish a; remove a api; start-agent; sleep 1m")
		if got := left(); got != 0 {
			t.Errorf("got %d files of pods that are gone", got)
		}
	})
}

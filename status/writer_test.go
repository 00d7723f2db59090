package status

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

func named(ns, name string) option {
	return func(s *scene) {
		s.Desired.Pod.Namespace, s.Desired.Pod.Name = ns, name
		s.Desired.Pod.UID = pod.UID(ns + "-" + name)
	}
}

func TestWriterListsSortedSnapshots(t *testing.T) {
	w := NewWriter(Config{})
	for _, n := range []string{"b", "c", "a"} {
		w.Report(aScene(named("default", n), with("x", running(0, 2))))
	}
	w.Report(aScene(named("apps", "z"), with("x")))
	var names []string
	for _, p := range w.Pods() {
		names = append(names, p.Namespace+"/"+p.Name+" "+string(p.Status.Phase))
	}
	want := []string{"apps/z Pending", "default/a Running", "default/b Running", "default/c Running"}
	if !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	snapshot := w.Pods()[0]
	w.Report(aScene(named("apps", "z"), with("x", running(0, 2))))
	if snapshot.Status.Phase != v1.PodPending || w.Pod("apps-z").Status.Phase != v1.PodRunning {
		t.Errorf("snapshot %s, now %s: want Pending kept and Running now", snapshot.Status.Phase, w.Pod("apps-z").Status.Phase)
	}
	if got := w.Origin("apps-z"); got != "/etc/podd/manifests/web.yaml" {
		t.Errorf("origin: got %q", got)
	}
	w.Forget("apps-z")
	if w.Pod("apps-z") != nil || len(w.Pods()) != 3 || w.Origin("apps-z") != "" {
		t.Error("a forgotten pod is still there")
	}
}

func poked(changes <-chan struct{}) bool {
	select {
	case <-changes:
		return true
	default:
		return false
	}
}

// uids are the pods that w knows, in its order.
func uids(w *Writer) (all []pod.UID) {
	for _, p := range w.Pods() {
		all = append(all, p.UID)
	}
	return all
}

func TestChangesTellOnlyRealChanges(t *testing.T) {
	w := NewWriter(Config{})
	changes, stop := w.Changes()
	defer stop()
	report := aScene(named("default", "a"), with("x", running(0, 2)))
	w.Report(report)
	if !poked(changes) || !slices.Equal(uids(w), []pod.UID{"default-a"}) {
		t.Fatal("the first report was not announced")
	}
	report.At = at(5000)
	before := w.Pod("default-a")
	w.Report(report)
	if poked(changes) || w.Pod("default-a") != before {
		t.Error("the same status, looked at later, was announced")
	}
	w.Report(aScene(named("default", "a"), with("x", exited(0, 1, 7))))
	w.Report(aScene(named("default", "a"), with("x", running(1, 8), exited(0, 1, 7))))
	w.Report(aScene(named("default", "b"), with("x")))
	if !poked(changes) || poked(changes) {
		t.Error("three changes: want exactly one poke")
	}
	if got := uids(w); !slices.Equal(got, []pod.UID{"default-a", "default-b"}) {
		t.Errorf("got %v, want both pods once", got)
	}
	w.Forget("default-b")
	if !poked(changes) || !slices.Equal(uids(w), []pod.UID{"default-a"}) {
		t.Error("forgetting was not announced")
	}
	w.Forget("default-b")
	if poked(changes) {
		t.Error("forgetting twice was announced twice")
	}
	stop()
	w.Forget("default-a")
	if poked(changes) {
		t.Error("a subscription that has ended was poked")
	}
}

func TestWriterFromManyWorkers(t *testing.T) {
	w := NewWriter(Config{})
	changes, stop := w.Changes()
	defer stop()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			name := fmt.Sprintf("p%02d", i)
			w.Report(aScene(named("default", name), with("x")))
			w.Report(aScene(named("default", name), with("x", running(0, 2))))
			w.Pods()
			w.Report(aScene(named("default", name), with("x", exited(0, 1, 7))))
		})
	}
	wg.Wait()
	if n := len(w.Pods()); n != 50 || !poked(changes) {
		t.Errorf("got %d changed pods, want 50, and that this is told", n)
	}
}

func TestEqualIgnoresWhatOthersOwn(t *testing.T) {
	a := compute(aScene(with("x", running(0, 2))), v1.PodStatus{})
	b := *a.DeepCopy()
	b.Conditions = append(b.Conditions, v1.PodCondition{Type: "example.com/lb", Status: v1.ConditionTrue})
	b.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu"}}
	slices.Reverse(b.Conditions)
	if !Equal(&a, &b) {
		t.Error("what others own made a difference")
	}
	for name, change := range map[string]func(*v1.PodStatus){
		"phase":     func(s *v1.PodStatus) { s.Phase = v1.PodFailed },
		"condition": func(s *v1.PodStatus) { s.Conditions[1].Message = "x" },
		"container": func(s *v1.PodStatus) { s.ContainerStatuses[0].RestartCount++ },
		"ip":        func(s *v1.PodStatus) { s.PodIP = "10.0.0.1" },
	} {
		c := *a.DeepCopy()
		change(&c)
		if Equal(&a, &c) {
			t.Errorf("a changed %s made no difference", name)
		}
	}
}

func TestWriterMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	w := NewWriter(Config{Metrics: reg})
	w.Report(aScene(named("default", "a"), with("x")))
	w.Report(aScene(named("default", "a"), with("x", running(0, 2))))
	w.Report(aScene(named("default", "b"), with("x")))
	w.Report(aScene(named("default", "c"), with("x")))
	w.Forget("default-c")
	want := `
# HELP podd_pods Pods that podd knows, by phase of their status.
# TYPE podd_pods gauge
podd_pods{phase="Failed"} 0
podd_pods{phase="Pending"} 1
podd_pods{phase="Running"} 1
podd_pods{phase="Succeeded"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "podd_pods"); err != nil {
		t.Error(err)
	}
}

// BenchmarkReport is one look at a pod of which nothing changed.
func BenchmarkReport(b *testing.B) {
	w := NewWriter(Config{})
	r := aScene(with("a", running(0, 2)), with("b", running(1, 3), exited(0, 1, 2)))
	for b.Loop() {
		w.Report(r)
	}
}

func TestOptionsCountFromTheNextReportOn(t *testing.T) {
	w := NewWriter(Config{})
	r := aScene(with("a", running(0, 2)))
	w.Report(r)
	w.SetOptions(Options{RuntimeName: "cri-o", HostIPs: []string{"192.0.2.7"}})
	w.Report(r)
	if s := w.Pod("u1").Status; s.HostIP != "192.0.2.7" || s.ContainerStatuses[0].ContainerID != "cri-o://a-0" {
		t.Errorf("got %s, %s", s.HostIP, s.ContainerStatuses[0].ContainerID)
	}
}

// What an apiserver's update changes of a pod is taken up though its status says
// the same.
func TestAnotherAddressOfTheNodeIsInTheStatusesAtOnce(t *testing.T) {
	w := NewWriter(Config{Options: Options{HostIPs: []string{"192.0.2.1"}}})
	onNode := func(s *scene) { s.Desired.Pod.Spec.HostNetwork = true }
	w.Report(aScene(named("default", "a"), with("x", running(0, 2))))
	w.Report(aScene(named("default", "b"), onNode, with("x", running(0, 2))))
	w.Report(aScene(named("default", "ended"), func(s *scene) { s.Desired.Pod.Spec.RestartPolicy = v1.RestartPolicyNever }, with("x", exited(0, 0, 3))))
	before := w.Pod("default-a")
	if w.Pod("default-ended").Status.Phase != v1.PodSucceeded {
		t.Fatalf("got %s", w.Pod("default-ended").Status.Phase)
	}
	changes, stop := w.Changes()
	defer stop()
	w.SetOptions(Options{HostIPs: []string{"192.0.2.2", "2001:db8::2"}})
	if !poked(changes) {
		t.Error("nobody is told")
	}
	a, b, ended := w.Pod("default-a").Status, w.Pod("default-b").Status, w.Pod("default-ended").Status
	if a.HostIP != "192.0.2.2" || len(a.HostIPs) != 2 || a.HostIPs[1].IP != "2001:db8::2" || a.PodIP != before.Status.PodIP || a.Phase != v1.PodRunning {
		t.Errorf("got %+v", a)
	}
	if b.HostIP != "192.0.2.2" || b.PodIP != "192.0.2.2" || len(b.PodIPs) != 2 {
		t.Errorf("on the node's network: got %+v", b)
	}
	if ended.HostIP != "192.0.2.1" {
		t.Errorf("a pod that has ended has moved to %s", ended.HostIP)
	}
	if before.Status.HostIP != "192.0.2.1" {
		t.Error("what somebody reads was changed")
	}
	w.SetOptions(Options{HostIPs: []string{"192.0.2.2", "2001:db8::2"}})
	if poked(changes) {
		t.Error("the same addresses are announced")
	}
}

func TestAnUpdateOfThePodIsTakenUp(t *testing.T) {
	now := metav1.NewTime(at(90))
	for name, change := range map[string]func(*v1.Pod){
		"version":    func(p *v1.Pod) { p.ResourceVersion = "2" },
		"generation": func(p *v1.Pod) { p.Generation = 2 },
		"deletion":   func(p *v1.Pod) { p.DeletionTimestamp = &now },
	} {
		w := NewWriter(Config{})
		r := aScene(with("a", running(0, 2)))
		w.Report(r)
		changed := r.Desired.Pod.DeepCopy()
		change(changed)
		again := *r.Desired
		again.Pod = changed
		r.Desired = &again
		w.Report(r)
		if got := w.Pod("u1"); got.ResourceVersion != changed.ResourceVersion || got.Generation != changed.Generation || !got.DeletionTimestamp.Equal(changed.DeletionTimestamp) {
			t.Errorf("%s: got %s, %d, %v", name, got.ResourceVersion, got.Generation, got.DeletionTimestamp)
		}
	}
}

// A runtime that answers late after a restart of podd must not make a pod that ran
// on look as if it had stopped meanwhile, nor as if it had just become ready.
func TestAPodThatWasNotSeenYetIsNotUnready(t *testing.T) {
	seen := aScene(with("a", running(0, 2)), func(s *scene) {
		s.spec().Containers[0].ReadinessProbe = &v1.Probe{}
		s.Probes = pod.ProbeResults{"a": {ContainerID: "a-0", Ready: pod.ProbeSucceeded}}
	})
	want := NewWriter(Config{})
	want.Report(seen)

	w := NewWriter(Config{})
	unseen := seen
	unseen.NotObserved, unseen.Observed, unseen.Probes = true, pod.Observed{UID: seen.Desired.UID()}, nil
	unseen.StartTime, unseen.At = at(80), at(80)
	unseen.Waiting = map[string]pod.Waiting{"a": {Reason: pod.ReasonContainerCreating, Message: "the runtime is away"}}
	w.Report(unseen)
	got := w.Pod("u1").Status
	if cs := got.ContainerStatuses; got.Phase != v1.PodPending || len(got.Conditions) > 0 || got.StartTime != nil ||
		len(cs) != 1 || cs[0].State.Waiting == nil || cs[0].State.Waiting.Message != "the runtime is away" {
		t.Errorf("before the first look: got %+v, want Pending with a container that waits, no conditions and no start", got)
	}
	changes, stop := w.Changes()
	defer stop()
	w.Report(unseen)
	if poked(changes) {
		t.Error("the same again was told as news")
	}
	w.Report(seen)
	if got, want := w.Pod("u1").Status, want.Pod("u1").Status; !reflect.DeepEqual(got, want) {
		t.Errorf("after the first look: got\n%+v\nwant, as without the wait,\n%+v", got, want)
	}
}

// A podd that was just started ends a pod whose deadline passed meanwhile. Pending is the
// default with which a manifest is decoded, and with which an apiserver takes a pod: it
// says nothing of a pod that has not been shown yet.
func TestTheDefaultPhaseIsNoHistory(t *testing.T) {
	shown := metav1.NewTime(at(1))
	for name, c := range map[string]struct {
		source pod.Source
		before v1.PodStatus
		seen   []option
		want   v1.PodPhase
	}{
		"a manifest's pod that runs":             {pod.SourceFile, v1.PodStatus{Phase: v1.PodPending}, []option{with("x", running(0, 2))}, v1.PodRunning},
		"an apiserver's that nobody showed":      {pod.SourceAPIServer, v1.PodStatus{Phase: v1.PodPending}, []option{with("x", running(0, 2))}, v1.PodRunning},
		"an apiserver's that was shown waiting":  {pod.SourceAPIServer, v1.PodStatus{Phase: v1.PodPending, StartTime: &shown}, []option{with("x", running(0, 2))}, v1.PodPending},
		"one that has only begun its init phase": {pod.SourceFile, v1.PodStatus{Phase: v1.PodPending}, []option{withInit("i", running(0, 2)), with("x")}, v1.PodPending},
	} {
		w := NewWriter(Config{})
		r := aScene(append([]option{named("default", "a")}, c.seen...)...)
		r.Desired.Source, r.Desired.Pod.Status = c.source, c.before
		r.Failed, r.Reason = true, pod.ReasonDeadlineExceeded
		w.Report(r)
		if got := w.Pod("default-a").Status.Phase; got != c.want {
			t.Errorf("%s: while it is being ended: got %s, want %s", name, got, c.want)
		}
		ended := aScene(named("default", "a"), with("x", exited(0, 143, 3)))
		ended.Desired = r.Desired
		ended.Failed, ended.Reason = true, pod.ReasonDeadlineExceeded
		w.Report(ended)
		if got := w.Pod("default-a").Status; got.Phase != v1.PodFailed || got.Reason != pod.ReasonDeadlineExceeded {
			t.Errorf("%s: after its end: got %s %s", name, got.Phase, got.Reason)
		}
	}
}

package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podd/internal/pod"
	"podd/internal/wake"
)

// server is an apiserver that shows its pods to a Manager after each change.
type server struct {
	mu      sync.Mutex
	manager *Manager
	pods    map[string]*v1.Pod
	refuse  error
	calls   []string
	serial  int
	changes wake.Signal
	left    bool         // nobody listens to changes any more
	log     bytes.Buffer // of the Manager
}

func (s *server) CreatePod(_ context.Context, p *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, "create "+p.Name)
	if s.refuse != nil {
		return s.refuse
	}
	if s.pods[p.Name] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, p.Name)
	}
	s.serial++
	stored := p.DeepCopy()
	stored.UID = pod.UID(fmt.Sprintf("mirror-%d", s.serial))
	s.pods[p.Name] = stored
	s.show()
	return nil
}

func (s *server) DeletePod(_ context.Context, _, name string, uid pod.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf("delete %s %s", name, uid))
	switch there := s.pods[name]; {
	case there == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	case there.UID != uid:
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("the UID in the precondition does not match the UID in record"))
	}
	delete(s.pods, name)
	s.show()
	return nil
}

func (s *server) show() {
	var all []*v1.Pod
	for _, p := range s.pods {
		all = append(all, p)
	}
	s.manager.ObservePods(all)
}

func (s *server) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func static(name, hash string) *pod.Desired {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: pod.UID(hash), Annotations: map[string]string{pod.AnnotationHash: hash}}}
	p.Spec.NodeName = "node"
	return &pod.Desired{Pod: p, Source: pod.SourceFile}
}

// run starts a Manager beside a server; here are the statuses of pods that are on the node.
func run(t *testing.T, here map[pod.UID]*v1.PodStatus) *server {
	t.Helper()
	s := &server{pods: map[string]*v1.Pod{}, changes: wake.New()}
	s.manager = New(Config{
		Client: s, Node: func() *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}} },
		Status: func(uid pod.UID) *v1.PodStatus { return here[uid] }, Changes: func() (<-chan struct{}, func()) { return s.changes, func() { s.left = true } },
		Log: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.manager.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || !s.left {
			t.Errorf("Run returned %v, and no longer listens: %t", err, s.left)
		}
	})
	return s
}

func expect(t *testing.T, s *server, what string, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := s.took(); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestAMirrorPodFollowsItsStaticPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := map[pod.UID]*v1.PodStatus{}
		s := run(t, here)
		s.manager.SetStaticPods([]*pod.Desired{static("web", "1")}, true)
		expect(t, s, "before the apiserver has answered")
		s.manager.ObservePods(nil)
		expect(t, s, "a new static pod", "create web")
		m := s.pods["web"]
		owner := m.OwnerReferences[0]
		if m.Annotations[v1.MirrorPodAnnotationKey] != "1" || owner.Kind != "Node" || owner.UID != "node-uid" || !*owner.Controller || m.Spec.NodeName != "node" {
			t.Errorf("got %+v", m)
		}
		here["1"] = &v1.PodStatus{Phase: v1.PodRunning}
		s.manager.SetStaticPods([]*pod.Desired{static("web", "2")}, true)
		expect(t, s, "an edited one whose predecessor still ends")
		if got := s.pods["web"]; got != m {
			t.Errorf("the mirror pod was replaced by %+v", got)
		}
		delete(here, "1")
		s.manager.Wake()
		expect(t, s, "an edited one whose predecessor has gone", "delete web mirror-1", "create web")
		here["2"] = &v1.PodStatus{Phase: v1.PodRunning}
		s.manager.SetStaticPods(nil, true)
		expect(t, s, "a removed one that still ends")
		delete(here, "2")
		s.manager.Wake()
		expect(t, s, "one that has gone", "delete web mirror-2")
	})
}

func TestAMirrorPodThatSomebodyDeletesIsCreatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, nil)
		s.manager.SetStaticPods([]*pod.Desired{static("web", "1")}, true)
		s.manager.ObservePods(nil)
		expect(t, s, "at first", "create web")
		s.mu.Lock()
		s.pods["web"] = s.pods["web"].DeepCopy()
		s.pods["web"].DeletionTimestamp = &metav1.Time{Time: time.Now()}
		s.show()
		s.mu.Unlock()
		expect(t, s, "its deletion was requested", "delete web mirror-1", "create web")
		s.mu.Lock()
		delete(s.pods, "web")
		s.show()
		s.mu.Unlock()
		expect(t, s, "it was deleted at once", "create web")
	})
}

// A static pod that was rejected at first, or is retried, runs again; the object that shows
// it has ended, and cannot say so.
func TestAMirrorPodThatHasEndedIsMadeAnewWhenItsPodRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := map[pod.UID]*v1.PodStatus{"1": {Phase: v1.PodFailed}}
		s := run(t, here)
		s.manager.ObservePods(nil)
		s.manager.SetStaticPods([]*pod.Desired{static("web", "1")}, true)
		expect(t, s, "at first", "create web")
		s.mu.Lock()
		s.pods["web"] = s.pods["web"].DeepCopy()
		s.pods["web"].Status.Phase = v1.PodFailed
		s.show()
		s.mu.Unlock()
		expect(t, s, "both have ended")
		for _, phase := range []v1.PodPhase{"", v1.PodSucceeded} {
			here["1"] = &v1.PodStatus{Phase: phase}
			s.changes <- struct{}{}
			expect(t, s, "its phase is "+string(phase))
		}
		here["1"] = &v1.PodStatus{Phase: v1.PodPending}
		s.changes <- struct{}{}
		expect(t, s, "it starts over", "delete web mirror-1", "create web")
	})
}

func TestAMirrorPodWhoseSourceIsLateStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, nil)
		p := static("web", "1").Pod
		p.UID, p.Annotations = "mirror-9", map[string]string{v1.MirrorPodAnnotationKey: "1"}
		other := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-the-cluster", UID: "x"}}
		s.pods["web"], s.pods["of-the-cluster"] = p, other
		s.manager.ObservePods([]*v1.Pod{p, other})
		s.manager.SetStaticPods(nil, false)
		expect(t, s, "before its source is ready")
		s.manager.SetStaticPods(nil, true)
		expect(t, s, "then", "delete web mirror-9")
	})
}

func TestARefusedMirrorPodIsTriedMoreAndMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, nil)
		s.refuse = errors.New("pod may not reference secrets")
		s.manager.ObservePods(nil)
		s.manager.SetStaticPods([]*pod.Desired{static("web", "1")}, true)
		expect(t, s, "at once", "create web")
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(s.took()); n < 15 || n > 25 {
			t.Errorf("tried %d times in an hour, want about 20", n)
		}
		s.manager.SetStaticPods([]*pod.Desired{static("web", "2")}, true)
		expect(t, s, "an edit", "create web")
		s.mu.Lock()
		s.refuse = nil
		s.mu.Unlock()
		time.Sleep(retryBackoff.Initial)
		expect(t, s, "when it is taken", "create web")
		time.Sleep(time.Hour)
		expect(t, s, "later")
	})
}

// An apiserver that has only just started says so of pods that it has.
func TestAMirrorPodThatIsNotFoundIsDeletedWhenItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, nil)
		s.manager.ObservePods(nil)
		s.manager.SetStaticPods([]*pod.Desired{static("web", "1")}, true)
		expect(t, s, "at first", "create web")
		s.mu.Lock()
		there := s.pods["web"]
		delete(s.pods, "web") // not found, and not seen to be gone
		s.mu.Unlock()
		s.manager.SetStaticPods(nil, true)
		expect(t, s, "its static pod went", "delete web mirror-1")
		s.mu.Lock()
		s.pods["web"] = there
		s.mu.Unlock()
		time.Sleep(retryBackoff.Initial)
		expect(t, s, "once it is found", "delete web mirror-1")
		time.Sleep(time.Hour)
		expect(t, s, "later")
	})
}

// What the apiserver has and did not show yet will be seen: neither is a failure, which would
// be told and tried again.
func TestWhatTheApiserverHasAlreadyIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, nil)
		of := func(uid pod.UID, hash string) *v1.Pod {
			p := static("web", hash).Pod
			p.UID, p.Annotations = uid, map[string]string{v1.MirrorPodAnnotationKey: hash}
			return p
		}
		behind := func(p *v1.Pod) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.pods["web"] = p
		}
		behind(of("of-another-podd", "1"))
		s.manager.SetStaticPods([]*pod.Desired{static("web", "1")}, true)
		expect(t, s, "before the apiserver has answered")
		s.manager.ObservePods(nil)
		expect(t, s, "a pod of the name is there", "create web")
		time.Sleep(time.Hour)
		expect(t, s, "an hour later")
		s.manager.ObservePods([]*v1.Pod{s.pods["web"]})
		expect(t, s, "once it is seen")

		behind(of("of-a-third", "1"))
		s.manager.SetStaticPods(nil, true)
		expect(t, s, "it has been replaced", "delete web of-another-podd")
		time.Sleep(time.Hour)
		expect(t, s, "an hour later")
		s.manager.ObservePods([]*v1.Pod{s.pods["web"]})
		expect(t, s, "once the other is seen", "delete web of-a-third")
		if s.log.Len() > 0 {
			t.Errorf("it was told: %s", s.log.String())
		}
	})
}

// What is refused is told once for each reason, and a pod that the apiserver does not find is
// never told.
func TestARefusalIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, nil)
		told := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if got := strings.Count(s.log.String(), "level=WARN"); got != want {
				t.Errorf("%s: told %d times, want %d:\n%s", what, got, want, s.log.String())
			}
		}
		refuse := func(err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.refuse = err
		}
		refuse(errors.New("pod may not reference secrets"))
		s.manager.ObservePods(nil)
		s.manager.SetStaticPods([]*pod.Desired{static("web", "1")}, true)
		time.Sleep(time.Hour)
		told("one reason", 1)
		refuse(errors.New("exceeded quota"))
		time.Sleep(time.Hour)
		told("another", 2)
		refuse(nil)
		time.Sleep(retryBackoff.Max)
		s.mu.Lock()
		there := s.pods["web"]
		delete(s.pods, "web")
		s.mu.Unlock()
		if there == nil {
			t.Fatal("it was not created")
		}
		s.manager.SetStaticPods(nil, true)
		time.Sleep(time.Hour)
		told("one that is not found", 2)
	})
}

package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"podd/internal/pod"
	"podd/status"
)

// server is an apiserver as far as an Uploader sees one: pods with versions, and what was
// requested. It may be away, or slow.
type server struct {
	t *testing.T

	mu       sync.Mutex
	pods     map[string]*v1.Pod
	version  int
	away     bool
	slow     time.Duration
	requests []string
	metrics  *prometheus.Registry // the Writer's
}

func newServer(t *testing.T) *server { return &server{t: t, pods: map[string]*v1.Pod{}, version: 1} }

func (s *server) bind(names ...string) {
	for _, name := range names {
		s.store(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: pod.UID("uid-" + name)}, Status: v1.PodStatus{Phase: v1.PodPending}})
	}
}

func (s *server) store(p *v1.Pod) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
	s.pods[p.Name] = p
	return p
}

func (s *server) list() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*v1.Pod
	for _, p := range s.pods {
		all = append(all, p)
	}
	return all
}

func (s *server) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func (s *server) request(verb, name string) (*v1.Pod, error) {
	s.mu.Lock()
	slow := s.slow
	s.mu.Unlock()
	time.Sleep(slow)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errors.New("connection refused")
	}
	s.requests = append(s.requests, verb+" "+name)
	p := s.pods[name]
	if p == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	return p, nil
}

func (s *server) PatchPodStatus(_ context.Context, _, name string, patch []byte) (*v1.Pod, error) {
	p, err := s.request("patch", name)
	if err != nil {
		return nil, err
	}
	var said struct{ Metadata struct{ UID pod.UID } }
	if err := json.Unmarshal(patch, &said); err != nil || said.Metadata.UID != p.UID {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("another UID"))
	}
	before, _ := json.Marshal(p)
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Pod{})
	if err != nil {
		return nil, err
	}
	out := &v1.Pod{}
	if err := json.Unmarshal(after, out); err != nil {
		return nil, err
	}
	return s.store(out), nil
}

func (s *server) DeletePod(_ context.Context, _, name string, uid pod.UID) error {
	p, err := s.request("delete", name)
	if err != nil {
		return err
	}
	if p.UID != uid {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("another UID"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, name)
	return nil
}

// did returns the requests since the last call.
func (s *server) did() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.requests
	s.requests = nil
	slices.Sort(out)
	return out
}

func (s *server) want(what string, requests ...string) {
	s.t.Helper()
	if got := s.did(); !slices.Equal(got, requests) {
		s.t.Errorf("%s: got requests %q, want %q", what, got, requests)
	}
}

// uploading runs an Uploader in a bubble.
func uploading(t *testing.T, run func(t *testing.T, s *server, w *status.Writer, u *status.Uploader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		var u *status.Uploader
		s.metrics = prometheus.NewRegistry()
		w := status.NewWriter(status.Config{Metrics: s.metrics, OnForget: func(p *v1.Pod) { u.PodRemoved(p) }})
		u = status.NewUploader(s, w, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- u.Run(ctx) }()
		run(t, s, w, u)
		cancel()
		<-done
	})
}

// tell reports a pod as the agent does: with containers that have exited, or none.
func tell(s *server, w *status.Writer, name, message string) {
	s.mu.Lock()
	p := *s.pods[name]
	s.mu.Unlock()
	p.Spec.Containers = []v1.Container{{Name: "main"}}
	w.Report(pod.Report{
		Desired: &pod.Desired{Pod: &p, Source: pod.SourceAPIServer}, Phase: pod.PhasePending,
		Observed: pod.Observed{UID: p.UID, At: time.Now()}, StartTime: time.Now(), At: time.Now(),
		Waiting: map[string]pod.Waiting{"main": {Reason: "ContainerCreating", Message: message}},
	})
}

func TestOnlyTheNewestStatusIsSent(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		s.bind("web")
		s.slow = time.Second
		u.ObservePods(s.list())
		for i := range 100 {
			tell(s, w, "web", fmt.Sprint(i))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		s.want("100 changes in the time of one request", "patch web", "patch web")
		if got := s.list()[0].Status.ContainerStatuses[0].State.Waiting.Message; got != "99" {
			t.Errorf("got the status of change %s, want the last", got)
		}
		u.ObservePods(s.list()) // the watch shows what was patched
		time.Sleep(time.Minute)
		s.want("nothing changes")
	})
}

// TestHowLongAChangeTookToReachTheApiserver counts from the change on, attempts that failed
// included, and nothing that the apiserver changes.
func TestHowLongAChangeTookToReachTheApiserver(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		s.bind("web")
		u.ObservePods(s.list())
		s.setAway(true)
		tell(s, w, "web", "before")
		time.Sleep(20 * time.Second)
		s.setAway(false)
		time.Sleep(time.Minute)
		u.ObservePods(s.list()) // the watch shows what was patched
		time.Sleep(time.Minute)
		families, err := s.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "kubelet_pod_status_sync_duration_seconds" {
				continue
			}
			if h := f.Metric[0].GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() < 20 || h.GetSampleSum() > 40 {
				t.Errorf("%d uploads took %v s, want one of 20 s and the time until the next attempt", h.GetSampleCount(), h.GetSampleSum())
			}
			return
		}
		t.Error("nothing was measured")
	})
}

func TestAfterAnOutageEachChangedPodIsPatchedOnce(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		s.bind("a", "b", "c")
		u.ObservePods(s.list())
		for _, name := range []string{"a", "b", "c"} {
			tell(s, w, name, "before")
		}
		time.Sleep(time.Second)
		s.want("before", "patch a", "patch b", "patch c")
		s.setAway(true)
		for i := range 60 {
			tell(s, w, "a", fmt.Sprint(i))
			tell(s, w, "b", fmt.Sprint(i))
			time.Sleep(time.Second)
		}
		s.want("away")
		s.setAway(false)
		time.Sleep(time.Minute)
		s.want("after the outage", "patch a", "patch b")
	})
}

// RECONCILE: only the status has changed, and not by podd.
func TestWhatOthersOverwriteInAStatusIsPutBackOnce(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		s.bind("web")
		u.ObservePods(s.list())
		tell(s, w, "web", "ours")
		time.Sleep(time.Second)
		s.want("ours", "patch web")
		theirs := s.list()[0].DeepCopy()
		theirs.Status.Phase = v1.PodRunning
		theirs.Status.ContainerStatuses[0].State.Waiting.Message = "theirs"
		theirs.Status.Conditions = append(theirs.Status.Conditions, v1.PodCondition{Type: "example.com/gate", Status: v1.ConditionTrue})
		s.store(theirs)
		u.ObservePods(s.list())
		time.Sleep(time.Minute)
		s.want("overwritten", "patch web")
		after := s.list()[0].Status
		if got := after.ContainerStatuses[0].State.Waiting.Message; after.Phase != v1.PodPending || got != "ours" {
			t.Errorf("got %s, %q", after.Phase, got)
		}
		if !slices.ContainsFunc(after.Conditions, func(c v1.PodCondition) bool { return c.Type == "example.com/gate" }) {
			t.Errorf("a condition of others was removed: got %+v", after.Conditions)
		}
		u.ObservePods(s.list())
		time.Sleep(time.Minute)
		s.want("nothing changes")
	})
}

func TestAPodIsDeletedOnceNothingIsLeftOfItAndNotBefore(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		s.bind("web", "other")
		u.ObservePods(s.list())
		tell(s, w, "web", "")
		tell(s, w, "other", "")
		time.Sleep(time.Second)
		s.did()
		deleted := *s.pods["web"]
		at := metav1.Now()
		deleted.DeletionTimestamp = &at
		s.store(&deleted)
		u.ObservePods(s.list())
		time.Sleep(time.Minute)
		s.want("its deletion was requested")
		tell(s, w, "web", "the last word")
		w.Forget("uid-web")
		w.Forget("uid-other") // whose deletion nobody requested
		time.Sleep(time.Second)
		s.want("nothing is left of it", "delete web", "patch web")
		if len(s.list()) != 1 {
			t.Errorf("got %d pods, want the other one", len(s.list()))
		}
	})
}

// An apiserver that has only just started says so of pods that it has.
func TestAPodThatTheApiserverDoesNotFindIsDeletedWhenItDoes(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		s.bind("web")
		deleted := *s.pods["web"]
		at := metav1.Now()
		deleted.DeletionTimestamp = &at
		s.store(&deleted)
		u.ObservePods(s.list())
		tell(s, w, "web", "the last word")
		time.Sleep(time.Second)
		s.did()
		s.mu.Lock()
		there := s.pods["web"].DeepCopy()
		delete(s.pods, "web")
		s.mu.Unlock()
		w.Forget("uid-web")
		time.Sleep(2 * time.Second)
		if n := len(s.did()); n < 1 || n > 4 {
			t.Errorf("got %d requests in 2 s for a pod that is not found, want one, repeated less and less often", n)
		}
		s.store(there)
		time.Sleep(10 * time.Second)
		if got := s.did(); len(got) != 1 || got[0] != "delete web" || len(s.list()) > 0 {
			t.Errorf("got %q and %d pods, want it deleted once", got, len(s.list()))
		}
		u.ObservePods(s.list())
		time.Sleep(time.Minute)
		s.want("the apiserver has it no more")
	})
}

func TestAPodThatIsGoneWhileItsLastStatusIsBeingSentIsDeleted(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		s.bind("web")
		at := metav1.Now()
		s.pods["web"].DeletionTimestamp = &at
		u.ObservePods(s.list())
		s.slow = time.Second
		tell(s, w, "web", "the last word")
		time.Sleep(time.Second / 2)
		w.Forget("uid-web")
		time.Sleep(time.Minute)
		s.want("all in all", "delete web", "patch web")
	})
}

func TestADeletionIsTriedUntilItSucceeds(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		s.bind("web")
		at := metav1.Now()
		s.pods["web"].DeletionTimestamp = &at
		u.ObservePods(s.list())
		tell(s, w, "web", "")
		time.Sleep(time.Second)
		s.did()
		s.setAway(true)
		w.Forget("uid-web")
		time.Sleep(10 * time.Minute)
		s.setAway(false)
		time.Sleep(time.Minute)
		s.want("the apiserver is back", "delete web")
	})
}

func TestAnotherPodOfTheSameNameIsLeftAlone(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		s.bind("web")
		u.ObservePods(s.list())
		tell(s, w, "web", "")
		time.Sleep(time.Second)
		s.did()
		s.store(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-2"}})
		// The watch has not shown that yet.
		old := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-web"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
		w.Report(pod.Report{Desired: &pod.Desired{Pod: &old}, Phase: pod.PhasePending, Waiting: map[string]pod.Waiting{"main": {Reason: "ImagePullBackOff"}}})
		time.Sleep(time.Minute)
		s.want("refused once", "patch web")
		if got := s.pods["web"].Status; len(got.ContainerStatuses) > 0 {
			t.Errorf("the other pod has the status %+v", got)
		}
	})
}

func TestPodsOfOtherSourcesAreNotSent(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		s.bind("web")
		u.ObservePods(nil)
		tell(s, w, "web", "")
		w.Forget("uid-web")
		time.Sleep(time.Minute)
		s.want("a static pod")
	})
}

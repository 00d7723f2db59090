package status_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/status"
)

// begun binds that many pods, of which the Uploader sees all at once that they start.
func begun(s *server, w *status.Writer, u *status.Uploader, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("pod-%02d", i))
	}
	s.bind(names...)
	for _, name := range names {
		tell(s, w, name, "")
	}
	u.ObservePods(s.list())
	return names
}

// runs tells that a pod's container is running.
func runs(s *server, w *status.Writer, name string) {
	s.mu.Lock()
	p := *s.pods[name]
	s.mu.Unlock()
	p.Spec.Containers = []v1.Container{{Name: "main"}}
	w.Report(pod.Report{
		Desired: &pod.Desired{Pod: &p, Source: pod.SourceAPIServer}, Phase: pod.PhaseRunning, StartTime: time.Now(), At: time.Now(),
		Observed: pod.Observed{UID: p.UID, At: time.Now(), Sandboxes: []pod.Sandbox{{ID: "s", Ready: true, CreatedAt: time.Now(), IPs: []string{"10.88.0.5"}}},
			Containers: []pod.Container{{Name: "main", ID: "c", SandboxID: "s", State: pod.ContainerRunning, StartedAt: time.Now()}}},
	})
}

func patches(names []string) (all []string) {
	for _, name := range names {
		all = append(all, "patch "+name)
	}
	return all
}

func TestWhileManyPodsStartOnlyNewsIsSent(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		names := begun(s, w, u, 50)
		for i := range 5 {
			time.Sleep(time.Second)
			for _, name := range names {
				tell(s, w, name, strings.Repeat(".", i)) // how far it is
			}
		}
		s.want("nothing but that they are starting")
		if !u.Rush() {
			t.Error("fifty pods start, and it is no rush")
		}
		for _, name := range names[:49] {
			runs(s, w, name)
		}
		time.Sleep(time.Second)
		s.want("all but one are running", patches(names[:49])...)
		if !u.Rush() {
			t.Error("the last one of them starts, and it is no rush any more")
		}
		runs(s, w, names[49])
		time.Sleep(time.Second)
		s.want("the last one is", patches(names[49:])...)
		if u.Rush() {
			t.Error("all are running, and it is a rush still")
		}
	})
}

func TestInARushFailuresAreSentAtOnceAndProgressAfterTenSeconds(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		names := begun(s, w, u, 20)
		time.Sleep(time.Second)
		broken := *s.pods[names[0]]
		broken.Spec.Containers = []v1.Container{{Name: "main"}}
		w.Report(pod.Report{
			Desired: &pod.Desired{Pod: &broken, Source: pod.SourceAPIServer}, Phase: pod.PhasePending, StartTime: time.Now(), At: time.Now(),
			Waiting: map[string]pod.Waiting{"main": {Reason: "ErrImagePull", Message: "no such image"}},
		})
		time.Sleep(time.Second)
		s.want("one has failed", "patch "+names[0])
		time.Sleep(9 * time.Second)
		s.want("the others hang", patches(names[1:])...)
		if u.Rush() {
			t.Error("a rush never ends")
		}
		tell(s, w, names[1], "still")
		time.Sleep(time.Second)
		s.want("the rush is over", "patch "+names[1])
	})
}

func TestInARushStatusesAreSentTogetherEveryHalfSecond(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		names := begun(s, w, u, 20)
		time.Sleep(time.Second)
		for batch := range slices.Chunk(names[1:13], 4) {
			runs(s, w, batch[0])
			time.Sleep(time.Millisecond)
			s.want("a half second has passed since the last were sent", patches(batch[:1])...)
			for _, name := range batch[1:] {
				time.Sleep(100 * time.Millisecond)
				runs(s, w, name)
			}
			time.Sleep(198 * time.Millisecond)
			s.want("others run within the next half second")
			time.Sleep(2 * time.Millisecond)
			s.want("it has passed", patches(batch[1:])...)
			time.Sleep(500 * time.Millisecond)
		}
		for _, name := range append(names[13:], names[0]) {
			runs(s, w, name)
		}
		time.Sleep(time.Millisecond)
		s.want("all run, which ends the rush", patches(append(names[:1:1], names[13:]...))...)
	})
}

func TestOfAFewPodsEveryStepOfTheStartIsSent(t *testing.T) {
	uploading(t, func(t *testing.T, s *server, w *status.Writer, u *status.Uploader) {
		names := begun(s, w, u, 10)
		time.Sleep(time.Millisecond)
		s.want("they start", patches(names)...)
		if u.Rush() {
			t.Error("ten pods are a rush")
		}
		for _, name := range slices.Backward(names) {
			tell(s, w, name, "further")
		}
		time.Sleep(time.Millisecond)
		s.want("they are further", patches(names)...)
	})
}

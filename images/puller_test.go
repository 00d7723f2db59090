package images

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// fakeRegistry is a registry, and the runtime that pulls from it; references are as requested.
type fakeRegistry struct {
	mu       sync.Mutex
	local    map[string]*pod.Image
	takes    map[string]time.Duration
	fails    map[string]error
	lookups  int
	pulls    []string
	now, max int // concurrent pulls
	down     error
	ended    map[string]error
}

func newFakeRegistry() *fakeRegistry {
	return &fakeRegistry{local: map[string]*pod.Image{}, takes: map[string]time.Duration{}, fails: map[string]error{}, ended: map[string]error{}}
}

func (f *fakeRegistry) ImageStatus(_ context.Context, ref string) (*pod.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookups++
	if f.down != nil {
		return nil, f.down
	}
	return f.local[ref], nil
}

func (f *fakeRegistry) PullImage(ctx context.Context, ref string, _ *pod.RegistryAuth, _ map[string]string) (string, error) {
	f.mu.Lock()
	f.pulls = append(f.pulls, ref)
	f.now++
	f.max = max(f.max, f.now)
	takes, fail := f.takes[ref], f.fails[ref]
	f.mu.Unlock()
	var err error
	select {
	case <-time.After(takes):
		err = fail
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	f.ended[ref] = err
	if err != nil {
		return "", err
	}
	f.local[ref] = &pod.Image{ID: "sha256:" + ref, Size: 42}
	return "sha256:" + ref, nil
}

func (f *fakeRegistry) set(ref string, takes time.Duration, fail error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.takes[ref], f.fails[ref] = takes, fail
}

func (f *fakeRegistry) pulled() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.pulls)
}

type notes struct {
	mu     sync.Mutex
	events []string
	wakes  map[pod.UID]int
}

func (n *notes) ContainerEvent(_ *v1.Pod, _, eventType, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, eventType+" "+reason+" "+message)
}

func (n *notes) Event(p *v1.Pod, eventType, reason, message string) {
	n.ContainerEvent(p, "", eventType, "pod: "+reason, message)
}

func (n *notes) Wake(uid pod.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wakes[uid]++
}

func (n *notes) woken(uid pod.UID) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wakes[uid]
}

// bench is a puller in a synctest bubble.
type bench struct {
	*Puller
	rt    *fakeRegistry
	notes *notes
}

func inBubble(t *testing.T, cfg PullConfig, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{rt: newFakeRegistry(), notes: &notes{wakes: map[pod.UID]int{}}}
		cfg.Runtime, cfg.Waker, cfg.Recorder = b.rt, b.notes, b.notes
		b.Puller = NewPuller(cfg)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		synctest.Wait()
		test(t, b)
		stop()
		<-ended
	})
}

func (b *bench) ask(t *testing.T, uid, image string, policy v1.PullPolicy) pod.ImageState {
	t.Helper()
	c := &v1.Container{Name: "app", Image: image, ImagePullPolicy: policy}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: pod.UID(uid)}, Spec: v1.PodSpec{Containers: []v1.Container{*c}}}
	st, err := b.Ensure(t.Context(), p, c)
	if err != nil {
		t.Fatalf("Ensure(%s): %v", image, err)
	}
	return st
}

func TestPresentImageCostsOneLookupAndNoPull(t *testing.T) {
	inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
		b.rt.local["localhost/app:1"] = &pod.Image{ID: "sha256:1", Username: "web"}
		st := b.ask(t, "a", "localhost/app:1", v1.PullIfNotPresent)
		if !st.Ready || st.Ref != "sha256:1" || st.Username != "web" {
			t.Errorf("got %+v, want it ready", st)
		}
		if b.rt.lookups != 1 || len(b.rt.pulled()) != 0 {
			t.Errorf("got %d lookups and pulls %v, want one lookup", b.rt.lookups, b.rt.pulled())
		}
	})
}

func TestPolicies(t *testing.T) {
	for _, tc := range []struct {
		name, image string
		policy      v1.PullPolicy
		present     bool
		reason      string // "" is ready
		pulls       int
	}{
		{"never, absent", "localhost/app:1", v1.PullNever, false, "ErrImageNeverPull", 0},
		{"never, present", "localhost/app:1", v1.PullNever, true, "", 0},
		{"if not present, absent", "localhost/app:1", v1.PullIfNotPresent, false, "ContainerCreating", 1},
		{"always, present", "localhost/app:1", v1.PullAlways, true, "ContainerCreating", 1},
		{"no tag means latest", "localhost/app", v1.PullIfNotPresent, false, "ContainerCreating", 1},
		{"digest", "localhost/app@sha256:" + strings.Repeat("a", 64), v1.PullIfNotPresent, true, "", 0},
		{"upper case", "localhost/App:1", v1.PullIfNotPresent, false, "InvalidImageName", 0},
		{"no name", "", v1.PullIfNotPresent, false, "InvalidImageName", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
				if tc.present {
					b.rt.local[tc.image] = &pod.Image{ID: "sha256:1"}
				}
				b.rt.set("localhost/app:1", time.Second, nil)
				st := b.ask(t, "a", tc.image, tc.policy)
				synctest.Wait()
				if st.Ready != (tc.reason == "") || st.Reason != tc.reason {
					t.Errorf("got %+v, want reason %q", st, tc.reason)
				}
				if got := len(b.rt.pulled()); got != tc.pulls {
					t.Errorf("got %d pulls, want %d", got, tc.pulls)
				}
			})
		})
	}
}

func TestPullEndsWithAWakeAndIsNotRepeated(t *testing.T) {
	inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
		b.rt.set("localhost/app:latest", 20*time.Second, nil)
		st := b.ask(t, "a", "localhost/app", v1.PullAlways)
		if st.Ready || st.Reason != "ContainerCreating" || st.Message != "" {
			t.Errorf("while pulling: got %+v", st)
		}
		time.Sleep(21 * time.Second)
		synctest.Wait()
		if b.notes.woken("a") != 1 {
			t.Fatalf("wakes: got %d, want 1", b.notes.woken("a"))
		}
		looks := b.rt.lookups
		if st := b.ask(t, "a", "localhost/app", v1.PullAlways); !st.Ready || st.Ref != "sha256:localhost/app:latest" {
			t.Errorf("after the pull: got %+v", st)
		}
		if len(b.rt.pulled()) != 1 || b.rt.lookups != looks {
			t.Errorf("got %v pulls, %d more lookups; want the result of the one", b.rt.pulled(), b.rt.lookups-looks)
		}
		if st := b.ask(t, "a", "localhost/app", v1.PullAlways); st.Ready {
			t.Errorf("the next container with policy Always: got %+v, want a new pull", st)
		}
		want := []string{`Normal Pulling Pulling image "localhost/app"`, `Normal Pulled Successfully pulled image "localhost/app" in 20s (20s including waiting). Image size: 42 bytes.`}
		if !slices.Equal(b.notes.events[:2], want) {
			t.Errorf("events: got %q, want %q", b.notes.events[:2], want)
		}
	})
}

func TestFailedPullBacksOffAsTheKubeletDoes(t *testing.T) {
	inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
		const image = "localhost/none:1"
		b.rt.set(image, 0, errors.New("no such thing"))
		for _, wait := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			wait *= time.Second
			b.ask(t, "a", image, v1.PullIfNotPresent)
			synctest.Wait()
			failed := time.Now()
			st := b.ask(t, "a", image, v1.PullIfNotPresent)
			if st.Reason != "ErrImagePull" || st.Message != "no such thing" || st.RetryAt.IsZero() {
				t.Fatalf("first sync after the failure: got %+v, want ErrImagePull", st)
			}
			time.Sleep(time.Until(st.RetryAt))
			st = b.ask(t, "a", image, v1.PullIfNotPresent)
			if st.Reason != "ImagePullBackOff" || st.Message != `Back-off pulling image "localhost/none:1": ErrImagePull: no such thing` {
				t.Fatalf("second sync: got %+v, want ImagePullBackOff", st)
			}
			if got := st.RetryAt.Sub(failed); got != wait {
				t.Errorf("back-off: got %v, want %v", got, wait)
			}
			time.Sleep(time.Until(st.RetryAt) - time.Millisecond)
			before := len(b.rt.pulled())
			b.ask(t, "a", image, v1.PullIfNotPresent)
			synctest.Wait()
			if len(b.rt.pulled()) != before {
				t.Fatal("pulled within the back-off")
			}
			time.Sleep(time.Millisecond)
		}
		backoffs := 0
		for _, e := range b.notes.events {
			if e == `Normal BackOff Back-off pulling image "localhost/none:1"` {
				backoffs++
			}
		}
		if backoffs != 7 {
			t.Errorf("BackOff events: got %d, want one for each of 7 back-offs", backoffs)
		}
		// Another pod has a back-off of its own.
		if st := b.ask(t, "b", image, v1.PullIfNotPresent); st.Reason != "ContainerCreating" {
			t.Errorf("another pod: got %+v", st)
		}
	})
}

func TestWhileRetryingTheOldReasonStays(t *testing.T) {
	inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
		b.rt.set("localhost/none:1", 5*time.Second, errors.New("no"))
		b.ask(t, "a", "localhost/none:1", v1.PullIfNotPresent)
		time.Sleep(6 * time.Second)
		b.ask(t, "a", "localhost/none:1", v1.PullIfNotPresent)
		st := b.ask(t, "a", "localhost/none:1", v1.PullIfNotPresent)
		time.Sleep(time.Until(st.RetryAt))
		st = b.ask(t, "a", "localhost/none:1", v1.PullIfNotPresent)
		synctest.Wait()
		if st.Reason != "ImagePullBackOff" || !st.RetryAt.IsZero() || len(b.rt.pulled()) != 2 {
			t.Errorf("while pulling again: got %+v after pulls %v", st, b.rt.pulled())
		}
	})
}

func TestOneBadRegistryNeverTakesAllSlots(t *testing.T) {
	inBubble(t, PullConfig{MaxParallel: 5}, func(t *testing.T, b *bench) {
		for i := range 20 {
			image := fmt.Sprintf("bad.test/app:%d", i)
			b.rt.set(image, 1000*time.Hour, nil)
			b.ask(t, fmt.Sprint("bad", i), image, v1.PullIfNotPresent)
		}
		b.rt.set("good.test/app:1", time.Second, nil)
		b.ask(t, "good", "good.test/app:1", v1.PullIfNotPresent)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st := b.ask(t, "good", "good.test/app:1", v1.PullIfNotPresent); !st.Ready {
			t.Errorf("the good registry's image: got %+v, want it ready", st)
		}
		if b.rt.max > 4 {
			t.Errorf("got %d pulls at a time, want 3 of the bad registry and 1 of the good", b.rt.max)
		}
	})
}

func TestPullsAreBoundedAndShared(t *testing.T) {
	inBubble(t, PullConfig{MaxParallel: 3, MaxPerRegistry: 3}, func(t *testing.T, b *bench) {
		for i := range 10 {
			image := fmt.Sprintf("localhost/app:%d", i)
			b.rt.set(image, time.Second, nil)
			for j := range 3 {
				b.ask(t, fmt.Sprintf("pod-%d-%d", i, j), image, v1.PullIfNotPresent)
			}
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := len(b.rt.pulled()); got != 10 || b.rt.max != 3 {
			t.Errorf("got %d pulls, %d at a time; want 10, 3 at a time", got, b.rt.max)
		}
		for i := range 10 {
			for j := range 3 {
				if uid := pod.UID(fmt.Sprintf("pod-%d-%d", i, j)); b.notes.woken(uid) != 1 {
					t.Errorf("%s: woken %d times, want once", uid, b.notes.woken(uid))
				}
			}
		}
	})
}

func TestForgottenPullIsCancelledUnlessSharedStill(t *testing.T) {
	inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
		b.rt.set("localhost/big:1", time.Hour, nil)
		b.ask(t, "a", "localhost/big:1", v1.PullIfNotPresent)
		b.ask(t, "b", "localhost/big:1", v1.PullIfNotPresent)
		synctest.Wait()
		b.Forget("a")
		synctest.Wait()
		if err, ended := b.rt.ended["localhost/big:1"]; ended {
			t.Fatalf("cancelled (%v) while another pod wants it", err)
		}
		b.Forget("b")
		synctest.Wait()
		if err := b.rt.ended["localhost/big:1"]; !errors.Is(err, errNobodyWaits) {
			t.Errorf("got %v, want it cancelled", err)
		}
		if b.notes.woken("a")+b.notes.woken("b") != 0 {
			t.Error("a forgotten pod was woken")
		}
		if len(b.pending)+len(b.pulls)+len(b.queue)+len(b.backoff) != 0 || b.active != 0 {
			t.Errorf("something is left: %d wants, %d ops, %d queued, %d back-offs, %d active", len(b.pending), len(b.pulls), len(b.queue), len(b.backoff), b.active)
		}
	})
}

func TestRateLimit(t *testing.T) {
	inBubble(t, PullConfig{MaxParallel: 100, MaxPerRegistry: 100, QPS: 1, Burst: 2}, func(t *testing.T, b *bench) {
		for i := range 6 {
			b.ask(t, fmt.Sprint("p", i), fmt.Sprintf("localhost/app:%d", i), v1.PullIfNotPresent)
		}
		synctest.Wait()
		if got := len(b.rt.pulled()); got != 2 {
			t.Errorf("at once: got %d pulls, want the burst of 2", got)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := len(b.rt.pulled()); got != 6 {
			t.Errorf("after 5 s: got %d pulls, want all 6", got)
		}
	})
}

func TestAnUnavailableRuntimeIsNoFailureOfTheImage(t *testing.T) {
	inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
		b.rt.set("localhost/app:1", 0, fmt.Errorf("dial: %w", pod.ErrUnavailable))
		b.ask(t, "a", "localhost/app:1", v1.PullIfNotPresent)
		synctest.Wait()
		if st := b.ask(t, "a", "localhost/app:1", v1.PullIfNotPresent); time.Until(st.RetryAt) > time.Second {
			t.Errorf("got %+v, want a retry within a second", st)
		}
		b.rt.set("localhost/app:1", 0, nil)
		b.ask(t, "a", "localhost/app:1", v1.PullIfNotPresent)
		synctest.Wait()
		if st := b.ask(t, "a", "localhost/app:1", v1.PullIfNotPresent); !st.Ready {
			t.Errorf("when it is back: got %+v", st)
		}
		b.rt.down = pod.ErrUnavailable
		if _, err := b.Ensure(t.Context(), &v1.Pod{}, &v1.Container{Image: "localhost/app:1"}); !errors.Is(err, pod.ErrUnavailable) {
			t.Errorf("lookup without a runtime: got %v", err)
		}
	})
}

func TestImportedImageWakesWaitingPods(t *testing.T) {
	inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
		b.ask(t, "a", "localhost/app:1", v1.PullNever)
		b.rt.set("localhost/other:1", 0, errors.New("no"))
		b.ask(t, "b", "localhost/other:1", v1.PullIfNotPresent)
		synctest.Wait()
		b.ask(t, "b", "localhost/other:1", v1.PullIfNotPresent)
		b.rt.local["localhost/app:1"], b.rt.local["localhost/other:1"] = &pod.Image{ID: "1"}, &pod.Image{ID: "2"}
		before := b.notes.woken("b")
		b.Imported([]string{"localhost/app:1", "localhost/other:1"})
		if b.notes.woken("a") != 1 || b.notes.woken("b") != before+1 {
			t.Errorf("wakes: got %v", b.notes.wakes)
		}
		for uid, image := range map[string]string{"a": "localhost/app:1", "b": "localhost/other:1"} {
			if st := b.ask(t, uid, image, v1.PullIfNotPresent); !st.Ready {
				t.Errorf("%s: got %+v, want it ready", image, st)
			}
		}
	})
}

// TestACancelledPullIsLoggedWithItsReason: an image that came from an archive meanwhile is
// no fault, and no pod has left.
func TestACancelledPullIsLoggedWithItsReason(t *testing.T) {
	const image = "localhost/big:1"
	for want, cancel := range map[string]func(b *bench){
		`level=INFO msg="image was imported from an archive while it was being pulled: its pull is cancelled, pods start with the imported one" image=` + image: func(b *bench) {
			b.Imported([]string{image})
		},
		`level=INFO msg="image pull cancelled" image=` + image + ` why="no pod is waiting for it any longer"`: func(b *bench) { b.Forget("a") },
		`level=INFO msg="image pull cancelled" image=` + image + ` why="podd is stopping"`:                    func(*bench) {},
	} {
		var log bytes.Buffer
		plain := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		inBubble(t, PullConfig{Log: plain}, func(t *testing.T, b *bench) {
			b.rt.set(image, time.Hour, nil)
			b.ask(t, "a", image, v1.PullIfNotPresent)
			synctest.Wait()
			cancel(b)
			synctest.Wait()
		})
		if got := log.String(); got != want+"\n" {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestCRIsOwnReasons(t *testing.T) {
	for text, want := range map[string]string{
		"RegistryUnavailable: 503":               "RegistryUnavailable|image pull failed for x because the registry is unavailable: 503",
		"SignatureValidationFailed: bad":         "SignatureValidationFailed|image pull failed for x because the signature validation failed: bad",
		strings.Repeat("long ", 1000):            "ErrImagePull|" + strings.Repeat("long ", 1000)[:maxPullMessage] + "…",
		"failed to resolve reference: not found": "ErrImagePull|failed to resolve reference: not found (the registry has no such image: check its name and tag)",
	} {
		reason, msg := pullFailure("x", errors.New(text))
		if got := reason + "|" + msg; got != want {
			t.Errorf("%.40q: got %q, want %q", text, got, want)
		}
	}
}

package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// slow is a kind whose setup takes as long as the test says. It replaces NFS; the server
// is the name of the gate.
type slow struct {
	mu     sync.Mutex
	gates  map[string]chan struct{} // setups wait until closed; none: no wait
	deaf   map[string]bool          // by gate: setups ignore their context
	fails  error
	broken map[string]error // by server: its error, returned at once
	takes  time.Duration    // duration of each setup
	calls  []string
	now    int // setups in progress
	most   int // maximum of now
	wakes  map[pod.UID]int
}

func (s *slow) setUp(ctx context.Context, t target) error {
	server := t.volume.NFS.Server
	s.mu.Lock()
	gate, deaf, err := s.gates[server], s.deaf[server], s.fails
	s.calls = append(s.calls, "set up "+t.volume.Name)
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
	}()
	time.Sleep(s.takes)
	done := ctx.Done()
	if deaf {
		done = nil
	}
	if gate != nil {
		select {
		case <-gate:
		case <-done:
			return context.Cause(ctx)
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.broken[server]; err != nil {
		return err
	}
	return os.MkdirAll(t.dir, 0o750)
}

func (s *slow) refresh(_ context.Context, t target) error { return s.note("refresh " + t.volume.Name) }

func (s *slow) tearDown(_ context.Context, dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	return s.note("tear down " + dir[strings.LastIndex(dir, "/")+1:])
}

func (s *slow) note(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	return nil
}

func (s *slow) Wake(uid pod.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakes[uid]++
}

func (s *slow) hang(server string, deaf bool) (release func()) {
	gate := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gates[server], s.deaf[server] = gate, deaf
	return sync.OnceFunc(func() { close(gate) })
}

// breaks sets the servers' errors.
func (s *slow) breaks(servers map[string]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = servers
}

// inProgress returns the number of setups in progress, and its maximum.
func (s *slow) inProgress() (most, now int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most, s.now
}

func (s *slow) mustHaveDone(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.calls, want) {
		t.Errorf("the kind was asked for %v, want %v", s.calls, want)
	}
}

func (s *slow) mustHaveWoken(t *testing.T, uid pod.UID, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wakes[uid] != want {
		t.Errorf("pod %s was woken %d times, want %d", uid, s.wakes[uid], want)
	}
}

func share(name, server string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: server, Path: "/"}}}
}

// withSlow runs the test in a bubble, with a Mounter that has the slow kind.
func withSlow(t *testing.T, test func(*testing.T, *Mounter, *slow), change ...func(*Options)) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{gates: map[string]chan struct{}{}, deaf: map[string]bool{}, wakes: map[pod.UID]int{}}
		m := newMounter(t, append(change, func(o *Options) { o.Waker = s })...)
		s.into(m)
		test(t, m, s)
	})
}

// into has a Mounter that has just been made use the slow kind.
func (s *slow) into(m *Mounter) {
	m.kinds = append([]kind{{
		plugin: "test/slow", managed: true, mayBlock: true, driver: s,
		handles: func(v *v1.VolumeSource) bool { return v.NFS != nil },
		path:    func(t target) string { return t.dir },
	}}, m.kinds...)
}

func mustWait(t *testing.T, m *Mounter, p *v1.Pod) pod.VolumeState {
	t.Helper()
	state, err := m.Ensure(t.Context(), p)
	if err != nil || state.Ready || state.Message == "" {
		t.Fatalf("Ensure: got %+v (%v), want a setup in progress", state, err)
	}
	return state
}

func mustBeReady(t *testing.T, m *Mounter, p *v1.Pod) {
	t.Helper()
	if state, err := m.Ensure(t.Context(), p); err != nil || !state.Ready {
		t.Fatalf("Ensure: got %+v (%v), want ready", state, err)
	}
}

func TestQuickSetupsAreDoneWithinTheFirstEnsure(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		p := aPod("u1", empty("e"), host("h", "/", v1.HostPathDirectory), share("n", "quick"))
		began := time.Now()
		mustBeReady(t, m, p)
		mustBeReady(t, m, p)
		if took := time.Since(began); took != 0 {
			t.Errorf("Ensure waited %v", took)
		}
		synctest.Wait()
		s.mustHaveDone(t, "set up n", "refresh n")
		s.mustHaveWoken(t, "u1", 0)
		mustTearDown(t, m, "u1")
		s.mustHaveDone(t, "set up n", "refresh n", "tear down n")
		mustBeGone(t, m, "u1")
	})
}

func TestASlowSetupContinuesInTheBackgroundAndItsEndWakesThePod(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		release := s.hang("nas", false)
		p := aPod("u1", empty("e"), share("n", "nas"))
		began := time.Now()
		state := mustWait(t, m, p)
		if took := time.Since(began); took != ensureWait {
			t.Errorf("the first Ensure took %v, want %v", took, ensureWait)
		}
		want := "volumes are being set up: [n], waiting for volume \"n\" since 00:00:00 (" + m.PodDir("u1") + "/volumes/test~slow/n)"
		if state.Message != want || !state.RetryAt.Equal(began.Add(setUpTimeout)) {
			t.Errorf("got %+v, want %q until %v", state, want, began.Add(setUpTimeout))
		}
		later := time.Now()
		for range 3 { // starts no second setup, and does not wait for the first
			mustWait(t, m, p)
		}
		if took := time.Since(later); took != 0 {
			t.Errorf("Ensure waited %v for a setup in progress", took)
		}
		s.mustHaveWoken(t, "u1", 0)
		release()
		synctest.Wait()
		s.mustHaveWoken(t, "u1", 1)
		mustBeReady(t, m, p)
		s.mustHaveDone(t, "set up n")
		mustTearDown(t, m, "u1")
		mustBeGone(t, m, "u1")
	})
}

func TestAFailureOfASlowSetupIsReportedOnceAndRetried(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		release := s.hang("nas", false)
		s.fails = errors.New("no such share")
		p := aPod("u1", share("n", "nas"))
		mustWait(t, m, p)
		release()
		synctest.Wait()
		s.mustHaveWoken(t, "u1", 1)
		_, err := m.Ensure(t.Context(), p)
		mustSay(t, err, `MountVolume.SetUp failed for volume "n" : no such share`)
		if pod.ReasonOf(err, "") != "FailedMount" {
			t.Errorf("got reason %q, want FailedMount", pod.ReasonOf(err, ""))
		}
		s.fails = nil
		mustBeReady(t, m, p)
		s.mustHaveDone(t, "set up n", "set up n")
	})
}

func TestAnOverdueSetupIsTheKubeletsErrorAndContinues(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		release := s.hang("nas", false)
		p := aPod("u1", empty("e"), share("n", "nas"))
		time.Sleep(time.Until(mustWait(t, m, p).RetryAt))
		for range 2 {
			_, err := m.Ensure(t.Context(), p)
			mustSay(t, err, "Unable to attach or mount volumes: unmounted volumes=[n], unattached volumes=[], failed to process volumes=[]: context deadline exceeded: waiting for volume \"n\" since 00:00:00 (")
			if pod.ReasonOf(err, "") != "FailedMount" {
				t.Errorf("got reason %q, want FailedMount", pod.ReasonOf(err, ""))
			}
		}
		release()
		synctest.Wait()
		s.mustHaveWoken(t, "u1", 1)
		mustBeReady(t, m, p)
		s.mustHaveDone(t, "set up n")
	})
}

func TestTheEndOfAPodCancelsItsSetup(t *testing.T) {
	for name, end := range map[string]func(*Mounter, context.Context, pod.UID) error{
		"TearDown": (*Mounter).TearDown, "Remove": (*Mounter).Remove, "Release": (*Mounter).Release,
	} {
		t.Run(name, func(t *testing.T) {
			withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
				s.hang("nas", false)
				p := aPod("u1", empty("e", memory), share("n", "nas"))
				mustWait(t, m, p)
				began := time.Now()
				if err := end(m, t.Context(), "u1"); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("it waited %v for a setup that heeds its context", took)
				}
				synctest.Wait()
				s.mustHaveWoken(t, "u1", 0)
				if points, err := mountsBelow(m.PodDir("u1")); err != nil || len(points) > 0 {
					t.Errorf("still mounted: %v (%v)", points, err)
				}
				mustTearDown(t, m, "u1")
				mustBeGone(t, m, "u1")
				if m.count(hasSetUp)+len(m.lockHolders)+m.locks.Len() > 0 {
					t.Errorf("state is left: %v %v %v", m.pods, m.lockHolders, m.locks.Len())
				}
			})
		})
	}
}

func TestASetupThatHangsBlocksNeitherItsPodsEndNorOtherPods(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- m.Run(ctx) }()
		release := s.hang("dead", true)
		p := aPod("u1", empty("e"), share("n", "dead"))
		mustWait(t, m, p)

		other := aPod("u2", empty("e"), share("n", "quick"))
		mustBeReady(t, m, other)
		began := time.Now()
		mustTearDown(t, m, "u2")
		if took := time.Since(began); took != 0 {
			t.Errorf("the teardown of another pod took %v", took)
		}

		mustTearDown(t, m, "u1")
		if took := time.Since(began); took != hangTimeout {
			t.Errorf("its own teardown took %v, want %v", took, hangTimeout)
		}
		pending := m.PendingUnmounts()
		if len(pending) != 1 || pending[0].UID != "u1" {
			t.Fatalf("got pending unmounts %+v, want the pod's", pending)
		}
		mustSay(t, errors.New(pending[0].Message), `the setup of volume "n"`, "hangs", fmt.Sprintf("process %d (podd) holds it", os.Getpid()), "deletes nothing until then")
		if _, err := os.Stat(m.PodDir("u1") + "/volumes/kubernetes.io~empty-dir/e"); err != nil {
			t.Errorf("deleted under a setup: %v", err)
		}
		time.Sleep(10 * time.Minute)
		mustWait(t, m, p) // the pod comes back, and waits for the pending unmount

		release()
		time.Sleep(lastRetry)
		synctest.Wait()
		s.mustHaveWoken(t, "u1", 1)
		mustBeReady(t, m, p)
		if n := len(m.PendingUnmounts()); n != 0 {
			t.Errorf("%d pending unmounts left", n)
		}
		mustTearDown(t, m, "u1")
		mustBeGone(t, m, "u1")
		// The other pod's run, the rest of the first run of this one, and its second run.
		s.mustHaveDone(t, "set up n", "set up n", "tear down n", "tear down n", "set up n", "tear down n")
		stop()
		if err := <-ran; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: got %v", err)
		}
	})
}

func TestWhatAnAbandonedSetupCreatesLaterIsRemoved(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- m.Run(ctx) }()
		release := s.hang("dead", true)
		mustWait(t, m, aPod("u1", share("n", "dead"), empty("e", memory)))
		mustTearDown(t, m, "u1")
		release()
		time.Sleep(lastRetry)
		mustBeGone(t, m, "u1")
		s.mustHaveDone(t, "set up n", "tear down n")
		stop()
		<-ran
	})
}

func TestSetupsAreBoundedAndThoseThatHangReleaseTheirSlots(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		release := s.hang("dead", true)
		for i := range parallelSetUps + 1 {
			go func() { _, _ = m.Ensure(t.Context(), aPod(fmt.Sprint("u", i), share("n", "dead"))) }()
		}
		synctest.Wait()
		if s.most != parallelSetUps {
			t.Errorf("%d setups in progress, want %d", s.most, parallelSetUps)
		}
		quick := aPod("quick", empty("e"))
		mustWait(t, m, quick)
		time.Sleep(longSetUp)
		synctest.Wait()
		s.mustHaveWoken(t, "quick", 1)
		mustBeReady(t, m, quick)
		release()
		synctest.Wait()
		if n := m.slots.InUse(); n != 0 || s.now != 0 {
			t.Errorf("%d slots taken by %d setups, want none", n, s.now)
		}
	})
}

func TestTheEndOfRunCancelsSetups(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf ", deaf), func(t *testing.T) {
			withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
				ctx, stop := context.WithCancel(t.Context())
				ran := make(chan error)
				go func() { ran <- m.Run(ctx) }()
				release := s.hang("nas", deaf)
				mustWait(t, m, aPod("u1", share("n", "nas")))
				began := time.Now()
				stop()
				<-ran
				if took := time.Since(began); took > hangTimeout || took > 0 && !deaf {
					t.Errorf("Run took %v to end", took)
				}
				release()
				synctest.Wait()
			})
		})
	}
}

func TestEnsureEndsWithItsContextAndTheSetupDoesNot(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		release := s.hang("nas", false)
		p := aPod("u1", share("n", "nas"))
		why := errors.New("the pod is being stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(ensureWait/2, func() { cancel(why) })
		if _, err := m.Ensure(ctx, p); !errors.Is(err, why) {
			t.Errorf("got %v, want the context's cause", err)
		}
		mustWait(t, m, p)
		release()
		synctest.Wait()
		mustBeReady(t, m, p)
		s.mustHaveDone(t, "set up n")
	})
}

// A teardown that fails keeps the directory, as an unmount that fails does.
func TestATeardownThatFailsIsAPendingUnmount(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		p := aPod("u1", share("n", "quick"))
		mustBeReady(t, m, p)
		broken := &failing{slow: s, err: errors.New("the server does not let go")}
		m.kinds[0].driver = broken
		mustTearDown(t, m, "u1")
		if d := m.PendingUnmounts(); len(d) != 1 || !strings.Contains(d[0].Message, `tear down volume "n": the server does not let go`) {
			t.Errorf("got %+v, want a pending unmount that says so", d)
		}
		if _, err := os.Stat(m.PodDir("u1") + "/volumes/test~slow/n"); err != nil {
			t.Errorf("the directory was deleted: %v", err)
		}
		broken.err = nil
		mustTearDown(t, m, "u1")
		mustBeGone(t, m, "u1")
	})
}

type failing struct {
	*slow
	err error
}

func (f *failing) tearDown(context.Context, string) error { return f.err }

func TestTheStateSaysWhichVolumesItWaitsFor(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		first, second := s.hang("one", false), s.hang("two", false)
		p := aPod("u1", share("a", "one"), share("b", "two"))
		mustSay(t, errors.New(mustWait(t, m, p).Message), `[a b], waiting for volume "a" since 00:00:00 (`, `), volume "b" since 00:00:00 (`)
		time.Sleep(time.Minute)
		first()
		time.Sleep(ensureWait)
		synctest.Wait()
		s.mustHaveWoken(t, "u1", 1)
		mustSay(t, errors.New(mustWait(t, m, p).Message), `[b], waiting for volume "b" since 00:00:00 (`)
		second()
		synctest.Wait()
		s.mustHaveWoken(t, "u1", 2)
		mustBeReady(t, m, p)
	})
}

package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// mustFollow calls Changed and waits until the pod's volumes are updated.
func mustFollow(t *testing.T, m *Mounter, uid pod.UID) {
	t.Helper()
	m.Changed(uid)
	awaitUpdates(t, m, uid)
}

func awaitUpdates(t *testing.T, m *Mounter, uid pod.UID) {
	t.Helper()
	m.mu.Lock()
	var done chan struct{}
	if l := m.stateOf(uid).live; l != nil {
		done = l.done
	}
	m.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the update does not end")
	}
}

// withStore runs the test in a bubble.
func withStore(t *testing.T, test func(*testing.T, *Mounter, *store), objects ...*pod.Object) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(objects...)
		test(t, newMounter(t, s.into), s)
	})
}

func TestAChangedObjectReachesEveryVolumeThatHasIt(t *testing.T) {
	s := newStore(aConfigMap("app", "a", "1", "old", "x"), aSecret("key", "a", "1"))
	m := newMounter(t, s.into)
	p := aPod("u1", fromConfigMap("c", "app"), fromSecret("s", "key"), projected("p", partConfigMap("app"), partSecret("key", v1.KeyToPath{Key: "a", Path: "secret"})))
	mustSetUp(t, m, p)
	s.put(aConfigMap("app", "a", "2", "new", "y"))
	s.put(aSecret("key", "a", "2"))
	mustFollow(t, m, "u1")
	mustHold(t, volumeDir(m, "u1", "configmap", "c"), map[string]string{"a": "2", "new": "y"})
	mustHold(t, volumeDir(m, "u1", "secret", "s"), map[string]string{"a": "2"})
	mustHold(t, volumeDir(m, "u1", "projected", "p"), map[string]string{"a": "2", "new": "y", "secret": "2"})
	if told := s.told(); len(told) > 0 {
		t.Errorf("events %q", told)
	}
}

func TestANewVersionOfThePodReachesItsDownwardVolumes(t *testing.T) {
	s := newStore()
	m := newMounter(t, s.into)
	p := aPod("u1", fromPod("d", "app", "metadata.labels['app']"), projected("p", partPod("app", "metadata.labels['app']")))
	mustSetUp(t, m, p)
	next := p.DeepCopy()
	next.Labels["app"] = "bakery"
	m.Follow(next)
	awaitUpdates(t, m, "u1")
	mustHold(t, volumeDir(m, "u1", "downward-api", "d"), map[string]string{"app": "bakery"})
	mustHold(t, volumeDir(m, "u1", "projected", "p"), map[string]string{"app": "bakery"})
	m.Follow(next) // nothing new
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stateOf("u1").live.done != nil {
		t.Error("the same version of the pod caused an update")
	}
}

// There is no queue of changes.
func TestAThousandChangesDuringAWriteCauseOneMore(t *testing.T) {
	withStore(t, func(t *testing.T, m *Mounter, s *store) {
		p := aPod("u1", fromConfigMap("c", "app"))
		mustSetUp(t, m, p)
		before := s.looked()
		release := s.hold()
		for i := 1; i <= 1000; i++ {
			s.put(aConfigMap("app", "n", strconv.Itoa(i)))
			m.Changed("u1")
			if i == 1 {
				synctest.Wait() // the first is being written
			}
		}
		release()
		synctest.Wait()
		mustHold(t, volumeDir(m, "u1", "configmap", "c"), map[string]string{"n": "1000"})
		if writes := s.looked() - before; writes != 2 {
			t.Errorf("written %d times, want twice: the one in progress, and the last version", writes)
		}
	}, aConfigMap("app", "n", "0"))
}

func TestAStreamOfChangesShowsWholeVersionsAndTheLastOne(t *testing.T) {
	s := newStore(aConfigMap("app", "n", "0", "same", "0"))
	m := newMounter(t, s.into)
	mustSetUp(t, m, aPod("u1", fromConfigMap("c", "app")))
	dir := volumeDir(m, "u1", "configmap", "c")
	var over atomic.Bool
	var reader sync.WaitGroup
	reader.Go(func() {
		for !over.Load() {
			root, err := os.OpenRoot(dir + "/..data")
			if err != nil {
				continue // removed since it was found
			}
			a, errA := root.ReadFile("n")
			b, errB := root.ReadFile("same")
			root.Close()
			if errA == nil && errB == nil && string(a) != string(b) {
				t.Errorf("a version with %q and %q", a, b)
				return
			}
		}
	})
	for i := range 1000 {
		s.put(aConfigMap("app", "n", strconv.Itoa(i), "same", strconv.Itoa(i)))
		m.Changed("u1")
	}
	awaitUpdates(t, m, "u1")
	over.Store(true)
	reader.Wait()
	mustHold(t, dir, map[string]string{"n": "999", "same": "999"})
}

func TestAnImmutableObjectIsNotRefreshed(t *testing.T) {
	s := newStore(immutable(aConfigMap("app", "a", "1")), immutable(aSecret("key", "a", "1")))
	m := newMounter(t, s.into)
	volumes := []v1.Volume{fromConfigMap("c", "app"), fromSecret("s", "key")}
	p := aPod("u1", volumes...)
	mustSetUp(t, m, p)
	s.put(aConfigMap("app", "a", "2"))
	s.put(aSecret("key", "a", "2"))
	mustFollow(t, m, "u1")
	mustSetUp(t, m, p) // a container restarts
	mustSetUp(t, m, aPod("u2", volumes...))
	for uid, want := range map[pod.UID]string{"u1": "1", "u2": "2"} {
		mustHold(t, volumeDir(m, uid, "configmap", "c"), map[string]string{"a": want})
		mustHold(t, volumeDir(m, uid, "secret", "s"), map[string]string{"a": want})
	}
	s.put(immutable(aConfigMap("app", "a", "3"))) // made immutable while it is used
	mustFollow(t, m, "u2")
	s.put(immutable(aConfigMap("app", "a", "4")))
	mustFollow(t, m, "u2")
	mustHold(t, volumeDir(m, "u2", "configmap", "c"), map[string]string{"a": "3"})
	mustTearDown(t, m, "u1")
	mustSetUp(t, m, p) // its next run
	mustHold(t, volumeDir(m, "u1", "configmap", "c"), map[string]string{"a": "4"})
}

// The pod gets an event. Nothing is retried until something changes.
func TestAVolumeKeepsItsContentWhenItsObjectIsRemoved(t *testing.T) {
	withStore(t, func(t *testing.T, m *Mounter, s *store) {
		p := aPod("u1", fromConfigMap("c", "app"), fromSecret("s", "key"))
		mustSetUp(t, m, p)
		s.drop(pod.KindConfigMap, "app")
		s.put(aSecret("key", "a", "2"))
		m.Changed("u1")
		synctest.Wait()
		want := `Warning FailedMount: MountVolume.SetUp failed for volume "c" : configmap "app" not found`
		if told := s.told(); len(told) != 1 || told[0] != want {
			t.Errorf("events %q, want %q", told, want)
		}
		looks := s.looked()
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.looked() != looks {
			t.Error("the object was read although nothing has changed")
		}
		mustBeReady(t, m, p) // a container restarts with the last content
		mustHold(t, volumeDir(m, "u1", "configmap", "c"), map[string]string{"a": "1"})
		mustHold(t, volumeDir(m, "u1", "secret", "s"), map[string]string{"a": "2"})
		s.put(aConfigMap("app", "a", "3"))
		m.Changed("u1")
		synctest.Wait()
		mustHold(t, volumeDir(m, "u1", "configmap", "c"), map[string]string{"a": "3"})
	}, aConfigMap("app", "a", "1"), aSecret("key", "a", "1"))
}

func TestAnOptionalObjectComesAndGoes(t *testing.T) {
	yes := true
	s := newStore()
	m := newMounter(t, s.into)
	mustSetUp(t, m, aPod("u1", fromConfigMap("c", "app", func(c *v1.ConfigMapVolumeSource) { c.Optional = &yes })))
	dir := volumeDir(m, "u1", "configmap", "c")
	mustHold(t, dir, nil)
	s.put(aConfigMap("app", "a", "1"))
	mustFollow(t, m, "u1")
	mustHold(t, dir, map[string]string{"a": "1"})
	s.drop(pod.KindConfigMap, "app")
	mustFollow(t, m, "u1")
	mustHold(t, dir, nil)
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left: %v", entries)
	}
}

// stubborn is a live kind whose refresh fails or hangs; it replaces NFS.
type stubborn struct {
	*slow
	err     error
	tries   []time.Time
	refuses chan struct{} // if set, refresh waits for it, whatever its context
}

func (s *stubborn) refresh(context.Context, target) error {
	s.mu.Lock()
	s.tries = append(s.tries, time.Now())
	err, gate := s.err, s.refuses
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return err
}

func withStubborn(t *testing.T, test func(*testing.T, *Mounter, *stubborn, *store)) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		d, events := &stubborn{slow: s}, newStore()
		k := &m.kinds[0]
		k.live, k.driver = true, d
		m.options.Events = events
		test(t, m, d, events)
	})
}

func TestARefreshThatFailsIsRetriedWithBackoff(t *testing.T) {
	withStubborn(t, func(t *testing.T, m *Mounter, d *stubborn, events *store) {
		p := aPod("u1", share("n", "quick"))
		mustBeReady(t, m, p)
		d.err = errors.New("the disk is full")
		began := time.Now()
		m.Changed("u1")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		var after []time.Duration
		for _, at := range d.tries[:min(len(d.tries), 11)] {
			after = append(after, at.Sub(began).Round(time.Millisecond))
		}
		if want := "[0s 500ms 1.5s 3.5s 7.5s 15.5s 31.5s 1m3.5s 2m7.5s 4m9.5s 6m11.5s]"; fmt.Sprint(after) != want {
			t.Errorf("retried after %v, want %v", after, want)
		}
		if told := events.told(); len(told) != len(d.tries) || told[0] != `Warning FailedMount: MountVolume.SetUp failed for volume "n" : the disk is full` {
			t.Errorf("events %q", told)
		}
		d.err = nil
		tries := len(d.tries)
		m.Changed("u1") // a change is not delayed by the backoff
		synctest.Wait()
		if len(d.tries) != tries+1 {
			t.Error("a change waits for the backoff")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(d.tries) != tries+1 || m.stateOf("u1").live.done != nil {
			t.Error("it is retried after it has succeeded")
		}
	})
}

func TestARefreshThatHangsBlocksNoOtherPod(t *testing.T) {
	withStubborn(t, func(t *testing.T, m *Mounter, d *stubborn, _ *store) {
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- m.Run(ctx) }()
		var pods []*v1.Pod
		for i := range parallelSetUps + 2 {
			p := aPod(fmt.Sprint("u", i), share("n", "quick"))
			mustBeReady(t, m, p)
			pods = append(pods, p)
		}
		d.refuses = make(chan struct{})
		for _, p := range pods {
			m.Changed(p.UID)
		}
		time.Sleep(longSetUp) // those that hang release their slots
		synctest.Wait()
		other := aPod("other", empty("e"))
		mustBeReady(t, m, other)
		began := time.Now()
		mustTearDown(t, m, "u0")
		if took := time.Since(began); took != hangTimeout {
			t.Errorf("its own teardown took %v, want %v", took, hangTimeout)
		}
		if d := m.PendingUnmounts(); len(d) != 1 || !strings.Contains(d[0].Message, `the setup of volume "n"`) {
			t.Errorf("got pending unmounts %+v", d)
		}
		close(d.refuses)
		time.Sleep(lastRetry)
		mustBeGone(t, m, "u0")
		m.Changed("u0")
		m.Changed("never seen")
		synctest.Wait()
		stop()
		<-ran
	})
}

func TestVolumesAreNotUpdatedAfterTheirPodsEndOrAfterRun(t *testing.T) {
	for name, end := range map[string]func(*Mounter, context.Context, pod.UID) error{
		"TearDown": (*Mounter).TearDown, "Remove": (*Mounter).Remove, "Release": (*Mounter).Release,
		"the end of Run": func(m *Mounter, ctx context.Context, _ pod.UID) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_ = m.Run(ctx)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			withStore(t, func(t *testing.T, m *Mounter, s *store) {
				p := aPod("u1", fromConfigMap("c", "app"), fromSecret("s", "app"))
				mustSetUp(t, m, p)
				release := s.hold()
				m.Changed("u1")
				synctest.Wait()
				ended := make(chan error)
				go func() { ended <- end(m, t.Context(), "u1") }()
				synctest.Wait()
				m.Changed("u1") // while an update is in progress
				release()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				looks := s.looked()
				m.Changed("u1")
				if name == "the end of Run" {
					m.Follow(p)
				}
				synctest.Wait()
				if s.looked() != looks {
					t.Error("its volumes are written again")
				}
				if points, _ := mountsBelow(m.PodDir("u1")); len(points) > 0 && name != "the end of Run" {
					t.Errorf("mounted: %v", points)
				}
				mustTearDown(t, m, "u1")
				mustBeGone(t, m, "u1")
				if m.count(hasLive)+m.locks.Len()+len(m.lockHolders) > 0 {
					t.Errorf("state is left: %v %v %v", m.pods, m.locks.Len(), m.lockHolders)
				}
			}, aConfigMap("app", "a", "1"), aSecret("app", "a", "1"))
		})
	}
}

func TestAChangeDuringSetupIsNotLost(t *testing.T) {
	withStore(t, func(t *testing.T, m *Mounter, s *store) {
		release := s.hold()
		p := aPod("u1", fromConfigMap("c", "app"), fromSecret("s", "key"))
		mustWait(t, m, p)
		m.Changed("u1")
		release()
		synctest.Wait()
		s.put(aConfigMap("app", "a", "2"))
		m.Changed("u1")
		synctest.Wait()
		mustBeReady(t, m, p)
		mustHold(t, volumeDir(m, "u1", "configmap", "c"), map[string]string{"a": "2"})
	}, aConfigMap("app", "a", "1"), aSecret("key", "a", "1"))
}

func TestPodsComeAndGoWhileTheirObjectsChange(t *testing.T) {
	s := newStore(aConfigMap("app", "n", "0"), aSecret("key", "n", "0"))
	m := newMounter(t, s.into)
	var over atomic.Bool
	var beside sync.WaitGroup
	beside.Go(func() {
		for i := 0; !over.Load(); i++ {
			s.put(aConfigMap("app", "n", strconv.Itoa(i)))
			for _, uid := range []pod.UID{"u0", "u1", "u2"} {
				m.Changed(uid)
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	var pods sync.WaitGroup
	for i := range 3 {
		pods.Go(func() {
			uid := fmt.Sprint("u", i)
			p := withMounts(aPod(uid, fromConfigMap("c", "app"), fromSecret("s", "key")), v1.VolumeMount{Name: "c", MountPath: "/n", SubPath: "n"})
			for range 15 {
				if err := ensure(t, m, p); err != nil {
					t.Error(err)
					return
				}
				if _, err := m.Mounts(p, &p.Spec.Containers[0], []string{"n"}); err != nil {
					t.Error(err)
				}
				if err := m.TearDown(t.Context(), p.UID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	pods.Wait()
	over.Store(true)
	beside.Wait()
	for _, uid := range []string{"u0", "u1", "u2"} {
		mustBeGone(t, m, uid)
	}
}

func TestVolumesWithAPendingUnmountAreNotUpdated(t *testing.T) {
	s := newStore(aSecret("key", "a", "1"))
	m := newMounter(t, s.into)
	p := aPod("u1", fromSecret("s", "key"))
	mustSetUp(t, m, p)
	dir := volumeDir(m, "u1", "secret", "s")
	holder := hold(t, dir)
	mustTearDown(t, m, "u1")
	s.put(aSecret("key", "a", "2"))
	m.Follow(p)
	awaitUpdates(t, m, "u1")
	mustHold(t, dir, map[string]string{"a": "1"})
	release(t, holder)
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

// Volumes that an earlier podd has set up are recognized: nothing is mounted twice, and
// they are updated before any container restarts.
func TestARestartedPoddContinuesUpdates(t *testing.T) {
	s := newStore(aConfigMap("app", "a", "1"), aSecret("key", "a", "1"))
	m := newMounter(t, s.into)
	p := aPod("u1", fromConfigMap("c", "app"), fromSecret("s", "key"), fromConfigMap("late", "none"))
	mustSay(t, ensure(t, m, p), `configmap "none" not found`)
	c, k := volumeDir(m, "u1", "configmap", "c"), volumeDir(m, "u1", "secret", "s")
	again := func() *Mounter {
		next, err := New(m.options, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	later := again()
	version, _ := os.Readlink(c + "/..data")
	later.Follow(p)
	awaitUpdates(t, later, "u1")
	if now, _ := os.Readlink(c + "/..data"); now != version {
		t.Error("unchanged content was written again")
	}
	s.put(aConfigMap("app", "a", "2"))
	s.put(aConfigMap("none", "a", "2"))
	s.put(aSecret("key", "a", "2"))
	mustFollow(t, later, "u1")
	mustHold(t, c, map[string]string{"a": "2"})
	mustHold(t, k, map[string]string{"a": "2"})
	if _, err := os.Stat(volumeDir(m, "u1", "configmap", "late")); err == nil {
		t.Error("a volume was set up without Ensure")
	}
	s.put(aConfigMap("app", "a", "3"))
	s.put(aConfigMap("none", "a", "3"))
	s.put(aSecret("key", "a", "3"))
	later = again()
	mustSetUp(t, later, p)
	mustHold(t, c, map[string]string{"a": "3"})
	mustHold(t, k, map[string]string{"a": "3"})
	if points, _ := mountsBelow(m.PodDir("u1")); len(points) != 1 {
		t.Errorf("mounted: %v, want the secret once", points)
	}
	mustTearDown(t, later, "u1")
	mustBeGone(t, later, "u1")
}

// It gets no events of objects that were removed with it, and no updates, until it comes
// back.
func TestAPodThatIsBeingStoppedIsNotUpdated(t *testing.T) {
	s := newStore(aConfigMap("app", "a", "1"))
	m := newMounter(t, s.into)
	p := aPod("u1", fromConfigMap("c", "app"))
	mustSetUp(t, m, p)
	dir := volumeDir(m, "u1", "configmap", "c")
	s.drop("ConfigMap", "app")
	mustFollow(t, m, "u1")
	if told := s.told(); len(told) != 1 {
		t.Fatalf("got events %q, want that the ConfigMap is missing", told)
	}
	m.Stopping("u1")
	next := p.DeepCopy()
	for range 2 {
		mustFollow(t, m, "u1")
		m.Follow(next)
		awaitUpdates(t, m, "u1")
		s.put(aConfigMap("app", "a", "2"))
	}
	mustHold(t, dir, map[string]string{"a": "1"})
	if told := s.told(); len(told) != 1 {
		t.Errorf("got events %q, want no more", told)
	}
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
	mustSetUp(t, m, p)
	s.put(aConfigMap("app", "a", "3"))
	mustFollow(t, m, "u1")
	mustHold(t, dir, map[string]string{"a": "3"})
	if m.count(func(p *podVolumes) bool { return p.terminating }) > 0 {
		t.Errorf("state is left: %v", m.pods)
	}
}

// An earlier change still waits for the pod's lock.
func TestStoppingCancelsUpdates(t *testing.T) {
	s := newStore(aConfigMap("app", "a", "1"))
	m := newMounter(t, s.into)
	mustSetUp(t, m, aPod("u1", fromConfigMap("c", "app")))
	unlock, err := m.lockLive(t.Context(), "u1")
	if err != nil {
		t.Fatal(err)
	}
	m.Changed("u1")
	m.mu.Lock()
	done := m.stateOf("u1").live.done
	m.mu.Unlock()
	m.Stopping("u1")
	s.drop("ConfigMap", "app")
	unlock()
	<-done
	if told := s.told(); len(told) > 0 {
		t.Errorf("got events %q, want none", told)
	}
}

// The sync that called Ensure was still running.
func TestACanceledEnsureDoesNotUndoStopping(t *testing.T) {
	m := newMounter(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m.Stopping("u1")
	if _, err := m.Ensure(ctx, aPod("u1", empty("e"))); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !m.stateOf("u1").terminating || m.count(hasSetUp) > 0 {
		t.Error("its volumes are being set up")
	}
}

package volumes

import (
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// restarted is what podd has after a restart.
func restarted(t *testing.T, m *Mounter) *Mounter {
	t.Helper()
	next, err := New(m.options, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// TestValuesAreFollowedWhileAnotherVolumeOfThePodHangs after a restart of podd: those of
// each kind, however the hung one waits for its turn, and until the pod ends.
func TestValuesAreFollowedWhileAnotherVolumeOfThePodHangs(t *testing.T) {
	s := newStore(aConfigMap("app", "a", "1"), aSecret("key", "a", "1"))
	withSlow(t, func(t *testing.T, m *Mounter, slow *slow) {
		p := aPod("u1", fromConfigMap("c", "app"), share("n", "nas"), fromSecret("s", "key"), fromPod("d", "app", "metadata.labels['app']"),
			projected("p", partConfigMap("app"), partSecret("key", v1.KeyToPath{Key: "a", Path: "secret"}), partPod("app", "metadata.labels['app']")))
		mustBeReady(t, m, p)
		mustSay := func(m *Mounter, value, label string) {
			t.Helper()
			mustHold(t, volumeDir(m, "u1", "configmap", "c"), map[string]string{"a": value})
			mustHold(t, volumeDir(m, "u1", "secret", "s"), map[string]string{"a": value})
			mustHold(t, volumeDir(m, "u1", "downward-api", "d"), map[string]string{"app": label})
			mustHold(t, volumeDir(m, "u1", "projected", "p"), map[string]string{"a": value, "secret": value, "app": label})
		}
		change := func(m *Mounter, value string) {
			s.put(aConfigMap("app", "a", value))
			s.put(aSecret("key", "a", value))
			m.Changed("u1")
			synctest.Wait()
		}
		later := restarted(t, m)
		slow.into(later)
		release := slow.hang("nas", true)
		defer release()
		later.Follow(p)
		mustWait(t, later, p) // a container starts again
		change(later, "2")
		mustSay(later, "2", "shop")
		next := p.DeepCopy()
		next.Labels["app"] = "bakery"
		later.Follow(next)
		time.Sleep(time.Hour)
		change(later, "3")
		mustSay(later, "3", "bakery")

		mustTearDown(t, later, "u1")
		if len(later.PendingUnmounts()) != 1 {
			t.Errorf("got %+v, want the pod's directory kept", later.PendingUnmounts())
		}
		change(later, "4")
		mustSay(later, "3", "bakery")
		release()
		synctest.Wait()
		mustTearDown(t, later, "u1")
		mustBeGone(t, later, "u1")
		if len(later.pods)+later.locks.Len()+len(later.lockHolders) > 0 {
			t.Errorf("something is remembered of it: %v %v %v", later.pods, later.locks.Len(), later.lockHolders)
		}
	}, s.into)
}

// TestAMissingObjectThatComesIsSeenWhileAnotherVolumeHangs: the volume served on without it
// after a restart of podd, and its failure is told no more.
func TestAMissingObjectThatComesIsSeenWhileAnotherVolumeHangs(t *testing.T) {
	s := newStore(aConfigMap("app", "a", "1"))
	withSlow(t, func(t *testing.T, m *Mounter, slow *slow) {
		p := aPod("u1", fromConfigMap("c", "app"), share("n", "nas"))
		mustBeReady(t, m, p)
		s.drop(pod.KindConfigMap, "app")
		later := restarted(t, m)
		slow.into(later)
		release := slow.hang("nas", false)
		defer release()
		later.Follow(p)
		_, err := later.Ensure(t.Context(), p)
		mustSay(t, err, `configmap "app" not found`)
		s.put(aConfigMap("app", "a", "2"))
		later.Changed("u1")
		synctest.Wait()
		mustHold(t, volumeDir(later, "u1", "configmap", "c"), map[string]string{"a": "2"})
		mustWait(t, later, p)
		release()
		synctest.Wait()
		mustBeReady(t, later, p)
		mustTearDown(t, later, "u1")
		mustBeGone(t, later, "u1")
	}, s.into)
}

// TestValuesAreFollowedWhileASubPathHangs: that of a dead mount.
func TestValuesAreFollowedWhileASubPathHangs(t *testing.T) {
	path, abort := deadMount(t)
	s := newStore(aConfigMap("app", "a", "1"))
	m := newMounter(t, s.into)
	p := aPod("u1", host("h", path, ""), fromConfigMap("c", "app"))
	mustBeReady(t, m, p)
	c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "h", MountPath: "/h", SubPath: "sub"}, {Name: "c", MountPath: "/c", SubPath: "a"}}}
	p.Spec.Containers = []v1.Container{*c}
	release := m.Hold(p, c)
	_, err := m.Mounts(p, c, []string{"sub", "a"})
	mustSay(t, err, `the setup of volume "h"`, "hangs")
	s.put(aConfigMap("app", "a", "2"))
	m.Changed("u1")
	awaitUpdates(t, m, "u1")
	mustHold(t, volumeDir(m, "u1", "configmap", "c"), map[string]string{"a": "1"}) // held
	release()
	awaitUpdates(t, m, "u1")
	mustHold(t, volumeDir(m, "u1", "configmap", "c"), map[string]string{"a": "2"})
	abort()
	for exists(m.PodDir("u1")) {
		mustTearDown(t, m, "u1")
	}
	mustBeGone(t, m, "u1")
	if _, err := os.Stat(path); err == nil {
		t.Error("the mount is not dead")
	}
}

// TestAChangeWhileTheVolumeIsSetUpIsWrittenAfterIt: what the set-up has read by then is not
// written over it.
func TestAChangeWhileTheVolumeIsSetUpIsWrittenAfterIt(t *testing.T) {
	withStore(t, func(t *testing.T, m *Mounter, s *store) {
		p := aPod("u1", fromConfigMap("c", "app"))
		mustBeReady(t, m, p)
		later, gate := restarted(t, m), make(chan struct{})
		l := later.kindOf(&p.Spec.Volumes[0]).driver.(*liveDriver)
		collect, first := l.collect, true
		l.collect = func(target target) (files, error) {
			content, err := collect(target)
			if first {
				first = false
				<-gate
			}
			return content, err
		}
		mustWait(t, later, p)
		s.put(aConfigMap("app", "a", "2"))
		later.Changed("u1")
		synctest.Wait()
		close(gate)
		synctest.Wait()
		mustHold(t, volumeDir(later, "u1", "configmap", "c"), map[string]string{"a": "2"})
		mustBeReady(t, later, p)
	}, aConfigMap("app", "a", "1"))
}

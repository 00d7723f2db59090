package objects_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/objects"
)

// A pod has left and another use of the object has begun, while an answer to the first is
// still on its way.
func TestALateAnswerAboutAnObjectDoesNotReplaceANewerOne(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, c *changes) {
		p := clusterPod("one", "settings")
		s.Register(p)
		late := a.follower("shop/settings")
		late(valued("old"), nil)
		s.Unregister("one")
		c.take()
		late(valued("older"), nil) // while nobody asks
		s.Register(p)
		current := a.follower("shop/settings")
		expect := func(when, want string) {
			t.Helper()
			if got := c.take(); len(got) > 0 {
				t.Errorf("%s: notified %v, want nobody", when, got)
			}
			got := ""
			if m, err := s.ConfigMap(p, "settings"); err == nil {
				got = m.Data["key"]
			} else if !errors.Is(err, pod.ErrObjectPending) {
				t.Errorf("%s: got %v", when, err)
			}
			if got != want {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		late(valued("older"), nil)
		expect("the newer request is not answered yet", "")
		late(nil, errors.New("connection refused"))
		expect("the older one has failed", "")
		current(valued("new"), nil)
		c.take()
		late(valued("older"), nil)
		expect("an older value", "new")
		late(nil, nil)
		expect("there was none", "new")
		late(nil, errors.New("connection refused"))
		expect("the older one has failed", "new")
	})
}

func TestALateAnswerAboutAClaimDoesNotReplaceANewerOne(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, c *changes) {
		late := make(chan struct{})
		a.store(func(a *stored) {
			a.claims = map[string]*v1.PersistentVolumeClaim{"data": remoteClaim("1", "old")}
			a.volumes = map[string]*v1.PersistentVolume{"old": remoteVolume("old", "1"), "new": remoteVolume("new", "2")}
			a.held = late
		})
		p := podWithClaim("one", "data")
		s.Register(p)
		synctest.Wait() // the older request has its answer
		s.Unregister("one")
		a.store(func(a *stored) { a.claims["data"], a.held = remoteClaim("2", "new"), nil })
		s.Register(p)
		expect := func(when string) {
			t.Helper()
			s.AwaitClaim(context.Background(), p, &p.Spec.Volumes[0])
			if b, err := s.Claim(p, &p.Spec.Volumes[0]); err != nil || b.Volume.Name != "new" {
				t.Errorf("%s: got %+v, %v, want the new volume", when, b, err)
			}
		}
		expect("before the late answer")
		c.take()
		close(late)
		if got := c.take(); len(got) > 0 {
			t.Errorf("the late answer: notified %v, want nobody", got)
		}
		expect("after the late answer")
	})
}

// Whoever waits for an answer that a newer registration will get goes on waiting for that one.
func TestALateAnswerDoesNotEndTheWaitForTheNewerOne(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, _ *changes) {
		late := make(chan struct{})
		a.store(func(a *stored) { a.held = late })
		p := podWithClaim("one", "data")
		s.Register(p)
		synctest.Wait()
		s.Unregister("one")
		newer := make(chan struct{})
		a.store(func(a *stored) {
			a.claims = map[string]*v1.PersistentVolumeClaim{"data": remoteClaim("1", "disk")}
			a.volumes = map[string]*v1.PersistentVolume{"disk": remoteVolume("disk", "1")}
			a.held = newer
		})
		s.Register(p)
		time.AfterFunc(time.Minute, func() { close(late) })
		time.AfterFunc(time.Hour, func() { close(newer) })
		began := time.Now()
		s.AwaitClaim(context.Background(), p, &p.Spec.Volumes[0])
		if waited := time.Since(began); waited != time.Hour {
			t.Errorf("waited %v, want an hour", waited)
		}
		if b, err := s.Claim(p, &p.Spec.Volumes[0]); err != nil || b.Volume.Name != "disk" {
			t.Errorf("got %+v, %v", b, err)
		}
	})
}

// A store that has ended asks nothing more, and nothing of it is left.
func TestRunEndsAfterItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, late := newAPIServer(), make(chan struct{})
		a.held = late
		s := objects.New(objects.Config{Remote: a, Log: slog.New(slog.DiscardHandler)})
		s.Register(podWithClaim("one", "data"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-done:
			t.Error("it has ended before the answer to its request has come")
		default:
		}
		close(late)
		if err := <-done; err != nil {
			t.Errorf("got %v", err)
		}
		before := a.count()
		time.Sleep(time.Hour)
		if a.count() != before {
			t.Errorf("%d requests after the end", a.count()-before)
		}
	})
}

// Each edit of a pod's objects is followed from when Run waits for something to do.
func TestWhatIsFollowedChangesWithTheRegistration(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, _ *changes) {
		for _, name := range []string{"one", "two", "one"} {
			a.followed() // waits
			s.Register(clusterPod("p", name))
			if got := a.followed(); !slices.Equal(got, []string{"configmap shop/" + name}) {
				t.Errorf("registered with %s: follows %q", name, got)
			}
		}
	})
}

func TestAChangeOfAnObjectOfTheClusterNotifiesItsPods(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, c *changes) {
		p := clusterPod("one", "settings")
		s.Register(p)
		contents := func() uint64 {
			return s.Contents("one")[pod.ObjectKey{Kind: pod.KindConfigMap, Namespace: "shop", Name: "settings"}]
		}
		a.says("shop/settings", "", nil)
		if got := c.take(); !slices.Equal(got, []pod.UID{"one"}) || contents() != 0 {
			t.Errorf("there is none: notified %v, contents %x", got, contents())
		}
		last := uint64(0)
		for _, step := range []struct {
			value  string
			change bool
		}{{"x", true}, {"x", false}, {"y", true}, {"", true}, {"", false}, {"y", true}} {
			a.says("shop/settings", step.value, nil)
			now := contents()
			if got := c.take(); (len(got) == 1) != step.change || len(got) > 1 || (now != last) != step.change || (now == 0) != (step.value == "") {
				t.Errorf("it becomes %q: notified %v, contents %x after %x, want a change: %v", step.value, got, now, last, step.change)
			}
			last = now
		}
	})
}

func TestAnImmutableObjectIsNotFollowedAnyFurther(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, _ *changes) {
		p := clusterPod("one", "settings")
		s.Register(p)
		fixed := valued("x")
		fixed[0].Immutable = new(true)
		a.follower("shop/settings")(fixed, nil)
		if got := a.followed(); len(got) > 0 {
			t.Errorf("follows %q", got)
		}
		s.Register(clusterPod("two", "settings"))
		if got := a.followed(); len(got) > 0 {
			t.Errorf("with another pod: follows %q", got)
		}
		if m, err := s.ConfigMap(p, "settings"); err != nil || m.Data["key"] != "x" {
			t.Errorf("got %v, %v, want x", m, err)
		}
		s.Unregister("one")
		s.Unregister("two")
		a.followed()
		s.Register(p) // it may have been deleted and made anew by now
		if got := a.followed(); !slices.Equal(got, []string{"configmap shop/settings"}) {
			t.Errorf("for a pod that comes later: follows %q", got)
		}
	})
}

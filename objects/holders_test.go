package objects_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/objects"
)

// ReadWriteOncePod.
func TestAVolumeOfTheClusterForOnePodIsNotGivenToASecond(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, c *changes) {
		a.store(func(a *stored) {
			a.claims = map[string]*v1.PersistentVolumeClaim{"data": remoteClaim("1", "disk")}
			a.volumes = map[string]*v1.PersistentVolume{"disk": remoteVolume("disk", "1", func(v *v1.PersistentVolume) {
				v.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
			})}
		})
		gone := map[pod.UID]bool{}
		use := func(p *v1.Pod) error {
			s.Register(p)
			s.AwaitClaim(context.Background(), p, &p.Spec.Volumes[0])
			b, err := s.Claim(p, &p.Spec.Volumes[0])
			if err != nil {
				t.Fatal(err)
			}
			return s.Use(b, p.UID, func(uid pod.UID) bool { return gone[uid] })
		}
		one, two := podWithClaim("one", "data"), podWithClaim("two", "data")
		if err := use(one); err != nil {
			t.Error(err)
		}
		if err := use(two); !strings.Contains(errText(err), "already in use by another pod") {
			t.Errorf("the second: got %v", err)
		}
		c.take()
		gone["one"] = true
		s.Unregister("one")
		if got := c.take(); !slices.Equal(got, []pod.UID{"two"}) {
			t.Errorf("the first is gone: notified %v", got)
		}
		if err := use(two); err != nil {
			t.Errorf("after the first: got %v", err)
		}
	})
}

func TestAHolderOfAVolumeOfTheClusterIsOnDiskUntilItHasLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bindings.json")
	left := map[pod.UID]bool{}
	hasLeft := func(uid pod.UID) bool { return left[uid] }
	held := func(name string) pod.BoundVolume {
		v := remoteVolume(name, "1")
		v.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		return pod.BoundVolume{Volume: v, Cluster: true}
	}
	fresh := func() *objects.Store {
		return objects.New(objects.Config{BindingsFile: path, Log: slog.New(slog.DiscardHandler)})
	}
	if err := fresh().Use(held("disk"), "one", hasLeft); err != nil {
		t.Fatal(err)
	}
	after := fresh()
	if err := after.Use(held("disk"), "two", hasLeft); err == nil {
		t.Error("a restart of podd gave a second pod the volume")
	}
	left["one"] = true
	shared := pod.BoundVolume{Volume: remoteVolume("shared", "1"), Cluster: true}
	if err := after.Use(shared, "two", hasLeft); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "disk") {
		t.Errorf("a pod has started since the first has left: on disk is %s, %v", text, err)
	}
	if err := after.Use(held("other"), "three", hasLeft); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "disk") || !strings.Contains(string(text), "three") {
		t.Errorf("on disk is %s, %v", text, err)
	}
}

// Its first container may not run yet, and so nothing of it is on the node.
func TestAPodThatStartsKeepsItsVolume(t *testing.T) {
	s := objects.New(objects.Config{Log: slog.New(slog.DiscardHandler)})
	volume := remoteVolume("disk", "1")
	volume.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	held := pod.BoundVolume{Volume: volume, Cluster: true}
	s.Register(podWithClaim("one", "data"))
	if err := s.Use(held, "one", func(pod.UID) bool { return true }); err != nil {
		t.Fatal(err)
	}
	shared := pod.BoundVolume{Volume: remoteVolume("shared", "1"), Cluster: true}
	if err := s.Use(shared, "two", func(pod.UID) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if err := s.Use(held, "three", func(pod.UID) bool { return false }); !strings.Contains(errText(err), "already in use by another pod") {
		t.Errorf("a third pod: got %v", err)
	}
}

package objects_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/objects"
)

// apiserver is a Remote that a test speaks for.
type apiserver struct {
	mu         sync.Mutex
	configMaps map[string]func([]*v1.ConfigMap, error)
	secrets    map[string]func([]*v1.Secret, error)
	more       map[string]func(value string, err error) // CSIDrivers and RuntimeClasses
	bundles    map[string]func([]*certificatesv1.ClusterTrustBundle, error)
	stored
}

func newAPIServer() *apiserver {
	return &apiserver{
		configMaps: map[string]func([]*v1.ConfigMap, error){}, secrets: map[string]func([]*v1.Secret, error){}, more: map[string]func(string, error){},
		bundles: map[string]func([]*certificatesv1.ClusterTrustBundle, error){},
	}
}

func (a *apiserver) FollowConfigMap(ctx context.Context, namespace, name string, set func([]*v1.ConfigMap, error)) {
	follow(ctx, &a.mu, a.configMaps, namespace+"/"+name, set)
}

func (a *apiserver) FollowSecret(ctx context.Context, namespace, name string, set func([]*v1.Secret, error)) {
	follow(ctx, &a.mu, a.secrets, namespace+"/"+name, set)
}

func (a *apiserver) FollowTrustBundles(ctx context.Context, name, signer string, set func([]*certificatesv1.ClusterTrustBundle, error)) {
	follow(ctx, &a.mu, a.bundles, name+" of "+signer, set)
}

func follow[T any](ctx context.Context, mu *sync.Mutex, all map[string]T, name string, set T) {
	mu.Lock()
	if _, twice := all[name]; twice {
		panic(name + " is followed twice")
	}
	all[name] = set
	mu.Unlock()
	<-ctx.Done()
	mu.Lock()
	delete(all, name)
	mu.Unlock()
}

func (a *apiserver) followed() (names []string) {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.configMaps {
		names = append(names, "configmap "+name)
	}
	for name := range a.more {
		names = append(names, name)
	}
	for name := range a.secrets {
		names = append(names, "secret "+name)
	}
	for name := range a.bundles {
		names = append(names, "bundle "+name)
	}
	slices.Sort(names)
	return names
}

// says has the apiserver answer about a ConfigMap: its value, or none.
func (a *apiserver) says(name, value string, err error) { a.follower(name)(valued(value), err) }

// follower is what takes the answers about a ConfigMap.
func (a *apiserver) follower(name string) func([]*v1.ConfigMap, error) {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.configMaps[name]
}

// valued is a ConfigMap with a value, none for "".
func valued(value string) (all []*v1.ConfigMap) {
	if value != "" {
		all = append(all, &v1.ConfigMap{Data: map[string]string{"key": value}})
	}
	return all
}

func clusterPod(uid pod.UID, configMaps ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: string(uid), UID: uid, Annotations: map[string]string{pod.AnnotationSource: "api"},
	}}
	for i, name := range configMaps {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint(i), VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}},
		}})
	}
	return p
}

// changes records which pods were notified.
type changes struct {
	mu  sync.Mutex
	all []pod.UID
}

func (c *changes) Changed(uid pod.UID) { c.mu.Lock(); defer c.mu.Unlock(); c.all = append(c.all, uid) }

func (c *changes) take() []pod.UID {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.all
	c.all = nil
	return out
}

func inCluster(t *testing.T, run func(s *objects.Store, a *apiserver, c *changes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, c := newAPIServer(), &changes{}
		s := objects.New(objects.Config{Remote: a, ClusterNodeLabels: func() map[string]string { return map[string]string{v1.LabelHostname: "here"} }, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx, c) }()
		run(s, a, c)
		cancel()
		<-done
	})
}

func TestOnlyObjectsThatPodsOfTheClusterReferenceAreFollowed(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, c *changes) {
		one, two := clusterPod("one", "settings", "colors"), clusterPod("two", "settings")
		static := clusterPod("static", "settings")
		static.Annotations[pod.AnnotationSource] = "file"
		s.Register(static)
		if got := a.followed(); len(got) > 0 {
			t.Errorf("for a static pod: follows %q", got)
		}
		s.Register(one)
		s.Register(two)
		if got, want := a.followed(), []string{"configmap shop/colors", "configmap shop/settings"}; !slices.Equal(got, want) {
			t.Errorf("follows %q, want %q", got, want)
		}
		s.Unregister("one")
		if got, want := a.followed(), []string{"configmap shop/settings"}; !slices.Equal(got, want) {
			t.Errorf("after the first is gone: follows %q, want %q", got, want)
		}
		s.Unregister("two")
		if got := a.followed(); len(got) > 0 {
			t.Errorf("after both are gone: follows %q", got)
		}
	})
}

func TestAnObjectOfTheClusterIsMissingOnlyOnceTheApiserverSaysSo(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, c *changes) {
		p := clusterPod("one", "settings")
		s.Register(p)
		get := func() (string, error) {
			m, err := s.ConfigMap(p, "settings")
			if err != nil {
				return "", err
			}
			return m.Data["key"], nil
		}
		if _, err := get(); err == nil || errors.Is(err, pod.ErrNotFound) {
			t.Errorf("not asked yet: got %v", err)
		}
		a.says("shop/settings", "", errors.New("connection refused"))
		if _, err := get(); err == nil || errors.Is(err, pod.ErrNotFound) || err.Error() != `configmap "settings" is not known yet: connection refused` {
			t.Errorf("away: got %v", err)
		}
		if got := c.take(); !slices.Equal(got, []pod.UID{"one"}) {
			t.Errorf("away: notified %v", got)
		}
		a.says("shop/settings", "", nil)
		if _, err := get(); !errors.Is(err, pod.ErrNotFound) || err.Error() != `configmap "settings" not found` {
			t.Errorf("there is none: got %v", err)
		}
		a.says("shop/settings", "x", nil)
		if got, err := get(); got != "x" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		if got := c.take(); len(got) == 0 {
			t.Error("nobody was notified")
		}
		a.says("shop/settings", "x", nil)
		a.says("shop/settings", "", errors.New("connection refused"))
		if got := c.take(); len(got) > 0 {
			t.Errorf("of nothing new: notified %v", got)
		}
		if got, err := get(); got != "x" || err != nil {
			t.Errorf("away again: got %q, %v, want the last answer", got, err)
		}
	})
}

func TestObjectsOfManifestsAndOfTheClusterAreTwoWorlds(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, c *changes) {
		s.Replace([]*pod.Object{{ConfigMap: &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}, Data: map[string]string{"key": "manifest"}}, Seen: time.Now()}})
		p := clusterPod("one", "settings")
		static := clusterPod("static", "settings")
		static.Annotations[pod.AnnotationSource] = "file"
		s.Register(p)
		s.Register(static)
		a.says("shop/settings", "cluster", nil)
		for of, want := range map[*v1.Pod]string{p: "cluster", static: "manifest"} {
			if m, err := s.ConfigMap(of, "settings"); err != nil || m.Data["key"] != want {
				t.Errorf("%s: got %v, %v, want %s", of.Name, m, err, want)
			}
		}
		one, other := s.Contents("one"), s.Contents("static")
		if len(one) != 1 || len(other) != 1 {
			t.Errorf("got contents %v and %v", one, other)
		}
	})
}

package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

func aVolume(name string, modes ...v1.PersistentVolumeAccessMode) *pod.Object {
	if modes == nil {
		modes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	}
	return &pod.Object{Volume: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
		Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: modes}}}
}

func claimSpec() v1.PersistentVolumeClaimSpec {
	return v1.PersistentVolumeClaimSpec{Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}}}
}

func aClaim(name string) *pod.Object {
	return &pod.Object{Claim: &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: claimSpec()}}
}

// claimant returns a pod with a volume of a claim; if claim is empty, with an ephemeral
// volume.
func claimant(uid, claim string) (*v1.Pod, *v1.Volume) {
	p := userOf(uid)
	v := v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
	if claim == "" {
		v.VolumeSource = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: claimSpec()}}}
		p.Name = "web"
	}
	p.Spec.Volumes = []v1.Volume{v}
	return p, &p.Spec.Volumes[0]
}

// It does not matter which of the documents was missing.
func TestAPodIsNotifiedWhenItsClaimCanBeBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s, h := newStore(), &heard{}
		go func() { _ = s.Run(ctx, h) }()
		p, v := claimant("a", "c1")
		s.Register(p)
		other, _ := claimant("b", "c9")
		s.Register(other)
		c, vol := aClaim("c1"), aVolume("v1")
		for i, step := range []struct {
			all       []*pod.Object
			told, err string
		}{
			{nil, "[]", `error processing PVC shop/c1: persistentvolumeclaim "c1" not found`},
			{[]*pod.Object{c}, "[a]", "error processing PVC shop/c1: PVC is not bound: no persistent volumes available for this claim and no storage class is set"},
			{[]*pod.Object{c, vol}, "[a]", ""},
			{[]*pod.Object{c, vol, aVolume("v2"), aClaim("c2")}, "[]", ""},
			{[]*pod.Object{c}, "[a]", `error processing PVC shop/c1: persistentvolume "v1" not found, and the claim is bound to it: add it again, or remove the claim to have it bound anew`},
			{[]*pod.Object{c, aVolume("v1")}, "[a]", ""},
		} {
			h.uids = nil
			s.Replace(step.all)
			synctest.Wait()
			if got := fmt.Sprint(h.uids); got != step.told {
				t.Errorf("step %d: notified %v, want %v", i, got, step.told)
			}
			b, err := s.Claim(p, v)
			switch {
			case step.err == "" && (err != nil || b.Volume.Name != "v1" || b.Claim.Name != "c1"):
				t.Errorf("step %d: got %+v, %v", i, b, err)
			case step.err != "" && (err == nil || !strings.HasPrefix(err.Error(), step.err)):
				t.Errorf("step %d: got %v", i, err)
			}
		}
	})
}

func TestAMissingClaimIsNotFound(t *testing.T) {
	p, v := claimant("a", "c1")
	if _, err := newStore().Claim(p, v); !errors.Is(err, pod.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// persistent returns a store that keeps its bindings in a file.
func persistent(t *testing.T, path string) *Store {
	t.Helper()
	return New(Config{BindingsFile: path, NodeLabels: map[string]string{v1.LabelHostname: "n1"}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
}

func use(t *testing.T, s *Store, p *v1.Pod, v *v1.Volume) error {
	t.Helper()
	b, err := s.Claim(p, v)
	if err != nil {
		t.Fatal(err)
	}
	return s.Use(b, p.UID, func(pod.UID) bool { return false })
}

// Also if the documents come one after the other and another volume would now match better.
func TestABindingSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "bindings.json")
	s := persistent(t, path)
	p, v := claimant("a", "c1")
	s.Replace([]*pod.Object{aVolume("v2"), aClaim("c1")})
	if err := use(t, s, p, v); err != nil {
		t.Fatal(err)
	}
	after := persistent(t, path)
	after.Replace([]*pod.Object{aVolume("v1"), aClaim("c1")}) // from one source; v2 is from another
	if b, err := after.Claim(p, v); err == nil {
		t.Fatalf("got %s, and its data is elsewhere", b.Volume.Name)
	}
	after.Replace([]*pod.Object{aVolume("v1"), aClaim("c1"), aVolume("v2")})
	if b, err := after.Claim(p, v); err != nil || b.Volume.Name != "v2" {
		t.Fatalf("got %+v, %v", b, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
}

// Also if podd did not run when the volume was removed, and so waits for it to appear.
func TestALostClaimIsBoundAnewOnceItWasRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bindings.json")
	s := persistent(t, path)
	p, v := claimant("a", "c1")
	s.Replace([]*pod.Object{aVolume("v2"), aClaim("c1")})
	if err := use(t, s, p, v); err != nil {
		t.Fatal(err)
	}
	after := persistent(t, path)
	after.Replace([]*pod.Object{aVolume("v1"), aClaim("c1")})
	if _, err := after.Claim(p, v); err == nil || !strings.Contains(err.Error(), "remove the claim to have it bound anew") {
		t.Fatalf("got %v", err)
	}
	after.Replace([]*pod.Object{aVolume("v1")})
	after.Replace([]*pod.Object{aVolume("v1"), aClaim("c1")})
	if b, err := after.Claim(p, v); err != nil || b.Volume.Name != "v1" {
		t.Errorf("got %+v, %v", b, err)
	}
}

// No pod asks for either again.
func TestABindingIsGoneFromDiskWithItsVolumeAndClaim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bindings.json")
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s := persistent(t, path)
		go func() { _ = s.Run(ctx) }()
		s.Replace([]*pod.Object{aVolume("v1"), aClaim("c1")})
		synctest.Wait()
		if f, err := newBindings(path).Read(); err != nil || len(f.Bindings) != 1 {
			t.Fatalf("got %+v, %v", f, err)
		}
		s.Replace([]*pod.Object{aVolume("v1")})
		synctest.Wait()
		if f, err := newBindings(path).Read(); err != nil || len(f.Bindings) != 1 {
			t.Fatalf("a volume that is released: got %+v, %v", f, err)
		}
		s.Replace(nil)
		synctest.Wait()
		if f, err := newBindings(path).Read(); err != nil || len(f.Bindings) > 0 {
			t.Errorf("got %+v, %v", f, err)
		}
	})
}

func TestABrokenBindingsFileIsSetAside(t *testing.T) {
	for name, text := range map[string]string{"half": `{"version":1,"bindings":[{"vol`, "newer": `{"version":2}`, "empty": "", "binary": "\x00\x01"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bindings.json")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := persistent(t, path)
			if all := s.Problems(); len(all) != 1 || all[0].Origin != path {
				t.Errorf("got %+v", all)
			}
			if kept, err := os.ReadFile(path + ".broken"); err != nil || string(kept) != text {
				t.Errorf("got %q, %v", kept, err)
			}
			p, v := claimant("a", "c1")
			s.Replace([]*pod.Object{aVolume("v1"), aClaim("c1")})
			if err := use(t, s, p, v); err != nil {
				t.Fatal(err)
			}
			if len(persistent(t, path).Problems()) > 0 {
				t.Error("what was written then cannot be read either")
			}
		})
	}
}

// Otherwise the next podd could bind the volume to another claim.
func TestAVolumeIsNotUsedBeforeItsBindingIsOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bindings")
	s := persistent(t, filepath.Join(dir, "b.json"))
	p, v := claimant("a", "c1")
	s.Replace([]*pod.Object{aVolume("v1"), aClaim("c1")})
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file is in the way
		t.Fatal(err)
	}
	if err := use(t, s, p, v); err == nil || !strings.Contains(err.Error(), "cannot save the bindings of claims") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := use(t, s, p, v); err != nil {
		t.Errorf("got %v", err)
	}
}

// The second pod gets upstream's error.
func TestAReadWriteOncePodVolumeHasOnePod(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bindings.json")
	s := persistent(t, path)
	all := []*pod.Object{aVolume("v1", v1.ReadWriteOncePod), aClaim("c1")}
	s.Replace(all)
	a, v := claimant("a", "c1")
	b, _ := claimant("b", "c1")
	for range 2 {
		if err := use(t, s, a, v); err != nil {
			t.Fatal(err)
		}
	}
	const inUse = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
	if err := use(t, s, b, v); err == nil || err.Error() != inUse {
		t.Errorf("got %v", err)
	}
	s = persistent(t, path)
	s.Replace(all)
	if err := use(t, s, b, v); err == nil || err.Error() != inUse {
		t.Errorf("after a restart: got %v", err)
	}
	bound, err := s.Claim(b, v)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Use(bound, "b", func(uid pod.UID) bool { return uid == "a" }); err != nil {
		t.Errorf("once the first has left: got %v", err)
	}
	if err := use(t, s, a, v); err == nil {
		t.Error("the first has it, and the second too")
	}
}

// ReadWriteOnce means one node.
func TestSeveralPodsShareAReadWriteOnceVolume(t *testing.T) {
	s := newStore()
	s.Replace([]*pod.Object{aVolume("v1"), aClaim("c1")})
	for _, uid := range []string{"a", "b"} {
		p, v := claimant(uid, "c1")
		if err := use(t, s, p, v); err != nil {
			t.Errorf("%s: got %v", uid, err)
		}
	}
}

func TestThePodThatWaitsForAReadWriteOncePodVolumeIsNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s, h := newStore(), &heard{}
		go func() { _ = s.Run(ctx, h) }()
		s.Replace([]*pod.Object{aVolume("v1", v1.ReadWriteOncePod), aClaim("c1")})
		a, v := claimant("a", "c1")
		b, _ := claimant("b", "c1")
		s.Register(a)
		s.Register(b)
		if err := use(t, s, a, v); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		h.uids = nil
		s.Unregister("a")
		synctest.Wait()
		if got := fmt.Sprint(h.uids); got != "[b]" {
			t.Errorf("notified %v", got)
		}
	})
}

func TestAnEphemeralVolumeHasAClaimOwnedByItsPod(t *testing.T) {
	s := newStore()
	s.Replace([]*pod.Object{aVolume("v1")})
	p, v := claimant("1", "")
	if _, err := s.Claim(p, v); err == nil {
		t.Fatal("a claim of a pod that is not registered")
	}
	s.Register(p)
	b, err := s.Claim(p, v)
	if err != nil || b.Volume.Name != "v1" || b.Claim.Name != "web-data" || b.ReadOnly {
		t.Fatalf("got %+v, %v", b, err)
	}
	if made := s.EphemeralClaims(); len(made) != 1 || fmt.Sprint(made[0].Users) != "[shop/web]" {
		t.Errorf("got %+v", made)
	}
	const notOwner = "PVC shop/web-data was not created for pod shop/web (pod is not owner)"
	next, _ := claimant("2", "")
	s.Register(next)
	if _, err := s.Claim(next, v); err == nil || err.Error() != notOwner {
		t.Errorf("while the old pod is there: got %v", err)
	}
	if b, err := s.Claim(p, v); err != nil || b.Volume.Name != "v1" {
		t.Errorf("the old pod, while the next one waits: got %+v, %v", b, err)
	}
	s.Unregister("1")
	if _, err := s.Claim(next, v); err == nil || !strings.Contains(err.Error(), `PVC is not bound: no persistent volumes available for this claim and no storage class is set (volume "v1"`) {
		t.Errorf("then it waits for a volume, as the first is kept: got %v", err)
	}
	s.Replace([]*pod.Object{aVolume("v1"), aVolume("v2"), aClaim("web-data")})
	if _, err := s.Claim(next, v); err == nil || err.Error() != notOwner {
		t.Errorf("a claim of that name, and not the pod's: got %v", err)
	}
}

func TestAClaimThatNamesAnotherVolumeThanItHasIsAProblem(t *testing.T) {
	s := newStore()
	s.Replace([]*pod.Object{aVolume("v1"), aClaim("c1")})
	renamed := aClaim("c1")
	renamed.Claim.Spec.VolumeName, renamed.Origin, renamed.Line = "v2", "claims.yaml", 7
	for range 2 {
		s.Replace([]*pod.Object{aVolume("v1"), aVolume("v2"), renamed})
		all := s.Problems()
		if len(all) != 1 || all[0].Line != 7 || !strings.Contains(all[0].Message, `bound to volume "v1"`) {
			t.Fatalf("got %+v", all)
		}
	}
	if s.Replace([]*pod.Object{aVolume("v1"), aClaim("c1")}); len(s.Problems()) > 0 {
		t.Errorf("got %+v", s.Problems())
	}
}

// A document comes first: its claim was there before the pod.
func TestAnEphemeralVolumeDoesNotTakeTheClaimOfADocument(t *testing.T) {
	s := newStore()
	p, v := claimant("1", "")
	other, named := claimant("2", "web-data")
	s.Replace([]*pod.Object{aVolume("v1"), aClaim("web-data")})
	s.Register(p)
	s.Register(other)
	if _, err := s.Claim(p, v); err == nil || !strings.Contains(err.Error(), "pod is not owner") {
		t.Errorf("the ephemeral volume: got %v", err)
	}
	if b, err := s.Claim(other, named); err != nil || b.Volume.Name != "v1" {
		t.Errorf("a pod that names the document: got %+v, %v", b, err)
	}
}

func TestEphemeralVolumesOfTheSameNameBelongToTheirNamespaces(t *testing.T) {
	s := newStore()
	s.Replace([]*pod.Object{aVolume("v1"), aVolume("v2"), aVolume("v3"), aVolume("v4")})
	for _, where := range []string{"b/web", "a/web", "b/api", "a/db"} {
		p, _ := claimant(where, "")
		p.Namespace, p.Name, _ = strings.Cut(where, "/")
		s.Register(p)
		if b, err := s.Claim(p, &p.Spec.Volumes[0]); err != nil || b.Claim.Namespace != p.Namespace || b.Claim.Name != p.Name+"-data" {
			t.Errorf("%s: got %+v, %v", where, b, err)
		}
	}
	var got []string
	for _, c := range s.EphemeralClaims() {
		got = append(got, c.Namespace+"/"+c.Name+" of "+strings.Join(c.Users, ","))
	}
	const want = "[a/db-data of a/db a/web-data of a/web b/api-data of b/api b/web-data of b/web]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestThePodThatUsesAnEphemeralVolumesClaimIsNotifiedOfItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s, h := newStore(), &heard{}
		go func() { _ = s.Run(ctx, h) }()
		s.Replace([]*pod.Object{aVolume("v1")})
		owner, _ := claimant("1", "")
		other, v := claimant("2", "web-data")
		s.Register(owner)
		s.Register(other)
		if b, err := s.Claim(other, v); err != nil || b.Volume.Name != "v1" {
			t.Errorf("got %+v, %v", b, err)
		}
		synctest.Wait()
		h.uids = nil
		s.Unregister("1")
		synctest.Wait()
		if got := fmt.Sprint(h.uids); got != "[2]" {
			t.Errorf("notified %v, want [2]", got)
		}
		if _, err := s.Claim(other, v); !errors.Is(err, pod.ErrNotFound) {
			t.Errorf("after the owner: got %v, want %v", err, pod.ErrNotFound)
		}
	})
}

// Another version of the pod has no such volume.
func TestAClaimEndsWithThePodsRegistrationOfIt(t *testing.T) {
	s := newStore()
	s.Replace([]*pod.Object{aVolume("v1")})
	p, _ := claimant("1", "")
	s.Register(p)
	s.Register(userOf("1", "c1"))
	if got := s.Bindings().Claims; len(got) > 0 || len(s.EphemeralClaims()) > 0 {
		t.Errorf("got %v and %v, want no claims", got, s.EphemeralClaims())
	}
}

// Whoever leaves wakes the pods that wait for what it held, and no others.
func TestAPodThatLeavesWakesOnlyPodsThatWaitedForItsVolume(t *testing.T) {
	for name, c := range map[string]struct {
		volume *pod.Object
		other  func(p *v1.Pod) // what the other pod has instead of the same claim
		want   string
	}{
		"the only pod of the volume":        {volume: aVolume("v1", v1.ReadWriteOncePod), want: "[b]"},
		"one of a volume's pods":            {volume: aVolume("v1"), want: "[]"},
		"a ConfigMap with the claim's name": {volume: aVolume("v1", v1.ReadWriteOncePod), other: func(p *v1.Pod) { *p = *userOf("b", "c1") }, want: "[]"},
		"a pod with another claim":          {volume: aVolume("v1", v1.ReadWriteOncePod), other: func(p *v1.Pod) { q, _ := claimant("b", "c2"); *p = *q }, want: "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				s, h := newStore(), &heard{}
				go func() { _ = s.Run(ctx, h) }()
				a, v := claimant("a", "c1")
				a.Spec.Containers = userOf("a", "c1").Spec.Containers
				b, _ := claimant("b", "c1")
				if c.other != nil {
					c.other(b)
				}
				s.Replace([]*pod.Object{c.volume, aClaim("c1"), aVolume("v2"), aClaim("c2"), configMap("c1", "1")})
				s.Register(a)
				s.Register(b)
				if err := use(t, s, a, v); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				h.uids = nil
				s.Unregister("a")
				synctest.Wait()
				if got := fmt.Sprint(h.uids); got != c.want {
					t.Errorf("notified %v, want %v", got, c.want)
				}
			})
		})
	}
}

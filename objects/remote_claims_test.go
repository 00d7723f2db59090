package objects_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podd/internal/pod"
	"podd/objects"
)

// stored are the claims and volumes of an apiserver.
type stored struct {
	lock    sync.Mutex
	claims  map[string]*v1.PersistentVolumeClaim
	volumes map[string]*v1.PersistentVolume
	away    error
	reads   int
	// held, if set, holds back answers of this moment until it is closed, also those to who
	// has given up.
	held chan struct{}
}

func (a *stored) Claim(_ context.Context, _, name string) (*v1.PersistentVolumeClaim, error) {
	return answerOf(a, func() map[string]*v1.PersistentVolumeClaim { return a.claims }, "persistentvolumeclaims", name)
}

func (a *stored) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return answerOf(a, func() map[string]*v1.PersistentVolume { return a.volumes }, "persistentvolumes", name)
}

func answerOf[T any](a *stored, all func() map[string]*T, resource, name string) (*T, error) {
	a.lock.Lock()
	a.reads++
	o, err, held := all()[name], a.away, a.held
	a.lock.Unlock()
	if held != nil {
		<-held
	}
	switch {
	case err != nil:
		return nil, err
	case o == nil:
		return nil, apierrors.NewNotFound(v1.Resource(resource), name)
	}
	return o, nil
}

func (a *stored) count() int { a.lock.Lock(); defer a.lock.Unlock(); return a.reads }

// store changes what the apiserver has.
func (a *stored) store(change func(*stored)) {
	a.lock.Lock()
	defer a.lock.Unlock()
	change(a)
}

// The value of a CSIDriver is its fsGroupPolicy, that of a RuntimeClass its handler; there is
// no object of the value "".
func (a *apiserver) FollowCSIDriver(ctx context.Context, name string, set func([]*storagev1.CSIDriver, error)) {
	follow(ctx, &a.mu, a.more, "csidriver "+name, func(value string, err error) {
		var all []*storagev1.CSIDriver
		if policy := storagev1.FSGroupPolicy(value); value != "" {
			all = append(all, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{FSGroupPolicy: &policy}})
		}
		set(all, err)
	})
}

func (a *apiserver) FollowRuntimeClass(ctx context.Context, name string, set func([]*nodev1.RuntimeClass, error)) {
	follow(ctx, &a.mu, a.more, "runtimeclass "+name, func(value string, err error) {
		var all []*nodev1.RuntimeClass
		if value != "" {
			all = append(all, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: value})
		}
		set(all, err)
	})
}

func remoteClaim(uid types.UID, volume string, change ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	c.Spec.VolumeName, c.Status.Phase = volume, v1.ClaimBound
	for _, f := range change {
		f(c)
	}
	return c
}

func remoteVolume(name string, of types.UID, change ...func(*v1.PersistentVolume)) *v1.PersistentVolume {
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.ClaimRef = &v1.ObjectReference{UID: of}
	for _, f := range change {
		f(v)
	}
	return v
}

func onNode(name string) func(*v1.PersistentVolume) {
	return func(v *v1.PersistentVolume) {
		v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{name}}},
		}}}}
	}
}

func podWithClaim(uid pod.UID, claim string) *v1.Pod {
	p := clusterPod(uid)
	p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	return p
}

func podWithOwnClaim(uid pod.UID) *v1.Pod {
	p := clusterPod(uid)
	p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{}}}}}
	return p
}

func ownedBy(uid types.UID) func(*v1.PersistentVolumeClaim) {
	yes := true
	return func(c *v1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", UID: uid, Controller: &yes}}
	}
}

func deleted(finalizers ...string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) {
		c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, finalizers
	}
}

func in(phase v1.PersistentVolumeClaimPhase) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) { c.Status.Phase = phase }
}

// The kubelet's rules for what a claim of an apiserver gives a pod.
func TestAClaimOfTheClusterIsUsedOnlyWhenItIsBoundToAVolumeOfThisNode(t *testing.T) {
	const failed = "error processing PVC shop/data: "
	for name, c := range map[string]struct {
		claim  *v1.PersistentVolumeClaim
		volume *v1.PersistentVolume
		own    bool   // the claim is of an ephemeral volume
		want   string // the error
	}{
		"bound":               {claim: remoteClaim("1", "disk"), volume: remoteVolume("disk", "1")},
		"none":                {want: failed + `failed to fetch PVC from API server: persistentvolumeclaims "data" not found`},
		"pending":             {claim: remoteClaim("1", "", in(v1.ClaimPending)), want: failed + "PVC is not bound"},
		"lost":                {claim: remoteClaim("1", "disk", in(v1.ClaimLost)), want: failed + `PVC is not bound: it has lost its volume "disk"`},
		"without a volume":    {claim: remoteClaim("1", ""), want: failed + "PVC has empty pvc.Spec.VolumeName"},
		"being deleted":       {claim: remoteClaim("1", "disk", deleted()), want: failed + "PVC is being deleted"},
		"deleted while used":  {claim: remoteClaim("1", "disk", deleted("kubernetes.io/pvc-protection")), volume: remoteVolume("disk", "1")},
		"volume is missing":   {claim: remoteClaim("1", "disk"), want: failed + `failed to fetch PV disk from API server: persistentvolumes "disk" not found`},
		"volume is unclaimed": {claim: remoteClaim("1", "disk"), volume: remoteVolume("disk", "1", func(v *v1.PersistentVolume) { v.Spec.ClaimRef = nil }), want: failed + "found PV object disk but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"},
		"volume of another":   {claim: remoteClaim("1", "disk"), volume: remoteVolume("disk", "2"), want: failed + "found PV object disk but its pv.Spec.ClaimRef.UID 2 does not point to claim.UID 1"},
		"volume of this node": {claim: remoteClaim("1", "disk"), volume: remoteVolume("disk", "1", onNode("here"))},
		"volume elsewhere":    {claim: remoteClaim("1", "disk"), volume: remoteVolume("disk", "1", onNode("there")), want: `MountVolume.NodeAffinity check failed for volume "disk" : no matching NodeSelectorTerms: the volume's nodeAffinity is for another node`},
		"its own":             {claim: remoteClaim("1", "disk", ownedBy("one")), volume: remoteVolume("disk", "1"), own: true},
		"another's own":       {claim: remoteClaim("1", "disk", ownedBy("other")), volume: remoteVolume("disk", "1"), own: true, want: "PVC shop/one-data was not created for pod shop/one (pod is not owner)"},
		"nobody's own":        {claim: remoteClaim("1", "disk"), volume: remoteVolume("disk", "1"), own: true, want: "PVC shop/one-data was not created for pod shop/one (pod is not owner)"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(s *objects.Store, a *apiserver, _ *changes) {
				p, claim := podWithClaim("one", "data"), "data"
				if c.own {
					p, claim = podWithOwnClaim("one"), "one-data"
				}
				a.store(func(a *stored) {
					a.claims, a.volumes = map[string]*v1.PersistentVolumeClaim{}, map[string]*v1.PersistentVolume{}
					if c.claim != nil {
						a.claims[claim] = c.claim
					}
					if c.volume != nil {
						a.volumes["disk"] = c.volume
					}
				})
				s.Register(p)
				s.AwaitClaim(context.Background(), p, &p.Spec.Volumes[0])
				b, err := s.Claim(p, &p.Spec.Volumes[0])
				if text := errText(err); text != c.want {
					t.Errorf("got %q, want %q", text, c.want)
				}
				if err == nil && (b.Volume != c.volume || b.Claim != c.claim || !b.Cluster || b.ReadOnly) {
					t.Errorf("got %+v", b)
				}
				if source := p.Spec.Volumes[0].PersistentVolumeClaim; source != nil && err == nil {
					source.ReadOnly = true
					if b, err := s.Claim(p, &p.Spec.Volumes[0]); err != nil || !b.ReadOnly {
						t.Errorf("read-only: got %+v, %v", b, err)
					}
				}
			})
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestAPodThatWaitsForItsClaimIsNotifiedWhenThatIsBound(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, c *changes) {
		p := podWithClaim("one", "data")
		if _, err := s.Claim(p, &p.Spec.Volumes[0]); !strings.Contains(errText(err), "is not known yet") {
			t.Errorf("not asked yet: got %v", err)
		}
		s.Register(p)
		s.AwaitClaim(context.Background(), p, &p.Spec.Volumes[0])
		if got := c.take(); !slices.Equal(got, []pod.UID{"one"}) {
			t.Errorf("there is none: notified %v", got)
		}
		time.Sleep(time.Minute)
		if got := c.take(); len(got) > 0 {
			t.Errorf("nothing new: notified %v", got)
		}
		if n := a.count(); n < 15 || n > 20 { // 0.25 s, doubling to 4 s
			t.Errorf("read %d times in a minute", n)
		}
		a.store(func(a *stored) {
			a.claims = map[string]*v1.PersistentVolumeClaim{"data": remoteClaim("1", "disk")}
			a.volumes = map[string]*v1.PersistentVolume{"disk": remoteVolume("disk", "1")}
		})
		time.Sleep(5 * time.Second)
		if got := c.take(); !slices.Equal(got, []pod.UID{"one"}) {
			t.Errorf("bound: notified %v", got)
		}
		if b, err := s.Claim(p, &p.Spec.Volumes[0]); err != nil || b.Volume.Name != "disk" {
			t.Errorf("got %+v, %v", b, err)
		}
		before := a.count()
		time.Sleep(time.Hour)
		if a.count() != before {
			t.Errorf("a bound claim was read %d times in an hour", a.count()-before)
		}
	})
}

// What was read long ago is not what an attempt to mount may rely on, unless the apiserver
// is away.
func TestAClaimIsReadAnewForAnotherAttempt(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, _ *changes) {
		a.store(func(a *stored) {
			a.claims = map[string]*v1.PersistentVolumeClaim{"data": remoteClaim("1", "disk")}
			a.volumes = map[string]*v1.PersistentVolume{"disk": remoteVolume("disk", "1")}
		})
		p := podWithClaim("one", "data")
		get := func() error {
			s.AwaitClaim(context.Background(), p, &p.Spec.Volumes[0])
			_, err := s.Claim(p, &p.Spec.Volumes[0])
			return err
		}
		if err := get(); !errors.Is(err, pod.ErrObjectPending) {
			t.Errorf("not registered: got %v", err)
		}
		s.Register(p)
		for range 3 {
			if err := get(); err != nil || a.count() != 2 {
				t.Errorf("got %v, %d reads, want one of the claim and one of its volume", err, a.count())
			}
		}
		time.Sleep(time.Second)
		if err := get(); err != nil || a.count() != 4 {
			t.Errorf("after a second: got %v, %d reads, want two more", err, a.count())
		}
		time.Sleep(time.Minute)
		a.store(func(a *stored) { a.away = errors.New("connection refused") })
		if err := get(); err != nil {
			t.Errorf("away: got %v, want the last answer", err)
		}
		time.Sleep(time.Minute)
		a.store(func(a *stored) { a.away = nil; delete(a.claims, "data") })
		if err := get(); err == nil {
			t.Error("a claim that is gone is used")
		}
		s.Unregister("one")
		before := a.count()
		time.Sleep(time.Minute)
		if a.count() != before {
			t.Error("the claim is read for a pod that is gone")
		}
	})
}

// The Node authorizer learns of a pod a moment later than the node.
func TestAClaimThatIsForbiddenIsReportedOnlyAfterAWhile(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, c *changes) {
		a.store(func(a *stored) {
			a.away = apierrors.NewForbidden(v1.Resource("persistentvolumeclaims"), "data", errors.New("no relationship found"))
		})
		p := podWithClaim("one", "data")
		s.Register(p)
		time.Sleep(2*time.Second - time.Millisecond)
		if _, err := s.Claim(p, &p.Spec.Volumes[0]); !errors.Is(err, pod.ErrObjectPending) || len(c.take()) > 0 {
			t.Errorf("in the first two seconds: got %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := s.Claim(p, &p.Spec.Volumes[0]); !strings.Contains(errText(err), "no relationship found") {
			t.Errorf("later: got %v", err)
		}
		if got := c.take(); !slices.Equal(got, []pod.UID{"one"}) {
			t.Errorf("later: notified %v", got)
		}
	})
}

func TestAPodsClaimIsReadForItAlone(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, _ *changes) {
		a.store(func(a *stored) {
			a.claims = map[string]*v1.PersistentVolumeClaim{"data": remoteClaim("1", "disk"), "more": remoteClaim("2", "other")}
			a.volumes = map[string]*v1.PersistentVolume{"disk": remoteVolume("disk", "1"), "other": remoteVolume("other", "2")}
		})
		one, two := podWithClaim("one", "data"), podWithClaim("two", "more")
		s.Register(one)
		s.AwaitClaim(context.Background(), one, &one.Spec.Volumes[0])
		s.Register(two)
		if b, err := s.Claim(one, &one.Spec.Volumes[0]); err != nil || b.Volume.Name != "disk" {
			t.Errorf("the first, after the second has come: got %+v, %v", b, err)
		}
		s.AwaitClaim(context.Background(), two, &two.Spec.Volumes[0])
		s.Unregister("two")
		if b, err := s.Claim(one, &one.Spec.Volumes[0]); err != nil || b.Volume.Name != "disk" {
			t.Errorf("the first, after the second has left: got %+v, %v", b, err)
		}
		if got := s.EphemeralClaims(); len(got) > 0 {
			t.Errorf("got claims %v", got)
		}
	})
}

// The cluster's controller makes the claims of its pods' ephemeral volumes.
func TestNoClaimIsMadeForAPodOfTheCluster(t *testing.T) {
	inCluster(t, func(s *objects.Store, _ *apiserver, _ *changes) {
		s.Register(podWithOwnClaim("one"))
		if got := s.EphemeralClaims(); len(got) > 0 || len(s.Bindings().Claims) > 0 {
			t.Errorf("got %v and %v, want none", got, s.Bindings().Claims)
		}
	})
}

// Also what a Secret of the pod itself is, is followed on.
func TestWhatAnEarlierVolumeNamedIsNotFollowedAnyFurther(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, _ *changes) {
		csi := func(driver, secret string) func(*v1.PersistentVolume) {
			return func(v *v1.PersistentVolume) {
				v.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver, NodeStageSecretRef: &v1.SecretReference{Namespace: "shop", Name: secret}}
			}
		}
		a.store(func(a *stored) {
			a.claims = map[string]*v1.PersistentVolumeClaim{"data": remoteClaim("1", "disk")}
			a.volumes = map[string]*v1.PersistentVolume{"disk": remoteVolume("disk", "1", csi("d", "own")), "next": remoteVolume("next", "2", csi("e", "stage"))}
		})
		p := podWithClaim("one", "data")
		p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "own"}}
		s.Register(p)
		if got, want := a.followed(), []string{"csidriver d", "secret shop/own"}; !slices.Equal(got, want) {
			t.Errorf("follows %q, want %q", got, want)
		}
		time.Sleep(time.Minute)
		a.store(func(a *stored) { a.claims["data"] = remoteClaim("2", "next") })
		s.AwaitClaim(context.Background(), p, &p.Spec.Volumes[0])
		if got, want := a.followed(), []string{"csidriver e", "secret shop/own", "secret shop/stage"}; !slices.Equal(got, want) {
			t.Errorf("the claim was made anew: follows %q, want %q", got, want)
		}
	})
}

func TestWhatAVolumeOfTheClusterNamesIsFollowedForItsPods(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, _ *changes) {
		secret := func(name string) *v1.SecretReference { return &v1.SecretReference{Namespace: "safe", Name: name} }
		a.store(func(a *stored) {
			a.claims = map[string]*v1.PersistentVolumeClaim{"data": remoteClaim("1", "disk")}
			a.volumes = map[string]*v1.PersistentVolume{"disk": remoteVolume("disk", "1", func(v *v1.PersistentVolume) {
				v.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d", NodeStageSecretRef: secret("stage"), NodePublishSecretRef: secret("publish"), NodeExpandSecretRef: secret("expand")}
			})}
		})
		p := podWithClaim("one", "data")
		class := "fast"
		p.Spec.RuntimeClassName = &class
		s.Register(p)
		want := []string{"csidriver d", "runtimeclass fast", "secret safe/expand", "secret safe/publish", "secret safe/stage"}
		if got := a.followed(); !slices.Equal(got, want) {
			t.Errorf("follows %q, want %q", got, want)
		}
		s.Register(p) // again, for another version of the pod
		if got := a.followed(); !slices.Equal(got, want) {
			t.Errorf("registered again: follows %q, want %q", got, want)
		}
		s.Unregister("one")
		if got := a.followed(); len(got) > 0 {
			t.Errorf("after it is gone: follows %q", got)
		}
	})
}

func TestPodsOfManifestsAndOfTheClusterDoNotShareClaims(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, _ *changes) {
		document := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
		s.Replace([]*pod.Object{{Claim: document, Seen: time.Now()}})
		p := podWithClaim("one", "data")
		s.Register(p)
		s.AwaitClaim(context.Background(), p, &p.Spec.Volumes[0])
		if _, err := s.Claim(p, &p.Spec.Volumes[0]); !strings.Contains(errText(err), "not found") {
			t.Errorf("a pod of the cluster: got %v", err)
		}
		static := podWithClaim("static", "data")
		static.Annotations[pod.AnnotationSource] = "file"
		s.Register(static)
		s.AwaitClaim(context.Background(), static, &static.Spec.Volumes[0])
		if _, err := s.Claim(static, &static.Spec.Volumes[0]); !strings.Contains(errText(err), "PVC is not bound: no persistent volumes available") {
			t.Errorf("a static pod: got %v", err)
		}
	})
}

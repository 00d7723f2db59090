package objects_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
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
}

func (a *stored) Claim(_ context.Context, _, name string) (*v1.PersistentVolumeClaim, error) {
	return answerOf(a, func() map[string]*v1.PersistentVolumeClaim { return a.claims }, "persistentvolumeclaims", name)
}

func (a *stored) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return answerOf(a, func() map[string]*v1.PersistentVolume { return a.volumes }, "persistentvolumes", name)
}

func answerOf[T any](a *stored, all func() map[string]*T, resource, name string) (*T, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.reads++
	if a.away != nil {
		return nil, a.away
	}
	if o := all()[name]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource(resource), name)
}

func (a *stored) count() int { a.lock.Lock(); defer a.lock.Unlock(); return a.reads }

// store changes what the apiserver has.
func (a *stored) store(change func(*stored)) {
	a.lock.Lock()
	defer a.lock.Unlock()
	change(a)
}

func (a *apiserver) FollowCSIDriver(ctx context.Context, name string, set func([]*storagev1.CSIDriver, error)) {
	follow(ctx, &a.mu, a.more, "csidriver "+name, func(err error) { set(nil, err) })
}

func (a *apiserver) FollowRuntimeClass(ctx context.Context, name string, set func([]*nodev1.RuntimeClass, error)) {
	follow(ctx, &a.mu, a.more, "runtimeclass "+name, func(err error) { set(nil, err) })
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
				if err == nil && (b.Volume != c.volume || b.Claim != c.claim || !b.Cluster) {
					t.Errorf("got %+v", b)
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
		s.Register(p)
		for range 3 {
			if err := get(); err != nil || a.count() != 2 {
				t.Errorf("got %v, %d reads, want one of the claim and one of its volume", err, a.count())
			}
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
		return objects.New(objects.Config{Bindings: path, Log: slog.New(slog.DiscardHandler)})
	}
	if err := fresh().Use(held("disk"), "one", hasLeft); err != nil {
		t.Fatal(err)
	}
	after := fresh()
	if err := after.Use(held("disk"), "two", hasLeft); err == nil {
		t.Error("a restart of podd gave a second pod the volume")
	}
	left["one"] = true
	if err := after.Use(held("other"), "three", hasLeft); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "disk") || !strings.Contains(string(text), "three") {
		t.Errorf("on disk is %s, %v", text, err)
	}
}

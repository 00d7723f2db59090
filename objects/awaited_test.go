package objects_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/objects"
)

// podWithDriver has a volume of a driver, with a Secret, and a RuntimeClass.
func podWithDriver(uid pod.UID) *v1.Pod {
	p, class := clusterPod(uid), "fast"
	p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{
		Driver: "d", NodePublishSecretRef: &v1.LocalObjectReference{Name: "token"},
	}}}}
	p.Spec.RuntimeClassName = &class
	return p
}

// secretSays has the apiserver answer about a Secret.
func (a *apiserver) secretSays(name string, value string, err error) {
	a.mu.Lock()
	set := a.secrets[name]
	a.mu.Unlock()
	var all []*v1.Secret
	if value != "" {
		all = append(all, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token"}, Data: map[string][]byte{"value": []byte(value)}})
	}
	set(all, err)
}

// moreSays has the apiserver answer about a CSIDriver or RuntimeClass.
func (a *apiserver) moreSays(name string, value string, err error) {
	a.mu.Lock()
	set := a.more[name]
	a.mu.Unlock()
	set(value, err)
}

// awaitable are the calls that block until the apiserver has answered.
var awaitable = map[string]struct {
	what   string // as errors have it
	get    func(ctx context.Context, s *objects.Store, p *v1.Pod) (name string, err error)
	answer func(a *apiserver, value string, err error)
}{
	"a Secret": {
		what: `secret "token"`,
		get: func(ctx context.Context, s *objects.Store, p *v1.Pod) (string, error) {
			o, err := s.SecretOf(ctx, p, "shop", "token")
			if err != nil {
				return "", err
			}
			return o.Name, nil
		},
		answer: func(a *apiserver, value string, err error) { a.secretSays("shop/token", value, err) },
	},
	"a CSIDriver": {
		what: `csidriver "d"`,
		get: func(ctx context.Context, s *objects.Store, p *v1.Pod) (string, error) {
			o, err := s.CSIDriver(ctx, p, "d")
			if err != nil {
				return "", err
			}
			return o.Name, nil
		},
		answer: func(a *apiserver, value string, err error) { a.moreSays("csidriver d", value, err) },
	},
	"a RuntimeClass": {
		what: `runtimeclass.node.k8s.io "fast"`,
		get: func(ctx context.Context, s *objects.Store, p *v1.Pod) (string, error) {
			o, err := s.RuntimeClass(ctx, p)
			if err != nil {
				return "", err
			}
			return o.Name, nil
		},
		answer: func(a *apiserver, value string, err error) { a.moreSays("runtimeclass fast", value, err) },
	},
}

func TestAPodWaitsForTheAnswerAboutItsObject(t *testing.T) {
	for name, kind := range awaitable {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(s *objects.Store, a *apiserver, _ *changes) {
				p := podWithDriver("one")
				s.Register(p)
				synctest.Wait()
				get := func(when, want string, class error, wait time.Duration) {
					t.Helper()
					ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
					defer cancel()
					began := time.Now()
					_, err := kind.get(ctx, s, p)
					if errText(err) != want || class != nil && !errors.Is(err, class) || time.Since(began) != wait {
						t.Errorf("%s: got %v after %v, want %q after %v", when, err, time.Since(began), want, wait)
					}
				}
				get("no answer", kind.what+" is not known yet: the apiserver has not answered yet", pod.ErrObjectPending, time.Hour)
				time.AfterFunc(time.Minute, func() { kind.answer(a, "", errors.New("connection refused")) })
				get("the apiserver goes away", kind.what+" is not known yet: connection refused", pod.ErrAPIServerUnavailable, time.Minute)
				get("it is away", kind.what+" is not known yet: connection refused", pod.ErrAPIServerUnavailable, 0)
				kind.answer(a, "", nil)
				get("there is none", kind.what+" not found", pod.ErrNotFound, 0)
				kind.answer(a, "x", nil)
				get("it is there", "", nil, 0)
				s.Unregister("one")
				synctest.Wait()
				get("of a pod that is not registered", kind.what+" is not known yet: the apiserver has not answered yet", pod.ErrObjectPending, 0)
				s.Register(p)
				synctest.Wait()
				time.AfterFunc(time.Minute, func() { kind.answer(a, "x", nil) })
				get("it answers after a minute", "", nil, time.Minute)
			})
		})
	}
}

// The pods of an apiserver and of manifests have two worlds, and nobody is asked about the
// second.
func TestAPodOfAManifestWaitsForNoAnswer(t *testing.T) {
	inCluster(t, func(s *objects.Store, _ *apiserver, _ *changes) {
		p := podWithDriver("static")
		p.Annotations[pod.AnnotationSource] = "file"
		s.Register(p)
		get := func(want string) {
			t.Helper()
			began := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			_, err := s.SecretOf(ctx, p, "shop", "token")
			if errText(err) != want || time.Since(began) > 0 {
				t.Errorf("got %v after %v, want %q at once", err, time.Since(began), want)
			}
		}
		get(`secret "token" not found`)
		s.Replace([]*pod.Object{{Secret: &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "token"}}}})
		get("")
	})
}

func TestAKnownCSIDriverIsNotWaitedFor(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, _ *changes) {
		p := podWithDriver("one")
		s.Register(p)
		synctest.Wait()
		if _, err := s.KnownCSIDriver(p, "d"); !errors.Is(err, pod.ErrObjectPending) || errText(err) != `csidriver "d" is not known yet: the apiserver has not answered yet` {
			t.Errorf("no answer: got %v", err)
		}
		a.moreSays("csidriver d", "", nil)
		if _, err := s.KnownCSIDriver(p, "d"); !errors.Is(err, pod.ErrNotFound) || errText(err) != `csidriver "d" not found` {
			t.Errorf("there is none: got %v", err)
		}
		a.moreSays("csidriver d", "x", nil)
		if d, err := s.KnownCSIDriver(p, "d"); err != nil || d.Name != "d" {
			t.Errorf("got %v, %v", d, err)
		}
	})
}

func TestAPodIsNotifiedOfAChangeOfWhatItWaitedFor(t *testing.T) {
	for name, kind := range awaitable {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(s *objects.Store, a *apiserver, c *changes) {
				s.Register(podWithDriver("one"))
				for _, step := range []struct {
					value string
					want  int // notifications
				}{{"x", 1}, {"x", 0}, {"y", 1}, {"", 1}} {
					c.take() // waits
					kind.answer(a, step.value, nil)
					if got := c.take(); len(got) != step.want {
						t.Errorf("it becomes %q: notified %v, want %d notifications", step.value, got, step.want)
					}
				}
			})
		})
	}
}

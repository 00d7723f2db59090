package images

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// withVolumes returns a pod whose containers a and b mount the image volumes v1, v2
// … with these references.
func withVolumes(own v1.PullPolicy, policy v1.PullPolicy, references ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "web"}}
	app := v1.Container{Name: "a", Image: "localhost/app:1", ImagePullPolicy: own}
	for i, ref := range references {
		name := "v" + string(rune('1'+i))
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			Image: &v1.ImageVolumeSource{Reference: ref, PullPolicy: policy},
		}})
		app.VolumeMounts = append(app.VolumeMounts,
			v1.VolumeMount{Name: name, MountPath: "/" + name}, v1.VolumeMount{Name: name, MountPath: "/again/" + name, SubPath: "x"})
	}
	other := *app.DeepCopy()
	other.Name = "b"
	p.Spec.Containers = []v1.Container{app, other}
	return p
}

func (b *bench) askFor(t *testing.T, p *v1.Pod, container int) pod.ImageState {
	t.Helper()
	st, err := b.Ensure(t.Context(), p, &p.Spec.Containers[container])
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestImagesOfVolumesArePulledWithTheContainersOwnAndOnceEach(t *testing.T) {
	inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
		p := withVolumes(v1.PullAlways, v1.PullAlways, "localhost/model:1", "localhost/rules:1")
		b.rt.set("localhost/app:1", time.Second, nil)
		b.rt.set("localhost/model:1", 5*time.Second, nil)
		b.rt.set("localhost/rules:1", 3*time.Second, nil)
		began := time.Now()
		for {
			a, c := b.askFor(t, p, 0), b.askFor(t, p, 1)
			if a.Ready != c.Ready {
				t.Fatalf("got %+v and %+v: one pull serves both", a, c)
			}
			if a.Ready {
				if a.Ref != "sha256:localhost/app:1" || a.Volumes["v1"] != "sha256:localhost/model:1" || a.Volumes["v2"] != "sha256:localhost/rules:1" {
					t.Errorf("got %+v", a)
				}
				break
			}
			if a.Reason != pod.ReasonContainerCreating {
				t.Fatalf("got %+v, want it to wait", a)
			}
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("took %v, want the longest pull's 5s", took)
		}
		if got := b.rt.pulled(); len(got) != 3 {
			t.Errorf("pulls: got %v, want each once", got)
		}
		if b.askFor(t, p, 0).Ready {
			t.Error("a restart with policy Always did not check the registry again")
		}
	})
}

func TestRestartReusesTheImageOfAVolume(t *testing.T) {
	inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
		p := withVolumes(v1.PullIfNotPresent, v1.PullIfNotPresent, "localhost/model:1")
		b.askFor(t, p, 0)
		synctest.Wait()
		for range 3 {
			if st := b.askFor(t, p, 0); !st.Ready || st.Volumes["v1"] == "" {
				t.Fatalf("got %+v, want it ready", st)
			}
		}
		if got := b.rt.pulled(); len(got) != 2 {
			t.Errorf("pulls: got %v, want each once", got)
		}
	})
}

func TestContainerWaitsForItsVolumesImageWithTheKubeletsReason(t *testing.T) {
	const never = `Container image "localhost/model:1" is not present with pull policy of Never`
	for name, c := range map[string]struct {
		policy          v1.PullPolicy
		fail            error
		reason, message string
		events          []string
	}{
		"never": {
			v1.PullNever, nil, pod.ReasonErrImageNeverPull, never,
			[]string{"Warning pod: ErrImageNeverPull " + never, "Warning Failed Error: ErrImageNeverPull"},
		},
		"cannot be pulled": {
			v1.PullIfNotPresent, errors.New("no such thing"), pod.ReasonErrImagePull, "no such thing",
			[]string{
				`Normal pod: Pulling Pulling image "localhost/model:1"`,
				`Warning pod: Failed Failed to pull image "localhost/model:1": no such thing`, "Warning Failed Error: ErrImagePull",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
				b.rt.local["localhost/app:1"] = &pod.Image{ID: "sha256:1"}
				b.rt.set("localhost/model:1", time.Second, c.fail)
				p := withVolumes(v1.PullIfNotPresent, c.policy, "localhost/model:1")
				b.askFor(t, p, 0)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				st := b.askFor(t, p, 0)
				if st.Ready || st.Reason != c.reason || st.Message != c.message || st.RetryAt.IsZero() {
					t.Errorf("got %+v, want %s: %s", st, c.reason, c.message)
				}
				var got []string
				for _, e := range b.notes.events {
					if e != `Normal Pulled Container image "localhost/app:1" already present on machine and can be accessed by the pod` {
						got = append(got, e)
					}
				}
				if !slices.Equal(got, c.events) {
					t.Errorf("events: got %q\nwant %q", got, c.events)
				}
			})
		})
	}
}

// TestWhichOfSeveralImagesIsReported: of several volumes that fail the last one, as
// in the kubelet, and failures before pulls in progress.
func TestWhichOfSeveralImagesIsReported(t *testing.T) {
	soon, late := time.Unix(1, 0), time.Unix(2, 0)
	ready := pod.ImageState{Ready: true, Ref: "x"}
	waits := pod.ImageState{Reason: pod.ReasonContainerCreating, RetryAt: late}
	fails := func(message string) pod.ImageState {
		return pod.ImageState{Reason: pod.ReasonErrImagePull, Message: message, RetryAt: soon}
	}
	for name, c := range map[string]struct {
		states  []pod.ImageState // the last is the container's own
		reason  string
		message string
		retry   time.Time
	}{
		"all ready":                    {[]pod.ImageState{ready, ready, ready}, "", "", time.Time{}},
		"own pull under way":           {[]pod.ImageState{ready, ready, waits}, pod.ReasonContainerCreating, "", late},
		"a volume's pull under way":    {[]pod.ImageState{waits, ready, ready}, pod.ReasonContainerCreating, "", late},
		"two volumes fail":             {[]pod.ImageState{fails("one"), fails("two"), ready}, pod.ReasonErrImagePull, "two", soon},
		"own fails, a volume waits":    {[]pod.ImageState{waits, ready, fails("own")}, pod.ReasonErrImagePull, "own", soon},
		"own and a volume fail":        {[]pod.ImageState{fails("one"), ready, fails("own")}, pod.ReasonErrImagePull, "one", soon},
		"a volume fails, own waits":    {[]pod.ImageState{ready, fails("two"), waits}, pod.ReasonErrImagePull, "two", soon},
		"one fails and another waits":  {[]pod.ImageState{fails("one"), waits, ready}, pod.ReasonErrImagePull, "one", soon},
		"no volumes, own image is bad": {[]pod.ImageState{fails("own")}, pod.ReasonErrImagePull, "own", soon},
	} {
		t.Run(name, func(t *testing.T) {
			requests := make([]request, len(c.states))
			got := combine(requests, c.states)
			if got.Ready != (c.reason == "") || got.Reason != c.reason || got.Message != c.message || !got.RetryAt.Equal(c.retry) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

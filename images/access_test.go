package images

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/images/records"
	"podd/internal/pod"
)

func newRecords(t *testing.T, root string) *records.Store {
	t.Helper()
	policy, err := records.NewPolicy(kubeletv1beta1.NeverVerifyPreloadedImages, nil)
	if err != nil {
		t.Fatal(err)
	}
	return records.New(records.Config{Root: root, Policy: policy})
}

// withRecords is a puller with these records and a registry that wants user "right",
// whom the pods of namespace owner have.
func withRecords(t *testing.T, of *records.Store, test func(t *testing.T, b *bench)) {
	t.Helper()
	withKeys(t, keys{auths: ofOwner}, of, nil, test)
}

var ofOwner = map[string][]pod.RegistryAuth{"owner": {{Username: "right", Source: pod.CredentialSource{Namespace: "owner", Name: "s", UID: "1"}}}}

func withKeys(t *testing.T, k keys, of *records.Store, used func(context.Context, pod.UID, string) (bool, error), test func(t *testing.T, b *bench)) {
	t.Helper()
	inBubble(t, PullConfig{Keyring: k, Records: of, PodUsedImage: used}, func(t *testing.T, b *bench) {
		b.cfg.Runtime = authRuntime{b.rt, "right"}
		test(t, b)
	})
}

func (b *bench) in(t *testing.T, namespace, image string, policy v1.PullPolicy) pod.ImageState {
	t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace, UID: pod.UID(namespace + string(policy))},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app", Image: image, ImagePullPolicy: policy}}}}
	return b.askFor(t, p, 0)
}

func TestAnImageOfAnotherPodsSecretIsNotUsedWithoutIt(t *testing.T) {
	withRecords(t, newRecords(t, t.TempDir()), func(t *testing.T, b *bench) {
		const image = "reg.test/app:1"
		b.in(t, "owner", image, v1.PullIfNotPresent)
		synctest.Wait()
		if st := b.in(t, "owner", image, v1.PullIfNotPresent); !st.Ready {
			t.Fatalf("the owner: %+v", st)
		}
		b.in(t, "thief", image, v1.PullIfNotPresent)
		synctest.Wait()
		if st := b.in(t, "thief", image, v1.PullIfNotPresent); st.Ready || st.Reason != pod.ReasonErrImagePull {
			t.Errorf("a pod without the Secret: got %+v, want the registry's refusal", st)
		}
		// That the image is there must not show.
		st := b.in(t, "thief", image, v1.PullNever)
		if st.Ready || st.Reason != pod.ReasonErrImageNeverPull || st.Message != `Container image "reg.test/app:1" is not present with pull policy of Never` {
			t.Errorf("a pod without the Secret that does not pull: got %+v", st)
		}
		before := len(b.rt.pulled())
		if st := b.in(t, "owner", image, v1.PullNever); !st.Ready {
			t.Errorf("the owner, who does not pull: %+v", st)
		}
		if after := len(b.rt.pulled()); after != before {
			t.Errorf("the owner's image was pulled again: %v", b.rt.pulled())
		}
	})
}

// While the apiserver is away, or has not answered yet.
func TestAPresentImageIsNotPulledWhileThePodsSecretIsNotKnown(t *testing.T) {
	const image = "reg.test/app:1"
	var unknown error
	var users []pod.UID
	used := func(_ context.Context, uid pod.UID, id string) (bool, error) {
		return id == "sha256:"+image && slices.Contains(users, uid), nil
	}
	withKeys(t, keys{auths: ofOwner, unknown: &unknown}, newRecords(t, t.TempDir()), used, func(t *testing.T, b *bench) {
		b.in(t, "owner", image, v1.PullIfNotPresent)
		synctest.Wait()
		if st := b.in(t, "owner", image, v1.PullIfNotPresent); !st.Ready {
			t.Fatalf("the owner: %+v", st)
		}
		pulls := len(b.rt.pulled())
		for why, message := range map[error]string{
			fmt.Errorf("secret %q is not known yet: %w", "s", pod.ErrObjectPending):                     "",
			fmt.Errorf("secret %q %w", "s", pod.APIServerUnavailable(errors.New("connection refused"))): `Waiting for the credentials to use image "reg.test/app:1": secret "s" connection refused`,
		} {
			unknown = why
			for _, policy := range []v1.PullPolicy{v1.PullIfNotPresent, v1.PullNever} {
				users = nil
				st := b.in(t, "owner", image, policy)
				if st.Ready || st.Reason != pod.ReasonContainerCreating || st.Message != message || !st.RetryAt.After(time.Now()) {
					t.Errorf("%v, %s: a pod that has not run gets %+v, want it to wait and say %q", why, policy, st, message)
				}
				users = []pod.UID{pod.UID("owner" + string(policy))}
				if st := b.in(t, "owner", image, policy); !st.Ready {
					t.Errorf("%v, %s: a pod that has run it gets %+v", why, policy, st)
				}
			}
		}
		unknown, users = nil, nil
		if st := b.in(t, "owner", image, v1.PullIfNotPresent); !st.Ready {
			t.Errorf("once it is known: %+v", st)
		}
		if n := len(b.rt.pulled()); n != pulls {
			t.Errorf("it was pulled again: %v", b.rt.pulled())
		}
		unknown = nil
		if st := b.in(t, "thief", image, v1.PullNever); st.Reason != pod.ReasonErrImageNeverPull {
			t.Errorf("a pod without the Secret: got %+v", st)
		}
	})
}

func TestAnImageThatWasOnTheNodeIsEverybodys(t *testing.T) {
	withRecords(t, newRecords(t, t.TempDir()), func(t *testing.T, b *bench) {
		b.rt.local["localhost/app:1"] = &pod.Image{ID: "sha256:there"}
		for _, policy := range []v1.PullPolicy{v1.PullIfNotPresent, v1.PullNever} {
			if st := b.in(t, "anybody", "localhost/app:1", policy); !st.Ready {
				t.Errorf("%s: got %+v", policy, st)
			}
		}
		if got := b.rt.pulled(); len(got) > 0 {
			t.Errorf("pulled %v", got)
		}
	})
}

func TestThePullThatWasInterruptedLeavesItsImageToNobody(t *testing.T) {
	root := t.TempDir()
	if err := newRecords(t, root).RecordPullIntent("reg.test/app:1"); err != nil { // and that podd was killed
		t.Fatal(err)
	}
	withRecords(t, newRecords(t, root), func(t *testing.T, b *bench) {
		b.rt.set("reg.test/app:1", time.Second, nil)
		b.rt.local["reg.test/app:1"] = &pod.Image{ID: "sha256:reg.test/app:1"}
		b.in(t, "thief", "reg.test/app:1", v1.PullIfNotPresent)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st := b.in(t, "thief", "reg.test/app:1", v1.PullIfNotPresent); st.Ready {
			t.Errorf("a pod without the Secret: %+v", st)
		}
		b.in(t, "owner", "reg.test/app:1", v1.PullIfNotPresent)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st := b.in(t, "owner", "reg.test/app:1", v1.PullIfNotPresent); !st.Ready {
			t.Errorf("the owner: %+v", st)
		}
		if !slices.Contains(b.rt.pulled(), "reg.test/app:1") {
			t.Error("the owner's credentials were not shown to the registry")
		}
	})
}

package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/klog/v2"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/images/pullmanager"

	"podd/images/records"
	"podd/internal/pod"
)

// TestWhoMayUseAnImageIsDecidedAsByTheKubelet: random pulls, failures, restarts and
// questions, asked of both, for each policy.
func TestWhoMayUseAnImageIsDecidedAsByTheKubelet(t *testing.T) {
	policies := []struct {
		name    string
		allowed []string
	}{
		{"NeverVerify", nil}, {"NeverVerifyPreloadedImages", nil}, {"AlwaysVerify", nil},
		{"NeverVerifyAllowlistedImages", []string{"reg.test/a/x", "other.test/*"}},
	}
	images := []string{"reg.test/a/x:1", "reg.test/a/x:2", "reg.test/a/y", "other.test/z:1", "reg.test/a/x@sha256:" + fmt.Sprintf("%064d", 0)}
	ids := []string{"sha256:1", "sha256:2"}
	answers := map[bool]int{}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		policy := policies[r.IntN(len(policies))]
		theirs, mine := newTheirs(t, t.TempDir(), policy.name, policy.allowed), newMine(t, t.TempDir(), policy.name, policy.allowed)
		for range 60 {
			image, id := images[r.IntN(len(images))], ids[r.IntN(len(ids))]
			own := ownCredentials(r)
			switch r.IntN(5) {
			case 0, 1: // pulled, without credentials, by the node's or by one of the pod's
				begin(t, theirs, mine, image)
				var by *pod.RegistryAuth
				if i := r.IntN(len(own) + 1); i < len(own) {
					by = &own[i]
				}
				theirs.RecordImagePulled(t.Context(), image, id, recorded(by))
				mine.RecordImagePulled(image, id, by)
			case 2:
				begin(t, theirs, mine, image)
				theirs.RecordImagePullFailed(t.Context(), image)
				mine.RecordImagePullFailed(image)
			default:
				must, err := theirs.MustAttemptImagePull(t.Context(), image, id, func() (secrets []kubeletconfig.ImagePullSecret, _ *kubeletconfig.ImagePullServiceAccount, _ error) {
					for i := range own {
						secrets = append(secrets, recorded(&own[i]).KubernetesSecrets...)
					}
					return secrets, nil, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				may := mine.MayUse(image, id, func() []pod.RegistryAuth { return own })
				answers[may]++
				if may == must {
					t.Fatalf("seed %d, %s: image %s of ID %s, credentials %+v: podd says %v, the kubelet says pull again: %v", seed, policy.name, image, id, own, may, must)
				}
			}
		}
	}
	if answers[true] < 100 || answers[false] < 100 {
		t.Errorf("the answers were %v: that asks too little", answers)
	}
}

func newTheirs(t *testing.T, root, policy string, allowed []string) *pullmanager.PullManager {
	t.Helper()
	accessor, err := pullmanager.NewFSPullRecordsAccessor(klog.Background(), root)
	if err != nil {
		t.Fatal(err)
	}
	enforcer, err := pullmanager.NewImagePullCredentialVerificationPolicy(kubeletconfig.ImagePullCredentialsVerificationPolicy(policy), allowed)
	if err != nil {
		t.Fatal(err)
	}
	m, err := pullmanager.NewImagePullManager(t.Context(), accessor, enforcer, nil, 4) // it lists images for interrupted pulls only
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newMine(t *testing.T, root, policy string, allowed []string) *records.Store {
	t.Helper()
	p, err := records.NewPolicy(kubeletconfigv1beta1.ImagePullCredentialsVerificationPolicy(policy), allowed)
	if err != nil {
		t.Fatal(err)
	}
	return records.New(records.Config{Root: root, Policy: p, Key: slices.Repeat([]byte{1}, 32)})
}

func begin(t *testing.T, theirs *pullmanager.PullManager, mine *records.Store, image string) {
	t.Helper()
	if err := theirs.RecordPullIntent(klog.Background(), image); err != nil {
		t.Fatal(err)
	}
	if err := mine.RecordPullIntent(image); err != nil {
		t.Fatal(err)
	}
}

// ownCredentials are those of up to two Secrets; few of each, so that they meet again.
func ownCredentials(r *rand.Rand) []pod.RegistryAuth {
	var out []pod.RegistryAuth
	for range r.IntN(3) {
		out = append(out, pod.RegistryAuth{
			Username: "u", Password: fmt.Sprint(r.IntN(3)),
			Source: pod.CredentialSource{Namespace: "n", Name: fmt.Sprint(r.IntN(2)), UID: fmt.Sprint(r.IntN(2))},
		})
	}
	return out
}

// recorded is what the kubelet records of credentials.
func recorded(auth *pod.RegistryAuth) *kubeletconfig.ImagePullCredentials {
	if auth == nil {
		return &kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}
	}
	return &kubeletconfig.ImagePullCredentials{KubernetesSecrets: []kubeletconfig.ImagePullSecret{{
		UID: auth.Source.UID, Namespace: auth.Source.Namespace, Name: auth.Source.Name, CredentialHash: auth.Password,
	}}}
}

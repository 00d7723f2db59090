package cri_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"

	"podd/cri/critest"
	"podd/internal/pod"
)

type onlySecret struct{ values map[string][]byte }

func (o onlySecret) Secret(*v1.Pod, string) (*v1.Secret, error) {
	return &v1.Secret{Data: o.values}, nil
}
func (onlySecret) ConfigMap(*v1.Pod, string) (*v1.ConfigMap, error) { return nil, pod.ErrNotFound }

// aPodWithSecret has PW of one in its command line, the Secret's other keys by envFrom,
// and a variable that is expanded from PW.
func aPodWithSecret(name string) *v1.Pod {
	return aPod(name, func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.EnvFrom = []v1.EnvFromSource{{Prefix: "ALL_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}}}
		c.Env = []v1.EnvVar{
			{Name: "PLAIN", Value: "in-the-manifest"},
			{Name: "PW", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Key: "pw"}}},
			{Name: "URL", Value: "x$(PW)x"},
		}
		c.Command = []string{"$(PW)"}
	})
}

const secretValue = `geh"eim-and-long`

// TestWhatTheRuntimeSaysShowsNoSecret, in the errors of calls and in the message of a
// container that could not be started, also for a podd that has not made it, and for a
// runtime that does not say what a container has.
func TestWhatTheRuntimeSaysShowsNoSecret(t *testing.T) {
	said := fmt.Sprintf("runc create failed: exec: %q: not found, %s, no other-key-s-value, in-the-manifest", secretValue, secretValue)
	const masked = `runc create failed: exec: "<masked>": not found, <masked>, no <masked>, in-the-manifest`
	for _, tc := range []struct {
		name  string
		tells bool
		check func(text string) bool
	}{
		{"a runtime that tells", true, func(text string) bool { return text == masked }},
		{"one that does not", false, func(text string) bool {
			return strings.HasPrefix(text, "<masked>: the container has values of Secrets")
		}},
	} {
		r := newRig(t)
		r.env.Objects = onlySecret{map[string][]byte{"pw": []byte(secretValue), "other": []byte("other-key-s-value")}}
		r.srv.Script("app", critest.Script{TellSpec: tc.tells, StartError: said})
		p := aPodWithSecret("web")
		s := r.sandbox(t, p, 0)
		r.srv.FailNth("CreateContainer", 1, codes.Unknown, said)
		if _, err := r.CreateContainer(t.Context(), r.request(t, p, s, 0)); err == nil || err.Error() != masked {
			t.Errorf("%s: create: got %v, want %s", tc.name, err, masked)
		}
		id, err := r.CreateContainer(t.Context(), r.request(t, p, s, 0))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.StartContainer(t.Context(), id); err == nil || !tc.check(err.Error()) || pod.ReasonOf(err, "") != "RunContainerError" {
			t.Errorf("%s: start: got %v", tc.name, err)
		}
		r.srv.FailNth("ExecSync", 1, codes.Unknown, said)
		if _, err := r.ExecSync(t.Context(), id, []string{"true"}, 0); err == nil || !tc.check(err.Error()) {
			t.Errorf("%s: exec: got %v", tc.name, err)
		}
		r.dial(t) // another podd, which has made nothing
		seen, err := r.Observe(t.Context(), p.UID)
		if err != nil {
			t.Fatal(err)
		}
		if got := seen.LatestContainer("app"); got == nil || got.Reason != "StartError" || !tc.check(got.Message) {
			t.Errorf("%s: observed: got %+v", tc.name, got)
		}
	}
}

// TestAMessageWithoutSecretsIsTheRuntimes, and no question is asked about it.
func TestAMessageWithoutSecretsIsTheRuntimes(t *testing.T) {
	r := newRig(t)
	const said = `exec: "in-the-manifest": executable file not found in $PATH`
	r.srv.Script("app", critest.Script{StartError: said})
	p := aPod("web", func(p *v1.Pod) {
		p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "PLAIN", Value: "in-the-manifest"}}
	})
	id, err := r.CreateContainer(t.Context(), r.request(t, p, r.sandbox(t, p, 0), 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), id); err == nil || err.Error() != said {
		t.Errorf("start: got %v", err)
	}
	seen, err := r.Observe(t.Context(), p.UID)
	if err != nil {
		t.Fatal(err)
	}
	if got := seen.LatestContainer("app"); got == nil || got.Message != said {
		t.Errorf("observed: got %+v", got)
	}
}

// TestALongMessageIsCutWithoutABeginningOfASecret at its end.
func TestALongMessageIsCutWithoutABeginningOfASecret(t *testing.T) {
	r := newRig(t)
	r.env.Objects = onlySecret{map[string][]byte{"pw": []byte(secretValue)}}
	p := aPodWithSecret("web")
	s := r.sandbox(t, p, 0)
	for before := 4080; before < 4100; before++ {
		// What is masked is longer than the mask: the end of what is searched comes into view.
		for _, text := range []string{
			strings.Repeat(".", before) + secretValue + " ...",
			strings.Repeat(secretValue+" ", 481) + strings.Repeat(".", before%20) + secretValue + " and more",
		} {
			r.srv.FailNth("CreateContainer", 1, codes.Unknown, text)
			_, err := r.CreateContainer(t.Context(), r.request(t, p, s, 0))
			if err == nil || strings.Contains(err.Error(), secretValue[:3]) {
				t.Fatalf("after %d bytes: got %v", before, err)
			}
		}
	}
}

package objects

import (
	"errors"
	"log/slog"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// A request is ended when its pod leaves. Its answer may have come just before that, and is
// recorded just after the pod was registered again: it must not count then, and its reader
// must not ask again.
func TestAnAnswerThatIsOvertakenByARegistrationIsTooLate(t *testing.T) {
	s := New(Config{Remote: struct{ Remote }{}, Log: slog.New(slog.DiscardHandler)}) // Run does not run: nobody is asked
	p, v := claimant("a", "c1")
	p.Annotations = map[string]string{pod.AnnotationSource: string(pod.SourceAPIServer)}
	use := claimUse{p.UID, p.Namespace, "c1"}
	to := func(volume string) pod.BoundVolume {
		return pod.BoundVolume{Volume: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}}, Claim: &v1.PersistentVolumeClaim{}, Cluster: true}
	}
	s.Register(p)
	older := s.remoteClaims[use]
	s.Unregister(p.UID)
	s.Register(p)
	if !s.handleClaimAnswer(use, older, to("old"), nil) || !s.handleClaimAnswer(use, older, pod.BoundVolume{}, errors.New("no")) {
		t.Error("the older request goes on")
	}
	if b, err := s.Claim(p, v); !errors.Is(err, pod.ErrObjectPending) {
		t.Errorf("before the newer answer: got %+v, %v, want %v", b, err, pod.ErrObjectPending)
	}
	s.handleClaimAnswer(use, s.remoteClaims[use], to("new"), nil)
	s.handleClaimAnswer(use, older, to("old"), nil)
	if b, err := s.Claim(p, v); err != nil || b.Volume.Name != "new" {
		t.Errorf("after both: got %+v, %v, want the new volume", b, err)
	}
}

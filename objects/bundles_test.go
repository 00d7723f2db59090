package objects_test

import (
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/objects"
)

func anchor(text string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
}

func bundle(name, live string, anchors ...string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"live": live}},
		Spec:       certificatesv1.ClusterTrustBundleSpec{TrustBundle: "# " + name + "\n" + strings.Join(anchors, "\n")},
	}
}

// trusting is a pod with projections of trust bundles.
func trusting(uid pod.UID, of ...*v1.ClusterTrustBundleProjection) *v1.Pod {
	p := clusterPod(uid)
	sources := make([]v1.VolumeProjection, len(of))
	for i := range of {
		sources[i].ClusterTrustBundle = of[i]
	}
	p.Spec.Volumes = []v1.Volume{{Name: "trust", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}}}
	return p
}

func byName(name string) *v1.ClusterTrustBundleProjection {
	return &v1.ClusterTrustBundleProjection{Name: &name}
}

func bySigner(signer string, selector *metav1.LabelSelector) *v1.ClusterTrustBundleProjection {
	return &v1.ClusterTrustBundleProjection{SignerName: &signer, LabelSelector: selector}
}

func optional(of *v1.ClusterTrustBundleProjection) *v1.ClusterTrustBundleProjection {
	yes := true
	of.Optional = &yes
	return of
}

func (a *apiserver) bundlesAre(key string, err error, all ...*certificatesv1.ClusterTrustBundle) {
	a.followed() // waits
	a.mu.Lock()
	set := a.bundles[key]
	a.mu.Unlock()
	set(all, err)
}

func TestTrustBundlesAreFollowedWhileAPodNamesThem(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, c *changes) {
		live := &metav1.LabelSelector{MatchLabels: map[string]string{"live": "yes"}}
		p := trusting("a", byName("roots"), bySigner("x/y", live), bySigner("x/y", nil))
		s.Register(p)
		if got := strings.Join(a.followed(), ", "); got != "bundle  of x/y, bundle roots of " {
			t.Errorf("followed are %q", got)
		}
		expect := func(what string, of *v1.ClusterTrustBundleProjection, want, wantErr string) {
			t.Helper()
			got, err := s.TrustAnchors(p, of)
			if string(got) != want || err == nil && wantErr != "" || err != nil && (wantErr == "" || !strings.Contains(err.Error(), wantErr)) {
				t.Errorf("%s: got %q, %v, want %q, %q", what, got, err, want, wantErr)
			}
		}
		expect("nothing is known", byName("roots"), "", `clustertrustbundle "roots" is not known yet`)
		expect("nothing is known", optional(byName("roots")), "", "is not known yet")
		a.bundlesAre("roots of ", errors.New("connection refused"))
		expect("no answer", byName("roots"), "", "connection refused")
		a.bundlesAre("roots of ", nil)
		expect("missing", byName("roots"), "", `clustertrustbundle "roots" not found`)
		expect("missing, and optional", optional(byName("roots")), "", "")
		c.take()
		a.bundlesAre("roots of ", nil, bundle("roots", "yes", anchor("b"), anchor("a"), anchor("b")))
		if got := c.take(); len(got) != 1 || got[0] != "a" {
			t.Errorf("notified are %q", got)
		}
		expect("each once, and in order", byName("roots"), anchor("a")+anchor("b"), "")
		a.bundlesAre("roots of ", nil, bundle("roots", "yes", anchor("b"), anchor("a"), anchor("b")))
		if got := c.take(); len(got) != 0 {
			t.Errorf("nothing changed, notified are %q", got)
		}
		a.bundlesAre("roots of ", nil, bundle("roots", "yes", anchor("c")))
		if got := c.take(); len(got) != 1 || got[0] != "a" {
			t.Errorf("other authorities: notified are %q", got)
		}
		expect("other authorities", byName("roots"), anchor("c"), "")
		one, two, other := bundle("x:y:1", "yes", anchor("1"), anchor("2")), bundle("x:y:2", "yes", anchor("2"), anchor("3")), bundle("x:y:3", "no", anchor("4"))
		a.bundlesAre(" of x/y", nil, one, other, two)
		expect("those selected", bySigner("x/y", live), anchor("1")+anchor("2")+anchor("3"), "")
		expect("an empty selector selects all", bySigner("x/y", &metav1.LabelSelector{}), anchor("1")+anchor("2")+anchor("3")+anchor("4"), "")
		expect("no selector selects none", bySigner("x/y", nil), "", "not found")
		expect("no selector selects none", optional(bySigner("x/y", nil)), "", "")
		c.take()
		a.bundlesAre(" of x/y", nil, two, one, other) // a list after an interruption has no order
		if got := c.take(); len(got) != 0 {
			t.Errorf("another order: notified are %q", got)
		}
		big := bundle("big", "yes", strings.Repeat("x", 6<<20))
		a.bundlesAre(" of x/y", nil, big, big)
		expect("too much", bySigner("x/y", live), "", "more than the limit of 10 MiB")
		if got := s.Contents("a"); len(got) != 0 {
			t.Errorf("a change of authorities would restart pods: %v", got)
		}
		most := bundle("most", "yes")
		most.Spec.TrustBundle = strings.Repeat("x", 10<<20)
		a.bundlesAre(" of x/y", nil, most)
		expect("as much as there may be", bySigner("x/y", live), "", "")
		expect("neither a name nor a signer", &v1.ClusterTrustBundleProjection{}, "", "a clusterTrustBundle needs a name or a signerName")
		expect("a bad selector", bySigner("x/y", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "live", Operator: "Maybe"}}}),
			"", `labelSelector of a clusterTrustBundle: "Maybe" is not a valid label selector operator`)
		static := trusting("b", byName("roots"))
		static.Annotations[pod.AnnotationSource] = "file"
		s.Register(static)
		if _, err := s.TrustAnchors(static, byName("roots")); err == nil || !strings.Contains(err.Error(), "this pod is of a manifest") {
			t.Errorf("a static pod: got %v", err)
		}
		s.Unregister("a")
		if got := a.followed(); len(got) != 0 {
			t.Errorf("nobody names them, followed are %q", got)
		}
	})
}

// An apiserver stores no bundle of more than 1 MiB; a signer may have many.
func TestATrustBundleOfTenMiBIsToldOnThePodAndFollowedFurther(t *testing.T) {
	inCluster(t, func(s *objects.Store, a *apiserver, c *changes) {
		p := trusting("a", byName("roots"))
		s.Register(p)
		for name, text := range map[string]string{
			"certificates": strings.Repeat(anchor(strings.Repeat("x", 700)), 10<<20/1000+1000),
			"one line":     strings.Repeat("x", 10<<20+1),
			"no end":       strings.Repeat("-----BEGIN CERTIFICATE-----\n", 10<<20/28+1),
		} {
			huge := bundle("roots", "yes")
			huge.Spec.TrustBundle = text
			a.bundlesAre("roots of ", nil, huge)
			anchors, err := s.TrustAnchors(p, byName("roots"))
			if want := "the selected clusterTrustBundles have more than the limit of 10 MiB in total: select fewer"; err == nil || err.Error() != want || len(anchors) > 0 {
				t.Errorf("%s, %d bytes: got %d bytes, %v, want %q", name, len(text), len(anchors), err, want)
			}
		}
		c.take()
		a.bundlesAre("roots of ", nil, bundle("roots", "yes", anchor("a")))
		if anchors, err := s.TrustAnchors(p, byName("roots")); err != nil || string(anchors) != anchor("a") || len(c.take()) != 1 {
			t.Errorf("after a smaller one: got %q, %v", anchors, err)
		}
	})
}

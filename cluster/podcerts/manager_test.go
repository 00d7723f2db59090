package podcerts

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podd/internal/pod"
)

func TestACertificateIsRequestedOfTheSignerThatThePodNames(t *testing.T) {
	managing(t, func(n *node) {
		s := projection()
		s.MaxExpirationSeconds, s.UserAnnotations = new(int32(7200)), map[string]string{"example.com/path": "/x"}
		_, _, err := n.Credential(web(), "tls", 3, s)
		if !errors.Is(err, pod.ErrObjectPending) || !pod.IsObjectPending(err) || !errors.Is(err, pod.ErrAPIServerUnavailable) {
			t.Errorf("at first: got %v, of another class", err)
		}
		r := n.s.last(t)
		proof := r.Spec.StubPKCS10Request
		r = r.DeepCopy()
		r.Spec.StubPKCS10Request = nil
		if want := (certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/mesh", PodName: "web", PodUID: "uid-1", ServiceAccountName: "robot", ServiceAccountUID: "account-uid",
			NodeName: "node-1", NodeUID: "node-uid", MaxExpirationSeconds: new(int32(7200)), UnverifiedUserAnnotations: map[string]string{"example.com/path": "/x"},
		}); !reflect.DeepEqual(r.Spec, want) {
			t.Errorf("got %+v, want %+v", r.Spec, want)
		}
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "uid-1"}
		if r.Namespace != "shop" || r.GenerateName != "req-" || len(r.OwnerReferences) != 1 || r.OwnerReferences[0] != owner {
			t.Errorf("got the metadata %+v", r.ObjectMeta)
		}
		csr, err := x509.ParseCertificateRequest(proof)
		if err != nil || csr.CheckSignature() != nil || csr.Subject.String() != "" || len(csr.DNSNames) > 0 {
			t.Errorf("the request is %+v, %v: want an empty one, signed with the key", csr, err)
		}
		if n.s.count() != 1 {
			t.Errorf("%d requests, want one", n.s.count())
		}
	})
}

func TestEveryKeyTypeOfTheAPIIsMade(t *testing.T) {
	for keyType, is := range map[string]func(key any) bool{
		"RSA3072":   func(key any) bool { k, ok := key.(*rsa.PrivateKey); return ok && k.N.BitLen() == 3072 },
		"RSA4096":   func(key any) bool { k, ok := key.(*rsa.PrivateKey); return ok && k.N.BitLen() == 4096 },
		"ECDSAP256": func(key any) bool { k, ok := key.(*ecdsa.PrivateKey); return ok && k.Params().BitSize == 256 },
		"ECDSAP384": func(key any) bool { k, ok := key.(*ecdsa.PrivateKey); return ok && k.Params().BitSize == 384 },
		"ECDSAP521": func(key any) bool { k, ok := key.(*ecdsa.PrivateKey); return ok && k.Params().BitSize == 521 },
		"ED25519":   func(key any) bool { _, ok := key.(ed25519.PrivateKey); return ok },
	} {
		made, err := newKeyPair(keyType)
		if err != nil {
			t.Errorf("%s: %v", keyType, err)
			continue
		}
		block, rest := pem.Decode(made.private)
		if block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
			t.Errorf("%s: got the PEM %.40q", keyType, made.private)
			continue
		}
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		csr, csrErr := x509.ParseCertificateRequest(made.request)
		if err != nil || csrErr != nil || csr.CheckSignature() != nil || !is(key) || !csr.PublicKey.(interface{ Equal(crypto.PublicKey) bool }).Equal(made.public) {
			t.Errorf("%s: got a %T, %v, %v", keyType, key, err, csrErr)
		}
	}
	if len(keyTypes) != 6 {
		t.Errorf("podd knows %d types, the API six", len(keyTypes))
	}
}

func TestAnIssuedCertificateFitsItsKeyAndHasNothingElse(t *testing.T) {
	managing(t, func(n *node) {
		key, chain := n.issue(day)
		pair, err := tls.X509KeyPair([]byte(chain), []byte(key))
		if err != nil || len(pair.Certificate) != 2 {
			t.Errorf("got %d certificates, %v, want the leaf and its authority", len(pair.Certificate), err)
		}
		if strings.Contains(chain, "Comment") || strings.Contains(chain, "leaf") || strings.Contains(chain, "between") {
			t.Errorf("the chain has headers, or text between the blocks:\n%s", chain)
		}
		if n.takeChanges() != 1 || len(n.takeEvents()) > 0 {
			t.Error("want one notification and no event")
		}
		if strings.Contains(n.log.String(), "PRIVATE") {
			t.Errorf("the log has a key: %s", n.log.String())
		}
	})
}

// The signer may be quicker than the apiserver's answer to the creation.
func TestAnAnswerThatIsShownBeforeTheCreationReturnsCounts(t *testing.T) {
	managing(t, func(n *node) {
		n.s.atOnce = true
		_, _, _ = n.get()
		n.s.last(t)
		if _, _, err := n.get(); err != nil {
			t.Error(err)
		}
	})
}

func TestACertificateIsRenewedWithAnotherKeyAfterBeginRefreshAt(t *testing.T) {
	managing(t, func(n *node) {
		key, chain := n.issue(day)
		time.Sleep(12*time.Hour - 3*time.Minute) // the certificate began two minutes before it was issued
		if n.s.count() != 1 {
			t.Error("renewed before beginRefreshAt")
		}
		time.Sleep(time.Minute + refreshJitter)
		if n.s.count() != 2 {
			t.Fatalf("%d requests after beginRefreshAt and its jitter, want two", n.s.count())
		}
		if k, c, err := n.get(); k != key || c != chain || err != nil {
			t.Errorf("until the new one is issued: got another credential, %v", err)
		}
		n.takeChanges()
		r := n.s.last(t)
		n.s.answer(r.Name, n.s.sign(r, day))
		k, c, err := n.get()
		if k == key || c == chain || err != nil {
			t.Errorf("got %v, and the key and certificate of before: %t, %t", err, k == key, c == chain)
		}
		if _, err := tls.X509KeyPair([]byte(c), []byte(k)); err != nil {
			t.Error(err)
		}
		if n.takeChanges() != 1 || len(n.takeEvents()) > 0 {
			t.Error("want one notification and no event")
		}
	})
}

func TestAfterASuspendACertificateIsRenewedWithinAMinute(t *testing.T) {
	managing(t, func(n *node) {
		n.issue(day)
		n.Manager.mu.Lock()
		c := n.creds["uid-1"][sourceKey{"tls", 0}]
		c.refreshAt.Wall = c.refreshAt.Wall.Add(-13 * time.Hour) // the monotonic clock stood still
		n.Manager.mu.Unlock()
		time.Sleep(time.Minute)
		if n.s.count() != 2 {
			t.Errorf("%d requests, want two", n.s.count())
		}
	})
}

func TestARefusedRequestIsToldOnThePodAndIsForGood(t *testing.T) {
	for kind, state := range map[string]string{"Denied": "denied", "Failed": "failed"} {
		managing(t, func(n *node) {
			n.says("is being requested")
			r := n.s.last(t)
			n.s.answer(r.Name, refusing(kind, "UnsupportedKeyType", "try ED25519\x07"+strings.Repeat("x", 30<<10)))
			_, _, err := n.get()
			n.saysOf(err, `podCertificate of signer "example.com/mesh": PodCertificateRequest "req-1" was permanently `+state,
				`reason="UnsupportedKeyType" message="try ED25519\ax`, "recreate the pod")
			if errors.Is(err, pod.ErrAPIServerUnavailable) || errors.Is(err, pod.ErrObjectPending) || len(err.Error()) > 2<<10 {
				t.Errorf("got an error of %d bytes that is not for good: %.300v", len(err.Error()), err)
			}
			if events := n.takeEvents(); len(events) != 1 || !strings.HasPrefix(events[0], "web Warning "+kind+" podCertificate of signer") || n.takeChanges() != 1 {
				t.Errorf("got the events %q", events)
			}
			n.expectState(state)
			time.Sleep(100 * time.Hour)
			if n.s.count() != 1 {
				t.Errorf("the signer was asked %d times", n.s.count())
			}
		})
	}
}

// As in the kubelet, the pod's credential is then denied, and its volume stays as it is.
func TestARenewalThatIsDeniedIsForGood(t *testing.T) {
	managing(t, func(n *node) {
		n.issue(day)
		n.takeChanges()
		time.Sleep(12*time.Hour + refreshJitter)
		n.s.answer(n.s.last(t).Name, refusing("Denied", "Revoked", "no more"))
		n.says("permanently denied", "no more")
		if n.takeChanges() != 1 || len(n.takeEvents()) != 1 {
			t.Error("want one notification and one event")
		}
		time.Sleep(100 * time.Hour)
		if n.s.count() != 2 || len(n.takeEvents()) > 0 {
			t.Errorf("the signer was asked %d times", n.s.count())
		}
	})
}

func TestASignerThatNeverAnswersIsNamedOnThePod(t *testing.T) {
	managing(t, func(n *node) {
		n.says("is being requested")
		synctest.Wait()
		n.says(`podCertificate of signer "example.com/mesh": the signer has not answered PodCertificateRequest "req-1", created at `, "check that a signer of this name runs")
		time.Sleep(15 * time.Minute)
		if n.s.count() != 1 {
			t.Errorf("%d requests, want one", n.s.count())
		}
		n.expectState("not_yet_issued")
		n.takeChanges()
		n.s.drop("req-1") // the cluster removes what nobody answers
		n.says(`PodCertificateRequest "req-1" was deleted before the signer answered it: requesting again`)
		if n.takeChanges() != 1 {
			t.Error("the pod is not notified")
		}
		time.Sleep(answerBackoff.Initial)
		n.s.last(t)
		n.says(`has not answered PodCertificateRequest "req-2"`)
		// One that is deleted again and again does not make a storm of requests.
		for begin := time.Now(); time.Since(begin) < day; time.Sleep(time.Second) {
			n.s.drop(n.s.last(t).Name)
		}
		if made := n.s.count(); made < 100 || made > 160 {
			t.Errorf("%d requests in a day, want one in ten minutes", made)
		}
	})
}

func TestARequestThatTheApiserverNeverShowsIsMadeAgain(t *testing.T) {
	managing(t, func(n *node) {
		_, _, _ = n.get()
		synctest.Wait()
		n.Manager.mu.Lock()
		n.creds["uid-1"][sourceKey{"tls", 0}].pending.seen = false
		n.Manager.mu.Unlock()
		n.poke.Notify()
		time.Sleep(abandonAfter - time.Second)
		if n.s.count() != 1 {
			t.Error("requested again at once")
		}
		n.takeChanges()
		time.Sleep(refreshJitter + answerBackoff.Initial + time.Second)
		if n.s.count() != 2 || n.takeChanges() != 1 {
			t.Errorf("%d requests, want two, and one notification", n.s.count())
		}
	})
}

// badAnswers are what a signer may answer that cannot be used, and what the pod says then.
var badAnswers = map[string]struct {
	answer func(n *node, r *certificatesv1.PodCertificateRequest) certificatesv1.PodCertificateRequestStatus
	want   string
}{
	"for another key": {func(n *node, _ *certificatesv1.PodCertificateRequest) certificatesv1.PodCertificateRequestStatus {
		return n.s.signKey(n.s.key.Public(), day)
	}, "the certificate is not for the key that this node generated"},
	"expired": {func(n *node, r *certificatesv1.PodCertificateRequest) certificatesv1.PodCertificateRequestStatus {
		return n.s.sign(r, time.Minute)
	}, "the certificate expired at "},
	"huge": {func(n *node, r *certificatesv1.PodCertificateRequest) certificatesv1.PodCertificateRequestStatus {
		s := n.s.sign(r, day)
		s.CertificateChain += strings.Repeat(certificate(n.s.authority.Raw), 10<<20/500)
		return s
	}, "KiB, more than the limit of 100 KiB"},
	"huge, without end": {func(n *node, r *certificatesv1.PodCertificateRequest) certificatesv1.PodCertificateRequestStatus {
		s := n.s.sign(r, day)
		s.CertificateChain = strings.Repeat("-----BEGIN ", 1<<20)
		return s
	}, "KiB, more than the limit of 100 KiB"},
	"no PEM": {func(n *node, r *certificatesv1.PodCertificateRequest) certificatesv1.PodCertificateRequestStatus {
		s := n.s.sign(r, day)
		s.CertificateChain = "certificate"
		return s
	}, "the certificate chain has no certificate in PEM"},
	"empty": {func(n *node, r *certificatesv1.PodCertificateRequest) certificatesv1.PodCertificateRequestStatus {
		return certificatesv1.PodCertificateRequestStatus{Conditions: n.s.sign(r, day).Conditions}
	}, "the certificate chain has no certificate in PEM"},
	"a key in the chain": {func(n *node, r *certificatesv1.PodCertificateRequest) certificatesv1.PodCertificateRequestStatus {
		s := n.s.sign(r, day)
		s.CertificateChain += string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte{1}}))
		return s
	}, `the PEM block 3 of the certificate chain is a "EC PRIVATE KEY", want CERTIFICATE`},
	"no DER": {func(n *node, r *certificatesv1.PodCertificateRequest) certificatesv1.PodCertificateRequestStatus {
		s := n.s.sign(r, day)
		s.CertificateChain = certificate([]byte("junk"))
		return s
	}, "the certificate 1 of the chain cannot be read"},
	"without a time to renew it": {func(n *node, r *certificatesv1.PodCertificateRequest) certificatesv1.PodCertificateRequestStatus {
		s := n.s.sign(r, day)
		s.BeginRefreshAt = nil
		return s
	}, "it does not say when to renew the certificate"},
}

func TestAnAnswerThatCannotBeUsedIsToldOnThePodAndAnotherIsRequested(t *testing.T) {
	for name, bad := range badAnswers {
		managing(t, func(n *node) {
			_, _, _ = n.get()
			r := n.s.last(t)
			n.s.answer(r.Name, bad.answer(n, r))
			if n.takeChanges() != 1 {
				t.Errorf("%s: the pod is not notified", name)
			}
			n.says(`podCertificate of signer "example.com/mesh": the signer's answer to PodCertificateRequest "req-1" cannot be used: `, bad.want)
			time.Sleep(answerBackoff.Initial - 1)
			if n.s.count() != 1 {
				t.Errorf("%s: another is requested at once", name)
			}
			time.Sleep(time.Nanosecond)
			r = n.s.last(t)
			n.s.answer(r.Name, n.s.sign(r, day))
			if _, _, err := n.get(); err != nil || r.Name != "req-2" {
				t.Errorf("%s: after a good answer to %s: got %v", name, r.Name, err)
			}
		})
	}
}

func TestASignerWhoseAnswersCanNeverBeUsedIsAskedLessAndLess(t *testing.T) {
	managing(t, func(n *node) {
		_, _, _ = n.get()
		for begin := time.Now(); time.Since(begin) < day; time.Sleep(time.Second) {
			if r := n.s.last(t); len(r.Status.Conditions) == 0 {
				n.s.answer(r.Name, n.s.signKey(n.s.key.Public(), day))
			}
		}
		if made := n.s.count(); made < 100 || made > 160 {
			t.Errorf("%d requests in a day, want one in ten minutes", made)
		}
	})
}

func TestAtARenewalWhoseAnswerCannotBeUsedThePodKeepsItsCertificate(t *testing.T) {
	for name, bad := range badAnswers {
		managing(t, func(n *node) {
			key, chain := n.issue(day)
			n.takeChanges()
			time.Sleep(12*time.Hour + refreshJitter)
			r := n.s.last(t)
			n.s.answer(r.Name, bad.answer(n, r))
			if k, c, err := n.get(); k != key || c != chain || err != nil || n.takeChanges() != 0 {
				t.Errorf("%s: got %v, and the credential of before: %t", name, err, k == key)
			}
			events := n.takeEvents()
			if len(events) != 1 || !strings.HasPrefix(events[0], `web Warning CertificateInvalid podCertificate of signer "example.com/mesh" in volume "tls": the signer's answer to PodCertificateRequest "req-2"`) ||
				!strings.Contains(events[0], bad.want) || !strings.Contains(events[0], "the volume keeps the certificate that it has") {
				t.Errorf("%s: got the events %q", name, events)
			}
			time.Sleep(answerBackoff.Initial)
			if n.s.count() != 3 {
				t.Errorf("%s: %d requests, want another", name, n.s.count())
			}
		})
	}
}

func TestACertificateThatIsNotRenewedIsOverdueAndThenExpiredOnceEach(t *testing.T) {
	managing(t, func(n *node) {
		n.issue(day)
		n.expectState("fresh")
		time.Sleep(12 * time.Hour)
		if events := n.takeEvents(); len(events) > 0 {
			t.Errorf("too early: %q", events)
		}
		time.Sleep(overdueAfter + refreshJitter)
		n.expectState("overdue_for_refresh")
		time.Sleep(day)
		n.expectState("expired")
		time.Sleep(day)
		events := n.takeEvents()
		const begin = `podCertificate of signer "example.com/mesh" in volume "tls": `
		if len(events) != 2 || !strings.HasPrefix(events[0], "web Warning CertificateOverdueForRefresh "+begin+"refresh overdue, the certificate expires at ") ||
			!strings.HasPrefix(events[1], "web Warning CertificateExpired "+begin+"expired at ") || !strings.Contains(events[1], `the signer has not answered PodCertificateRequest "req-2"`) {
			t.Errorf("got the events %q", events)
		}
		if _, _, err := n.get(); err != nil || n.s.count() != 2 {
			t.Errorf("got %v with %d requests: want the last certificate, as in the kubelet", err, n.s.count())
		}
		r := n.s.last(t)
		n.s.answer(r.Name, n.s.sign(r, day))
		n.expectState("fresh")
	})
}

// expectState checks the metric. Only web has a certificate.
func (n *node) expectState(state string) {
	n.Helper()
	synctest.Wait()
	want := "# HELP kubelet_podcertificate_states Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.\n" +
		"# TYPE kubelet_podcertificate_states gauge\n" + fmt.Sprintf("kubelet_podcertificate_states{signer_name=\"example.com/mesh\",state=%q} 1\n", state)
	if err := testutil.CollectAndCompare(n, strings.NewReader(want)); err != nil {
		n.Error(err)
	}
}

func TestAnApiserverWithoutPodCertificateRequestsIsNamedOnThePod(t *testing.T) {
	managing(t, func(n *node) {
		resource := schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}
		n.s.err = apierrors.NewGenericServerResponse(http.StatusNotFound, "post", resource, "", "404 page not found", 0, true)
		_, _, _ = n.get()
		time.Sleep(2 * pod.BindingGrace)
		n.says("create a PodCertificateRequest: the apiserver does not serve podcertificaterequests of certificates.k8s.io/v1, which Kubernetes has since 1.37")
		n.s.mu.Lock()
		n.s.err = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")
		n.s.mu.Unlock()
		time.Sleep(requestBackoff.Max)
		n.says(`create a PodCertificateRequest: namespaces "shop" not found`)
		if got := strings.Count(n.log.String(), "level=WARN"); got != 2 {
			t.Errorf("%d warnings, want one for each reason: %s", got, n.log.String())
		}
	})
}

func TestTheAuthorizerMayLearnOfThePodAMomentLater(t *testing.T) {
	managing(t, func(n *node) {
		n.s.refuse = time.Now().Add(time.Second)
		n.says("is being requested")
		time.Sleep(900 * time.Millisecond)
		n.says("is being requested")
		if n.takeChanges() != 0 || n.log.Len() > 0 {
			t.Errorf("a refusal of the first moments is told: %s", n.log.String())
		}
		time.Sleep(time.Second)
		if n.s.count() != 1 {
			t.Error("it is not requested")
		}
	})
}

func TestARequestThatCannotBeMadeIsMadeLater(t *testing.T) {
	managing(t, func(n *node) {
		n.s.err = errors.New("connection refused")
		_, _, _ = n.get()
		time.Sleep(time.Hour)
		synctest.Wait()
		_, _, err := n.get()
		n.saysOf(err, "create a PodCertificateRequest: connection refused")
		if !errors.Is(err, pod.ErrAPIServerUnavailable) || errors.Is(err, pod.ErrObjectPending) {
			t.Errorf("got %v, of another class", err)
		}
		if n.s.asked > 80 {
			t.Errorf("asked %d times in an hour", n.s.asked)
		}
		n.Manager.mu.Lock()
		key := n.creds["uid-1"][sourceKey{"tls", 0}].unused
		n.Manager.mu.Unlock()
		n.s.mu.Lock()
		n.s.err = nil
		n.s.mu.Unlock()
		time.Sleep(requestBackoff.Max)
		if r := n.s.last(t); !bytes.Equal(r.Spec.StubPKCS10Request, key.request) {
			t.Error("a key was made for each attempt")
		}
		// A watch that is refused is as bad.
		n.handleShown(nil, errors.New("forbidden"))
		n.says(`cannot see whether the signer has answered PodCertificateRequest "req-1": forbidden`)
	})
}

func TestWhatGetsNoCertificateIsRefusedByName(t *testing.T) {
	managing(t, func(n *node) {
		static := web()
		static.Annotations[pod.AnnotationSource] = string(pod.SourceFile)
		_, _, err := n.Credential(static, "tls", 0, projection())
		n.saysOf(err, "cannot project podCertificate: this pod comes from a manifest and has no service account")
		nobody := web()
		nobody.Spec.ServiceAccountName = ""
		_, _, err = n.Credential(nobody, "tls", 0, projection())
		n.saysOf(err, "the pod has no service account", "spec.serviceAccountName")
		odd := projection()
		odd.KeyType = "DSA"
		_, _, err = n.Credential(web(), "tls", 0, odd)
		n.saysOf(err, `keyType "DSA" is unknown to podd`)
		if len(n.creds) > 0 || n.s.count() != 0 {
			t.Errorf("%d credentials are kept", len(n.creds))
		}
		for i := range maxPerPod {
			_, _, _ = n.Credential(web(), "tls", i, projection())
		}
		_, _, err = n.Credential(web(), "tls", maxPerPod, projection())
		n.saysOf(err, "more than 100 podCertificate sources")
		if n.s.count() != maxPerPod {
			t.Errorf("%d requests", n.s.count())
		}
	})
}

func TestNothingIsFollowedUnlessAPodHasACertificate(t *testing.T) {
	managing(t, func(n *node) {
		follows := func() int { synctest.Wait(); n.s.mu.Lock(); defer n.s.mu.Unlock(); return n.s.following }
		if follows() != 0 {
			t.Error("the requests are followed for nobody")
		}
		n.issue(day)
		if follows() != 1 {
			t.Error("the requests are not followed")
		}
		n.Forget("uid-2")
		n.Forget("uid-1")
		if follows() != 0 || len(n.creds) > 0 || n.shown != nil {
			t.Error("something is left of a pod that is gone")
		}
		time.Sleep(100 * time.Hour)
		if n.s.count() != 1 {
			t.Error("the certificate of a pod that is gone was renewed")
		}
		n.issue(day) // another pod of the name
		if n.s.count() != 2 || follows() != 1 {
			t.Error("the requests are not followed again")
		}
	})
}

func TestTwoSourcesHaveTwoKeys(t *testing.T) {
	managing(t, func(n *node) {
		n.s.atOnce = true
		other := projection()
		other.SignerName = "example.com/other"
		for _, ask := range []func() ([]byte, []byte, error){
			func() ([]byte, []byte, error) { return n.Credential(web(), "tls", 0, projection()) },
			func() ([]byte, []byte, error) { return n.Credential(web(), "tls", 1, other) },
		} {
			_, _, _ = ask()
			n.s.last(t)
		}
		a, _, err := n.Credential(web(), "tls", 0, projection())
		b, _, err2 := n.Credential(web(), "tls", 1, other)
		if err != nil || err2 != nil || bytes.Equal(a, b) {
			t.Errorf("got %v, %v, one key for both: %t", err, err2, bytes.Equal(a, b))
		}
		signers := map[string]bool{}
		for _, r := range n.s.requests {
			signers[r.Spec.SignerName] = true
		}
		if n.s.count() != 2 || !signers["example.com/mesh"] || !signers["example.com/other"] {
			t.Errorf("asked were %v", signers)
		}
	})
}

// TestAPodWithManySourcesLeavesOthersTheirTurn, and one that is gone has nothing requested any
// more: neither key nor PodCertificateRequest.
func TestAPodWithManySourcesLeavesOthersTheirTurn(t *testing.T) {
	managing(t, func(n *node) {
		block := make(chan struct{})
		n.s.mu.Lock()
		n.s.block = block
		n.s.mu.Unlock()
		for i := range maxPerPod {
			_, _, _ = n.Credential(web(), "tls", i, projection())
		}
		synctest.Wait()
		other := web()
		other.UID = "uid-2"
		_, _, _ = n.Credential(other, "tls", 0, projection())
		synctest.Wait()
		n.s.mu.Lock()
		waiting := n.s.blocked
		n.s.mu.Unlock()
		if want := maxConcurrentPerPod + 1; waiting != want {
			t.Errorf("%d requests are in flight, want %d: two of the one pod, and that of the other", waiting, want)
		}
		n.Forget("uid-1")
		close(block)
		synctest.Wait()
		time.Sleep(time.Hour)
		if made := n.s.count(); made != maxConcurrentPerPod+1 {
			t.Errorf("%d requests were made, want those that were in flight", made)
		}
	})
}

func TestANodeThatIsNotRegisteredYetRequestsNothing(t *testing.T) {
	managing(t, func(n *node) {
		n.unregistered.Store(true)
		_, _, _ = n.get()
		time.Sleep(time.Minute)
		synctest.Wait()
		n.says("this node is not registered yet")
		if n.s.asked != 0 {
			t.Errorf("the apiserver was asked %d times", n.s.asked)
		}
		n.unregistered.Store(false)
		time.Sleep(requestBackoff.Max)
		if n.s.count() != 1 {
			t.Errorf("%d requests", n.s.count())
		}
	})
}

package images

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"podd/internal/pod"
)

// TestTheCauseOfAFailedPullIsReported uses the messages of a real containerd 2.4.
func TestTheCauseOfAFailedPullIsReported(t *testing.T) {
	const resolve = `failed to pull and unpack image "reg.test/app:1": failed to resolve reference "reg.test/app:1": `
	for text, want := range map[string]cause{
		resolve + "reg.test/app:1: not found": causeNotFound,
		resolve + "unexpected status from HEAD request to http://reg.test/v2/app/manifests/1: 429 Too Many Requests":                                               causeRateLimited,
		resolve + "unexpected status from HEAD request to http://reg.test/v2/app/manifests/1: 500 Internal Server Error":                                           causeRegistry,
		resolve + "unexpected status from HEAD request to http://reg.test/v2/app/manifests/1: 403 Forbidden":                                                       causeForbidden,
		resolve + "pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials":                    causeUnauthorized,
		resolve + "failed to authorize: failed to fetch anonymous token: unexpected status from GET request to https://auth.test/token: 401 Unauthorized":          causeUnauthorized,
		resolve + `failed to do request: Head "https://reg.test/v2/app/manifests/1": dial tcp: lookup reg.test on 10.0.0.1:53: no such host`:                       causeNoSuchHost,
		resolve + `failed to do request: Head "https://reg.test/v2/app/manifests/1": dial tcp 10.0.0.1:443: connect: connection refused`:                           causeUnreachable,
		resolve + `failed to do request: Head "https://reg.test/v2/app/manifests/1": dial tcp 10.0.0.1:443: i/o timeout`:                                           causeUnreachable,
		resolve + `failed to do request: Head "https://reg.test/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority`:            causeTLS,
		`failed to pull and unpack image "x": failed commit on ref "layer-sha256:aa": unexpected commit digest sha256:bb, expected sha256:aa: failed precondition`: causeBroken,
		`failed to pull and unpack image "x": failed to copy: httpReadSeeker: failed open: unexpected EOF`:                                                         causeBroken,
		`failed to pull and unpack image "x": failed to extract layer sha256:aa: write /x: no space left on device`:                                                causeDiskFull,
		`failed to pull and unpack image "x": no match for platform in manifest: not found`:                                                                        causePlatform,
		"something else": causeOther,
	} {
		got, advice := causeOf("reg.test/app:1", errors.New(text))
		if got != want || (advice == "") != (want == causeOther) {
			t.Errorf("%s: got %s (%s), want %s", text, got, advice, want)
		}
	}
}

// TestTheTextsOfLibrariesAreThoseThatCausesAreFoundBy: CRI passes on texts alone, and those of
// Go's packages and of CRI's are in the versions that podd is built with.
func TestTheTextsOfLibrariesAreThoseThatCausesAreFoundBy(t *testing.T) {
	_, notGzip := gzip.NewReader(strings.NewReader("no archive, by far"))
	for _, c := range []struct {
		err  error
		want cause
	}{
		{syscall.ENOSPC, causeDiskFull}, {syscall.EDQUOT, causeDiskFull},
		{syscall.ECONNREFUSED, causeUnreachable}, {syscall.ECONNRESET, causeUnreachable}, {syscall.EHOSTUNREACH, causeUnreachable},
		{syscall.ENETUNREACH, causeUnreachable}, {os.ErrDeadlineExceeded, causeUnreachable}, {context.DeadlineExceeded, causeUnreachable},
		{context.Canceled, causeUnreachable}, {io.EOF, causeUnreachable}, {syscall.ETIMEDOUT, causeUnreachable},
		{io.ErrUnexpectedEOF, causeBroken}, {notGzip, causeBroken},
		{&net.DNSError{Err: "no such host", Name: "reg.test", IsNotFound: true}, causeNoSuchHost},
		{x509.UnknownAuthorityError{}, causeTLS}, {x509.HostnameError{Certificate: &x509.Certificate{}, Host: "reg.test"}, causeTLS},
		{tls.AlertError(40), causeTLS}, {&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, causeTLS},
		{status(http.StatusTooManyRequests), causeRateLimited}, {status(http.StatusUnauthorized), causeUnauthorized},
		{status(http.StatusForbidden), causeForbidden}, {status(http.StatusNotFound), causeNotFound},
		{status(http.StatusInternalServerError), causeRegistry}, {status(http.StatusBadGateway), causeRegistry},
		{status(http.StatusServiceUnavailable), causeRegistry}, {status(http.StatusGatewayTimeout), causeRegistry},
		{crierrors.ErrRegistryUnavailable, causeRegistry},
	} {
		if got, _ := causeOf("reg.test/app:1", fmt.Errorf("failed to pull: %w", c.err)); got != c.want {
			t.Errorf("%T %v: got %s, want %s", c.err, c.err, got, c.want)
		}
	}
	for err, want := range map[error]string{
		crierrors.ErrRegistryUnavailable:       pod.ReasonRegistryUnavailable,
		crierrors.ErrSignatureValidationFailed: pod.ReasonSignatureValidationFailed,
		errors.New("something else"):           "",
	} {
		if got, rest := criReason(fmt.Errorf("%w: more", err)); got != want || want != "" && rest != ": more" {
			t.Errorf("%v: got %q and %q, want %q", err, got, rest, want)
		}
	}
}

func status(code int) error {
	return fmt.Errorf("unexpected status from HEAD request to https://reg.test/v2/: %d %s", code, http.StatusText(code))
}

// TestNamesAndWhatARegistryWritesDecideNoCause: a name that ends in tls was once
// reported as a TLS error, and a registry that mentioned a full disk made podd
// remove this node's images.
func TestNamesAndWhatARegistryWritesDecideNoCause(t *testing.T) {
	const status = "failed to resolve image: unexpected status from HEAD request to https://docker.io/v2/acme/app/manifests/1: 500 Internal Server Error"
	for text, want := range map[string]struct {
		image string
		cause cause
	}{
		`failed to pull and unpack image "docker.io/acme/app-tls:1": failed to resolve image: docker.io/acme/app-tls:1: not found`:             {"acme/app-tls:1", causeNotFound},
		`failed to pull and unpack image "docker.io/acme/geofence:latest": failed to resolve image: docker.io/acme/geofence:latest: not found`: {"acme/geofence", causeNotFound},
		"failed to resolve image: docker.io/library/a:1: manifest unknown":                                                                     {"a:1", causeNotFound},
		"repository acme/geofence not found": {"docker.io/acme/geofence:1", causeNotFound},
		"unexpected status from GET request to https://reg.test/v2/a/manifests/x-tls: 404 Not Found": {"reg.test/a:x-tls", causeNotFound},
		status + ": unknown: filesystem: write /var/lib/registry/x: no space left on device":         {"acme/app:1", causeRegistry},
		"unexpected status from HEAD request to https://docker.io/v2/: 500 no space left on device":  {"acme/app:1", causeOther},
		`encountered unknown type "no space left on device"; children may not be fetched`:            {"acme/app:1", causeOther},
		`encountered unknown type "a \"no space left on device"; not found`:                          {"acme/app:1", causeNotFound},
	} {
		if got, _ := causeOf(want.image, errors.New(text)); got != want.cause {
			t.Errorf("%s: got %s, want %s", text, got, want.cause)
		}
	}
}

func TestRetryAfterIsHeededWithinBounds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"429 Too Many Requests":                       0,
		"429: Retry-After: 120":                       2 * time.Minute,
		`toomanyrequests: {"retry-after": "45"}`:      45 * time.Second,
		"please retry after 7 seconds":                7 * time.Second,
		"Retry-After: 999999":                         backoffForget,
		"Retry-After: 99999999999999999999999":        backoffForget,
		"Retry-After: Wed, 21 Oct 2026 07:28:00 GMT ": 0,
	} {
		if got := retryHint(errors.New(text)); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	now := time.Now()
	b := backoff{}.next(now, causeRateLimited, time.Minute, "")
	if b.delay != time.Minute {
		t.Errorf("got %v, want what the registry asked for", b.delay)
	}
	if b = b.next(now, causeRateLimited, 0, ""); b.delay != 2*time.Minute {
		t.Errorf("got %v, want it doubled", b.delay)
	}
	if b = b.next(now, causeUnauthorized, 0, ""); b.delay != backoffFirst {
		t.Errorf("another cause: got %v, want %v", b.delay, backoffFirst)
	}
}

func TestRetryEndsTheBackOffOfOnePod(t *testing.T) {
	inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
		const image = "reg.test/app:1"
		b.rt.set(image, 0, errors.New("500 Internal Server Error"))
		for _, uid := range []string{"a", "b"} {
			b.ask(t, uid, image, v1.PullIfNotPresent)
			synctest.Wait()
			b.ask(t, uid, image, v1.PullIfNotPresent) // ErrImagePull
			if st := b.ask(t, uid, image, v1.PullIfNotPresent); st.Reason != "ImagePullBackOff" {
				t.Fatalf("got %+v, want a back-off", st)
			}
		}
		b.rt.set(image, 0, nil)
		b.Retry("a")
		b.ask(t, "a", image, v1.PullIfNotPresent)
		synctest.Wait()
		if st := b.ask(t, "a", image, v1.PullIfNotPresent); !st.Ready {
			t.Errorf("after a retry: got %+v, want it ready", st)
		}
		b.rt.mu.Lock()
		delete(b.rt.local, image)
		b.rt.mu.Unlock()
		if st := b.ask(t, "b", image, v1.PullIfNotPresent); st.Reason != "ImagePullBackOff" {
			t.Errorf("the other pod: got %+v, want its back-off", st)
		}
	})
}

// TestABackOffDelaysNoOtherImage of the same registry, nor another pod's pull
// of the same image.
func TestABackOffDelaysNoOtherImage(t *testing.T) {
	inBubble(t, PullConfig{}, func(t *testing.T, b *bench) {
		b.rt.set("reg.test/bad:1", 0, errors.New("429 Too Many Requests"))
		for range 5 {
			b.ask(t, "a", "reg.test/bad:1", v1.PullIfNotPresent)
			synctest.Wait()
			time.Sleep(20 * time.Second)
		}
		b.rt.set("reg.test/good:1", 0, nil)
		for _, uid := range []string{"a", "b"} {
			b.ask(t, uid, "reg.test/good:1", v1.PullIfNotPresent)
			synctest.Wait()
			if st := b.ask(t, uid, "reg.test/good:1", v1.PullIfNotPresent); !st.Ready {
				t.Errorf("%s: got %+v, want the other image ready at once", uid, st)
			}
		}
		b.rt.set("reg.test/bad:1", 0, nil)
		b.ask(t, "b", "reg.test/bad:1", v1.PullIfNotPresent)
		synctest.Wait()
		if st := b.ask(t, "b", "reg.test/bad:1", v1.PullIfNotPresent); !st.Ready {
			t.Errorf("another pod, the same image: got %+v, want it tried at once", st)
		}
	})
}

func TestALongPullSaysHowFarItIs(t *testing.T) {
	cfg := PullConfig{MaxParallel: 1, Progress: func(context.Context) (int64, int64, error) { return 3 << 20, 5 << 30, nil }}
	inBubble(t, cfg, func(t *testing.T, b *bench) {
		b.rt.set("reg.test/big:1", time.Hour, nil)
		st := b.ask(t, "a", "reg.test/big:1", v1.PullIfNotPresent)
		b.ask(t, "b", "reg.test/next:1", v1.PullIfNotPresent)
		if st.Message != "" {
			t.Errorf("at once: got %q, want silence", st.Message)
		}
		time.Sleep(time.Until(st.RetryAt))
		st = b.ask(t, "a", "reg.test/big:1", v1.PullIfNotPresent)
		if want := `Pulling image "reg.test/big:1" for 10s: 3.0 MiB of 5.0 GiB`; st.Reason != "ContainerCreating" || st.Message != want {
			t.Errorf("got %s: %q, want %q", st.Reason, st.Message, want)
		}
		if again := time.Until(st.RetryAt); again != progressEvery {
			t.Errorf("said again after %v, want %v", again, progressEvery)
		}
		st = b.ask(t, "b", "reg.test/next:1", v1.PullIfNotPresent)
		if want := `Waiting to pull image "reg.test/next:1": 1 pulls are under way, 1 of them from reg.test`; st.Message != want {
			t.Errorf("in the queue: got %q, want %q", st.Message, want)
		}
	})
}

// keys is a keyring by namespace.
type keys struct {
	auths   map[string][]pod.RegistryAuth
	err     error
	unknown *error // of PodCredentials
	told    *int   // counts RecordMissingSecrets; nil for nothing
}

func (k keys) RecordMissingSecrets(string, *v1.Pod) {
	if k.told != nil {
		*k.told++
	}
}

func (k keys) Lookup(_ context.Context, _ string, p *v1.Pod) ([]pod.RegistryAuth, error) {
	return k.auths[p.Namespace], k.err
}

func (k keys) ServiceAccountFor(_ string, p *v1.Pod) string { return p.Spec.ServiceAccountName }

func (k keys) PodCredentials(_ string, p *v1.Pod) ([]pod.RegistryAuth, error) {
	if k.unknown != nil && *k.unknown != nil {
		return nil, *k.unknown
	}
	return k.auths[p.Namespace], nil
}

func TestOnePodsSecretsPullForNoOther(t *testing.T) {
	one := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}}
	other := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "b"}}
	if secretsOf(one) != secretsOf(other) {
		t.Error("two pods without Secrets do not share a pull")
	}
	one.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}, {Name: ""}}
	other.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}}
	if secretsOf(one) == secretsOf(other) || secretsOf(one) == secretsOf(&v1.Pod{}) {
		t.Error("Secrets of different namespaces share a pull")
	}
}

// authRuntime requires one user's credentials.
type authRuntime struct {
	*fakeRegistry
	user string
}

func (a authRuntime) PullImage(ctx context.Context, ref string, auth *pod.RegistryAuth, annotations map[string]string) (string, error) {
	if auth == nil || auth.Username != a.user {
		_, _ = a.fakeRegistry.PullImage(ctx, "refused", nil, nil)
		name := "anonymous"
		if auth != nil {
			name = auth.Username
		}
		return "", fmt.Errorf("401 Unauthorized for %s", name)
	}
	return a.fakeRegistry.PullImage(ctx, ref, auth, annotations)
}

func TestAllCredentialsAreTriedInOrder(t *testing.T) {
	rt := authRuntime{newFakeRegistry(), "right"}
	told := 0
	l := NewPuller(PullConfig{Runtime: rt, Keyring: keys{told: &told, auths: map[string][]pod.RegistryAuth{
		"a": {{Username: "old"}, {Username: "right"}, {Username: "never"}},
		"b": {{Username: "old"}, {Username: "older"}},
	}, err: errors.New("plugin x is broken")}})
	for namespace, want := range map[string]string{
		"a": "<nil>",
		"b": "[401 Unauthorized for old, 401 Unauthorized for older]; without some credentials: plugin x is broken",
		"c": "401 Unauthorized for anonymous; without some credentials: plugin x is broken",
	} {
		_, err := l.fetch(t.Context(), "reg.test/app:1", &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}})
		if got := fmt.Sprint(err); got != want {
			t.Errorf("namespace %s: got %s, want %s", namespace, got, want)
		}
	}
	if told != 2 {
		t.Errorf("missing Secrets were told of %d times, want once for each pull that failed", told)
	}
}

func TestAFullDiskIsReported(t *testing.T) {
	reported := 0
	inBubble(t, PullConfig{DiskFull: func() { reported++ }}, func(t *testing.T, b *bench) {
		b.rt.set("reg.test/app:1", 0, errors.New("write: no space left on device"))
		b.rt.set("reg.test/other:1", 0, errors.New("not found"))
		b.ask(t, "a", "reg.test/app:1", v1.PullIfNotPresent)
		b.ask(t, "b", "reg.test/other:1", v1.PullIfNotPresent)
		synctest.Wait()
		st := b.ask(t, "a", "reg.test/app:1", v1.PullIfNotPresent)
		if reported != 1 || !strings.Contains(st.Message, "disk is full") {
			t.Errorf("reported %d times, message %q", reported, st.Message)
		}
	})
}

// TestLargeImagesHoldUpNoSmallOne of the same registry, when the number of
// parallel pulls is not configured (kubernetes/kubernetes#108405).
func TestLargeImagesHoldUpNoSmallOne(t *testing.T) {
	for _, overtake := range []bool{true, false} {
		inBubble(t, PullConfig{MaxParallel: 5, LongPullsYieldSlot: overtake}, func(t *testing.T, b *bench) {
			for i := range 100 {
				image := fmt.Sprintf("reg.test/large:%d", i)
				b.rt.set(image, time.Hour, nil)
				if i < 5 {
					b.ask(t, fmt.Sprint("large", i), image, v1.PullIfNotPresent)
				}
			}
			b.rt.set("reg.test/small:1", time.Second, nil)
			b.ask(t, "small", "reg.test/small:1", v1.PullIfNotPresent)
			time.Sleep(longPullAfter + 2*time.Second)
			synctest.Wait()
			st := b.ask(t, "small", "reg.test/small:1", v1.PullIfNotPresent)
			if st.Ready != overtake {
				t.Errorf("overtake %v: got %+v after %v", overtake, st, longPullAfter)
			}
			for i := range 100 {
				b.ask(t, fmt.Sprint("large", i), fmt.Sprintf("reg.test/large:%d", i), v1.PullIfNotPresent)
			}
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			if limit := map[bool]int{true: 12, false: 3}[overtake]; b.rt.max != limit {
				t.Errorf("overtake %v: got %d pulls at a time, want %d of one registry", overtake, b.rt.max, limit)
			}
			b.rt.set("other.test/small:1", time.Second, nil)
			b.ask(t, "other", "other.test/small:1", v1.PullIfNotPresent)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if st := b.ask(t, "other", "other.test/small:1", v1.PullIfNotPresent); !st.Ready {
				t.Errorf("overtake %v: another registry's image: got %+v, want it ready at once", overtake, st)
			}
		})
	}
}

// TestABackOffIsForgottenAfterTwiceItsLongest: after twice the maximum without a
// failure the back-off starts anew. Until then it doubles, up to five minutes.
func TestABackOffIsForgottenAfterTwiceItsLongest(t *testing.T) {
	now := time.Now()
	b := backoff{}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		if b = b.next(now, causeOther, 0, ""); b.delay != want*time.Second {
			t.Fatalf("got %v, want %v", b.delay, want*time.Second)
		}
	}
	if got := b.next(now.Add(backoffForget-time.Second), causeOther, 0, "").delay; got != backoffMax {
		t.Errorf("just before it is forgotten: got %v, want %v", got, backoffMax)
	}
	if got := b.next(now.Add(backoffForget), causeOther, 0, "").delay; got != backoffFirst {
		t.Errorf("when it is forgotten: got %v, want %v", got, backoffFirst)
	}
}

// TestTheRateLimitSavesUpNoMoreThanABurst: a pause of any length allows one
// burst.
func TestTheRateLimitSavesUpNoMoreThanABurst(t *testing.T) {
	now := time.Now()
	b := newRate(2, 3)
	for round := range 2 {
		for i := range 3 {
			if wait := takeToken(b, now); wait != 0 {
				t.Errorf("round %d, pull %d of the burst: got a wait of %v, want none", round, i, wait)
			}
		}
		if wait := takeToken(b, now); wait < 500*time.Millisecond || wait > 502*time.Millisecond {
			t.Errorf("round %d, after the burst: got a wait of %v, want half a second", round, wait)
		}
		now = now.Add(time.Hour)
	}
	unlimited, one := newRate(0, 1), newRate(1, 0)
	for range 100 {
		if wait := takeToken(unlimited, now); wait != 0 {
			t.Fatalf("no limit: got a wait of %v", wait)
		}
	}
	if first, second := takeToken(one, now), takeToken(one, now); first != 0 || second < time.Second {
		t.Errorf("a burst of 0: got waits of %v and %v, want one at once, then one a second", first, second)
	}
}

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/version"
)

var update = flag.Bool("update", false, "write testdata anew")

// request is a method of Client as a test calls it.
type request struct {
	call func(ctx context.Context, c *Client) (any, error)
	// answer is what the apiserver answers with, an object if it is not the version; nil for a
	// method that returns nothing.
	answer any
}

// bare is a request whose method returns an error and nothing else.
func bare(call func(ctx context.Context, c *Client) error) request {
	return request{func(ctx context.Context, c *Client) (any, error) { return nil, call(ctx, c) }, nil}
}

// following is a method that never returns of itself: the first of what it tells is its result.
func following[T any](of func(c *Client) func(context.Context, func([]T, error))) request {
	return bare(func(ctx context.Context, c *Client) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var told error
		of(c)(ctx, func(_ []T, err error) { told = errors.Join(told, err); cancel() })
		return told
	})
}

var answered = metav1.ObjectMeta{Name: "answered", Namespace: "space", UID: "u"}

// requests are all methods that ask the apiserver, by their names.
var requests = map[string]request{
	"PatchPodStatus": {func(ctx context.Context, c *Client) (any, error) {
		return c.PatchPodStatus(ctx, "space", "web", []byte(`{"metadata":{"uid":"u"},"status":{"phase":"Running"}}`))
	}, &v1.Pod{ObjectMeta: answered}},
	"DeletePod": bare(func(ctx context.Context, c *Client) error { return c.DeletePod(ctx, "space", "web", "the-uid") }),
	"CreatePod": bare(func(ctx context.Context, c *Client) error {
		return c.CreatePod(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "space"}, Spec: v1.PodSpec{NodeName: "n"}})
	}),
	"CreateEvent": bare(func(ctx context.Context, c *Client) error {
		return c.CreateEvent(ctx, &v1.Event{ObjectMeta: metav1.ObjectMeta{Name: "web.1", Namespace: "space"}, Reason: "Started", Count: 1})
	}),
	"PatchEvent": bare(func(ctx context.Context, c *Client) error {
		return c.PatchEvent(ctx, "space", "web.1", []byte(`{"count":2}`))
	}),
	"ServiceAccount": {func(ctx context.Context, c *Client) (any, error) { return c.ServiceAccount(ctx, "space", "builder") },
		&v1.ServiceAccount{ObjectMeta: answered}},
	"RequestToken": {func(ctx context.Context, c *Client) (any, error) {
		return c.RequestToken(ctx, "space", "builder", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{"vault"}, ExpirationSeconds: new(int64(600)), BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "web", UID: "u"}}})
	}, &authenticationv1.TokenRequest{ObjectMeta: answered, Status: authenticationv1.TokenRequestStatus{Token: "t"}}},
	"ReviewToken": {func(ctx context.Context, c *Client) (any, error) {
		user, ok, err := c.ReviewToken(ctx, "made-up")
		return []any{user.Username, ok}, err
	}, &authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "ann"}}}},
	"ReviewAccess": {func(ctx context.Context, c *Client) (any, error) {
		return c.ReviewAccess(ctx, authorizationv1.SubjectAccessReviewSpec{
			User: "ann", UID: "7", Groups: []string{"ops"}, Extra: map[string]authorizationv1.ExtraValue{"scope": {"x"}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: "log", Name: "n"},
		})
	}, &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}},
	"ServerVersion": {func(ctx context.Context, c *Client) (any, error) {
		info, err := c.ServerVersion(ctx)
		if info == nil {
			return nil, err
		}
		return info.Minor, err
	}, version.Info{Major: "1", Minor: "36"}},
	"Node":        {func(ctx context.Context, c *Client) (any, error) { return c.Node(ctx, "n") }, &v1.Node{ObjectMeta: answered}},
	"CurrentNode": {func(ctx context.Context, c *Client) (any, error) { return c.CurrentNode(ctx, "n") }, &v1.Node{ObjectMeta: answered}},
	"CreateNode": {func(ctx context.Context, c *Client) (any, error) {
		return c.CreateNode(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	}, &v1.Node{ObjectMeta: answered}},
	"PatchNode": {func(ctx context.Context, c *Client) (any, error) {
		return c.PatchNode(ctx, "n", []byte(`{"status":{"phase":"Running"}}`), "status")
	}, &v1.Node{ObjectMeta: answered}},
	"Lease": {func(ctx context.Context, c *Client) (any, error) { return c.Lease(ctx, "n") }, &coordinationv1.Lease{ObjectMeta: answered}},
	"CreateLease": {func(ctx context.Context, c *Client) (any, error) {
		return c.CreateLease(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	}, &coordinationv1.Lease{ObjectMeta: answered}},
	"UpdateLease": {func(ctx context.Context, c *Client) (any, error) {
		return c.UpdateLease(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "7"}})
	}, &coordinationv1.Lease{ObjectMeta: answered}},
	"CreateSigningRequest": bare(func(ctx context.Context, c *Client) error {
		return c.CreateSigningRequest(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr"}, Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/s"}})
	}),
	"CreatePodCertificateRequest": {func(ctx context.Context, c *Client) (any, error) {
		return c.CreatePodCertificateRequest(ctx, &certificatesv1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "space", GenerateName: "req-"},
			Spec:       certificatesv1.PodCertificateRequestSpec{SignerName: "example.com/s", PodName: "web", NodeName: "n", StubPKCS10Request: []byte{1}},
		})
	}, &certificatesv1.PodCertificateRequest{ObjectMeta: answered}},
	"ResourceClaim": {func(ctx context.Context, c *Client) (any, error) { return c.ResourceClaim(ctx, "space", "gpu") }, &resourcev1.ResourceClaim{ObjectMeta: answered}},
	"DeleteResourceSlices": bare(func(ctx context.Context, c *Client) error {
		return c.DeleteResourceSlices(ctx, "n", "gpu.example.com")
	}),
	"Claim":            {func(ctx context.Context, c *Client) (any, error) { return c.Claim(ctx, "space", "data") }, &v1.PersistentVolumeClaim{ObjectMeta: answered}},
	"PersistentVolume": {func(ctx context.Context, c *Client) (any, error) { return c.PersistentVolume(ctx, "pv") }, &v1.PersistentVolume{ObjectMeta: answered}},
	"VolumeAttachment": {func(ctx context.Context, c *Client) (any, error) { return c.VolumeAttachment(ctx, "csi-1") }, &storagev1.VolumeAttachment{ObjectMeta: answered}},
	"CSINode":          {func(ctx context.Context, c *Client) (any, error) { return c.CSINode(ctx, "n") }, &storagev1.CSINode{ObjectMeta: answered}},
	"CreateCSINode": bare(func(ctx context.Context, c *Client) error {
		return c.CreateCSINode(ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	}),
	"UpdateCSINode": bare(func(ctx context.Context, c *Client) error {
		return c.UpdateCSINode(ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "7"}})
	}),
	"PatchClaimStatus": {func(ctx context.Context, c *Client) (any, error) {
		return c.PatchClaimStatus(ctx, "space", "data", []byte(`{"status":{"phase":"Bound"}}`))
	}, &v1.PersistentVolumeClaim{ObjectMeta: answered}},

	"FollowPods": following(func(c *Client) func(context.Context, func([]*v1.Pod, error)) {
		return func(ctx context.Context, set func([]*v1.Pod, error)) { c.FollowPods(ctx, "n", set) }
	}),
	"FollowNode": following(func(c *Client) func(context.Context, func([]*v1.Node, error)) {
		return func(ctx context.Context, set func([]*v1.Node, error)) { c.FollowNode(ctx, "n", set) }
	}),
	"FollowConfigMap": following(func(c *Client) func(context.Context, func([]*v1.ConfigMap, error)) {
		return func(ctx context.Context, set func([]*v1.ConfigMap, error)) {
			c.FollowConfigMap(ctx, "space", "words", set)
		}
	}),
	"FollowSecret": following(func(c *Client) func(context.Context, func([]*v1.Secret, error)) {
		return func(ctx context.Context, set func([]*v1.Secret, error)) { c.FollowSecret(ctx, "space", "words", set) }
	}),
	"FollowCSIDriver": following(func(c *Client) func(context.Context, func([]*storagev1.CSIDriver, error)) {
		return func(ctx context.Context, set func([]*storagev1.CSIDriver, error)) {
			c.FollowCSIDriver(ctx, "d.example.com", set)
		}
	}),
	"FollowRuntimeClass": following(func(c *Client) func(context.Context, func([]*nodev1.RuntimeClass, error)) {
		return func(ctx context.Context, set func([]*nodev1.RuntimeClass, error)) {
			c.FollowRuntimeClass(ctx, "kata", set)
		}
	}),
	"FollowServices": following(func(c *Client) func(context.Context, func([]*v1.Service, error)) { return c.FollowServices }),
	"FollowSigningRequest": following(func(c *Client) func(context.Context, func([]*certificatesv1.CertificateSigningRequest, error)) {
		return func(ctx context.Context, set func([]*certificatesv1.CertificateSigningRequest, error)) {
			c.FollowSigningRequest(ctx, "csr", set)
		}
	}),
	"FollowPodCertificateRequests": following(func(c *Client) func(context.Context, func([]*certificatesv1.PodCertificateRequest, error)) {
		return func(ctx context.Context, set func([]*certificatesv1.PodCertificateRequest, error)) {
			c.FollowPodCertificateRequests(ctx, "n", set)
		}
	}),
	"FollowTrustBundles": following(func(c *Client) func(context.Context, func([]*certificatesv1.ClusterTrustBundle, error)) {
		return func(ctx context.Context, set func([]*certificatesv1.ClusterTrustBundle, error)) {
			c.FollowTrustBundles(ctx, "", "example.com/s", set)
		}
	}),
}

// localMethods send no request.
var localMethods = []string{"Server", "WatchKubeconfig", "Reload", "UseCertificate", "Certificate", "Ready", "Problems", "Reconnect"}

// wire is a transport that records requests and answers all of them alike.
type wire struct {
	codecs serializer.CodecFactory
	status int
	header http.Header
	body   func() io.Reader

	mu  sync.Mutex
	got []string
	// within are the contexts of the requests.
	within []context.Context
}

func newWire() *wire {
	scheme, err := newScheme()
	if err != nil {
		panic(err)
	}
	return &wire{codecs: serializer.NewCodecFactory(scheme)}
}

// says has it answer with a status and an object.
func (w *wire) says(status int, o any) *wire {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	w.status, w.body = status, func() io.Reader { return bytes.NewReader(text) }
	return w
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(q *http.Request) (*http.Response, error) {
	query := q.URL.Query()
	query.Del("timeoutSeconds") // another each time
	line := q.Method + " " + q.URL.Path
	if len(query) > 0 {
		line += "?" + strings.ReplaceAll(strings.ReplaceAll(query.Encode(), "%3D", "="), "%2C", ",")
	}
	if q.Body != nil {
		text, err := io.ReadAll(q.Body)
		if err != nil {
			return nil, err
		}
		kind := q.Header.Get("Content-Type")
		if o, _, err := w.codecs.UniversalDeserializer().Decode(text, nil, nil); err == nil {
			if text, err = json.Marshal(o); err != nil {
				return nil, err
			}
		}
		line += "\n\t" + kind + ": " + string(text)
	}
	w.mu.Lock()
	w.got, w.within = append(w.got, line), append(w.within, q.Context())
	w.mu.Unlock()
	header := http.Header{"Content-Type": {"application/json"}}
	maps.Copy(header, w.header)
	return &http.Response{StatusCode: w.status, Header: header, Request: q, Body: io.NopCloser(w.body())}, nil
}

// client returns one whose requests the wire takes. In a bubble of synctest.
func (w *wire) client(t *testing.T, f files) *Client {
	t.Helper()
	c, err := Connect(Config{Kubeconfig: f.path("kubeconfig"), UserAgent: "podd/1", WrapTransport: func(http.RoundTripper) http.RoundTripper { return w }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// kubeconfigOf writes a kubeconfig of an apiserver that nobody is asked for.
func kubeconfigOf(t *testing.T) files {
	t.Helper()
	f := files{t, t.TempDir()}
	f.kubeconfig("https://apiserver.test", "{token: x}")
	f.write("ca.crt", newPlace(t).ca())
	return f
}

func TestEveryMethodIsAmongTheRecordedRequests(t *testing.T) {
	all := reflect.TypeFor[*Client]()
	for i := range all.NumMethod() {
		name := all.Method(i).Name
		if _, ok := requests[name]; ok == slices.Contains(localMethods, name) {
			t.Errorf("%s: a method is either in requests or in localMethods", name)
		}
	}
}

// TestWhatIsRequested compares with testdata/requests.txt: verb, path, query, body and its
// encoding, preconditions among it.
func TestWhatIsRequested(t *testing.T) {
	f := kubeconfigOf(t)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		r := requests[name]
		synctest.Test(t, func(t *testing.T) {
			w := newWire()
			if r.answer != nil {
				w.says(http.StatusOK, withKind(w, r.answer))
			} else {
				w.says(http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
			}
			follows := strings.HasPrefix(name, "Follow")
			if follows {
				w = refusing(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
			}
			got, err := r.call(t.Context(), w.client(t, f))
			if err != nil && !follows {
				t.Errorf("%s: %v", name, err)
			}
			if w.within[0].Err() == nil && !strings.HasPrefix(name, "Review") {
				t.Errorf("%s: the time of its request goes on after its end", name)
			}
			if r.answer != nil {
				if o, ok := got.(metav1.Object); ok && o.GetName() != "answered" || !ok && strings.HasPrefix(fmt.Sprint(got), "<nil>") {
					t.Errorf("%s returned %v", name, got)
				}
			}
			all = append(all, name+" "+w.got[0])
			if len(w.got) > 1 && !follows {
				t.Errorf("%s made %d requests", name, len(w.got))
			}
		})
	}
	got := strings.Join(all, "\n") + "\n"
	const golden = "testdata/requests.txt"
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != got {
		t.Errorf("%v; got\n%s", err, got)
	}
}

// withKind encodes an object with its kind and version. The version of the apiserver has none.
func withKind(w *wire, answer any) any {
	o, ok := answer.(runtime.Object)
	if !ok {
		return answer
	}
	text, err := runtime.Encode(w.codecs.LegacyCodec(
		v1.SchemeGroupVersion, authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion,
		storagev1.SchemeGroupVersion, resourcev1.SchemeGroupVersion, certificatesv1.SchemeGroupVersion), o)
	if err != nil {
		panic(err)
	}
	return json.RawMessage(text)
}

// refusing has a wire answer with a status of the apiserver's.
func refusing(w *wire, code int, reason metav1.StatusReason) *wire {
	return w.says(code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "no"})
}

// TestWhatAnAnswerBecomes: whoever calls tells refusals apart by the apiserver's own reasons,
// and takes half an answer for none.
func TestWhatAnAnswerBecomes(t *testing.T) {
	f := kubeconfigOf(t)
	for what, answer := range map[string]struct {
		code   int
		reason metav1.StatusReason
		is     func(error) bool
	}{
		"404":                  {404, metav1.StatusReasonNotFound, apierrors.IsNotFound},
		"409":                  {409, metav1.StatusReasonConflict, apierrors.IsConflict},
		"409 of what is there": {409, metav1.StatusReasonAlreadyExists, apierrors.IsAlreadyExists},
		"410":                  {410, metav1.StatusReasonExpired, apierrors.IsResourceExpired},
		"422":                  {422, metav1.StatusReasonInvalid, apierrors.IsInvalid},
		"429":                  {429, metav1.StatusReasonTooManyRequests, apierrors.IsTooManyRequests},
		"500":                  {500, metav1.StatusReasonInternalError, apierrors.IsInternalError},
	} {
		t.Run(what, func(t *testing.T) {
			for name, r := range requests {
				synctest.Test(t, func(t *testing.T) {
					got, err := r.call(t.Context(), refusing(newWire(), answer.code, answer.reason).client(t, f))
					if !answer.is(err) {
						t.Errorf("%s: got %v, %v", name, got, err)
					}
				})
			}
		})
	}
	t.Run("half a body", func(t *testing.T) {
		for name, r := range requests {
			if r.answer == nil {
				continue // what is not read is not missed
			}
			synctest.Test(t, func(t *testing.T) {
				w := newWire().says(http.StatusOK, nil)
				w.body = func() io.Reader {
					return io.MultiReader(strings.NewReader(`{"kind": "Pod", "apiVersion": "v1", "metada`), iotest.ErrReader(io.ErrUnexpectedEOF))
				}
				got, err := r.call(t.Context(), w.client(t, f))
				if err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
					t.Errorf("%s: got %v, %v; want an error of no reason", name, got, err)
				}
			})
		}
	})
}

// TestABusyApiserverIsAskedAgainWhenItSays: client-go waits as long as Retry-After says.
func TestABusyApiserverIsAskedAgainWhenItSays(t *testing.T) {
	f := kubeconfigOf(t)
	synctest.Test(t, func(t *testing.T) {
		w := refusing(newWire(), http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		w.header = http.Header{"Retry-After": {"3"}}
		c, begun := w.client(t, f), time.Now()
		if _, err := c.PatchPodStatus(t.Context(), "space", "web", []byte("{}")); !apierrors.IsTooManyRequests(err) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begun); len(w.got) != 11 || took != 30*time.Second {
			t.Errorf("asked %d times within %v, want 11 times within 30s", len(w.got), took)
		}
	})
}

// TestARequestThatIsNeverAnsweredEnds: reviews have the deadline of who asks for them.
func TestARequestThatIsNeverAnsweredEnds(t *testing.T) {
	f := kubeconfigOf(t)
	for name, r := range requests {
		if strings.HasPrefix(name, "Follow") || strings.HasPrefix(name, "Review") {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			c, err := Connect(Config{Kubeconfig: f.path("kubeconfig"), UserAgent: "podd/1", WrapTransport: func(http.RoundTripper) http.RoundTripper { return mute{} }})
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			_, err = r.call(t.Context(), c)
			if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took != requestTimeout {
				t.Errorf("%s: got %v after %v, want the end of its time after %v", name, err, took, requestTimeout)
			}
		})
	}
}

// mute is a transport that answers nothing.
type mute struct{}

func (mute) RoundTrip(q *http.Request) (*http.Response, error) {
	<-q.Context().Done()
	return nil, q.Context().Err()
}

func TestWhatReviewsSay(t *testing.T) {
	f := kubeconfigOf(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		c := w.client(t, f)
		for _, want := range []bool{true, false} {
			w.says(http.StatusCreated, withKind(w, &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: !want}}))
			if got, err := c.ReviewAccess(t.Context(), authorizationv1.SubjectAccessReviewSpec{}); got != want || err != nil {
				t.Errorf("allowed, and denied is %t: got %t, %v", !want, got, err)
			}
		}
		w.says(http.StatusCreated, withKind(w, &authorizationv1.SubjectAccessReview{}))
		if got, err := c.ReviewAccess(t.Context(), authorizationv1.SubjectAccessReviewSpec{}); got || err != nil {
			t.Errorf("neither: got %t, %v", got, err)
		}
		for _, status := range []authenticationv1.TokenReviewStatus{
			{},
			{Error: "an authenticator is away"},
			{Authenticated: true, User: authenticationv1.UserInfo{Username: "ann", Groups: []string{"ops"}}, Error: "another one is away"},
		} {
			w.says(http.StatusCreated, withKind(w, &authenticationv1.TokenReview{Status: status}))
			user, ok, err := c.ReviewToken(t.Context(), "t")
			if ok != status.Authenticated || !reflect.DeepEqual(user, status.User) || (err != nil) != (!ok && status.Error != "") || err != nil && err.Error() != status.Error {
				t.Errorf("%+v: got %v, %t, %v", status, user, ok, err)
			}
		}
		refusing(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		if user, ok, err := c.ReviewToken(t.Context(), "t"); ok || err == nil || !reflect.DeepEqual(user, authenticationv1.UserInfo{}) {
			t.Errorf("no answer: got %v, %t, %v", user, ok, err)
		}
		if ok, err := c.ReviewAccess(t.Context(), authorizationv1.SubjectAccessReviewSpec{}); ok || err == nil {
			t.Errorf("no answer: got %t, %v", ok, err)
		}
	})
}

package apiserver

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answering is a transport that answers every request at once with an object of no content.
type answering struct{}

func (answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"kind": "Status", "apiVersion": "v1", "status": "Success"}`))}, nil
}

// Thirty statuses that wait for kubeAPIQPS delay nothing that must not wait.
func TestWhatSaysThatTheNodeLivesNeverWaitsForPods(t *testing.T) {
	f := files{t, t.TempDir()}
	f.kubeconfig("https://apiserver.test", "{token: x}")
	f.write("ca.crt", newPlace(t).ca())
	synctest.Test(t, func(t *testing.T) {
		c, err := Connect(Config{Kubeconfig: f.path("kubeconfig"), UserAgent: "podd/1", QPS: 1, Burst: 1, WrapTransport: func(http.RoundTripper) http.RoundTripper { return answering{} }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 30 {
			go func() { _, _ = c.PatchPodStatus(ctx, "default", "web", []byte("{}")) }()
		}
		synctest.Wait()
		began := time.Now()
		meta := metav1.ObjectMeta{Name: "n", Namespace: "default"}
		for _, request := range []func(){
			func() { _, _ = c.UpdateLease(ctx, &coordinationv1.Lease{ObjectMeta: meta}) },
			func() { _, _ = c.PatchNode(ctx, "n", []byte("{}"), "status") },
			func() { _, _ = c.Node(ctx, "n") },
			func() { _, _, _ = c.ReviewToken(ctx, "token") },
			func() { _, _ = c.ReviewAccess(ctx, authorizationv1.SubjectAccessReviewSpec{}) },
			func() { _ = c.CreateEvent(ctx, &v1.Event{ObjectMeta: meta}) },
		} {
			request()
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("they waited for %v", took)
		}
		_ = c.DeletePod(ctx, "default", "web", "uid")
		if took := time.Since(began); took < 29*time.Second {
			t.Errorf("a pod's request took %v: the bound of pods does not hold", took)
		}
	})
}

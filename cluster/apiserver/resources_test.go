package apiserver

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// recording answers like a cluster without ResourceClaims and records what it is asked.
type recording struct{ asked *[]string }

func (r recording) RoundTrip(q *http.Request) (*http.Response, error) {
	*r.asked = append(*r.asked, q.Method+" "+q.URL.Path+"?"+q.URL.Query().Encode())
	return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/json"}}, Request: q,
		Body: io.NopCloser(strings.NewReader(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "no"}`))}, nil
}

func TestWhatIsRequestedOfDynamicResources(t *testing.T) {
	f := files{t, t.TempDir()}
	f.kubeconfig("https://apiserver.test", "{token: x}")
	f.write("ca.crt", newPlace(t).ca())
	var asked []string
	c, err := Connect(Config{Kubeconfig: f.path("kubeconfig"), UserAgent: "podd/1", WrapTransport: func(http.RoundTripper) http.RoundTripper { return recording{&asked} }})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{c.DeleteResourceSlices(t.Context(), "n", ""), c.DeleteResourceSlices(t.Context(), "n", "gpu.example.com")} {
		if err == nil {
			t.Error("a 404 is no error")
		}
	}
	if _, err := c.ResourceClaim(t.Context(), "default", "big"); err == nil {
		t.Error("a claim that is not there is no error")
	}
	const slices = "DELETE /apis/resource.k8s.io/v1/resourceslices?fieldSelector="
	want := slices + "spec.nodeName%3Dn\n" + slices + "spec.driver%3Dgpu.example.com%2Cspec.nodeName%3Dn\nGET /apis/resource.k8s.io/v1/namespaces/default/resourceclaims/big?"
	if got := strings.Join(asked, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

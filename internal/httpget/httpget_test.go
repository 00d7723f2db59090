package httpget

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podd/internal/versions"
)

var web = &v1.Container{Name: "web", Ports: []v1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "77", ContainerPort: 78}}}

func TestPort(t *testing.T) {
	for _, c := range []struct {
		port intstr.IntOrString
		want int
		err  string
	}{
		{intstr.FromInt32(80), 80, ""},
		{intstr.FromString("http"), 8080, ""},
		{intstr.FromString("9090"), 9090, ""},
		{intstr.FromString("77"), 78, ""}, // a name before a number
		{intstr.FromString("admin"), 0, `container "web" has no port named "admin"`},
		{intstr.FromString(""), 0, `no port named ""`},
		{intstr.FromInt32(0), 0, "invalid port number: 0"},
		{intstr.FromInt32(65536), 0, "invalid port number: 65536"},
		{intstr.FromString("-1"), 0, "invalid port number: -1"},
	} {
		got, err := Port(c.port, web)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v: got %d (%v), want %d (%s)", c.port, got, err, c.want, c.err)
		}
	}
}

func TestRequestURL(t *testing.T) {
	for _, c := range []struct {
		action v1.HTTPGetAction
		want   string
	}{
		{v1.HTTPGetAction{Path: "/healthz"}, "http://10.0.0.1:8080/healthz"},
		{v1.HTTPGetAction{}, "http://10.0.0.1:8080"},
		{v1.HTTPGetAction{Path: "healthz?full=1#x"}, "http://10.0.0.1:8080/healthz?full=1#x"},
		{v1.HTTPGetAction{Path: "/a b"}, "http://10.0.0.1:8080/a%20b"},
		{v1.HTTPGetAction{Path: "%zz"}, "http://10.0.0.1:8080/%25zz"}, // no path at all: to the letter
		{v1.HTTPGetAction{Path: "/", Scheme: v1.URISchemeHTTPS, Host: "example.com"}, "https://example.com:8080/"},
		{v1.HTTPGetAction{Path: "/", Host: "fd00::1"}, "http://[fd00::1]:8080/"},
		{v1.HTTPGetAction{Path: "http://elsewhere/x"}, "http://10.0.0.1:8080/x"}, // never another host by the path
	} {
		c.action.Port = intstr.FromString("http")
		req, err := NewRequest(t.Context(), &c.action, web, "10.0.0.1", "probe")
		if err != nil || req.URL.String() != c.want {
			t.Errorf("%+v: got %v (%v), want %s", c.action, req, err, c.want)
		}
	}
	action := v1.HTTPGetAction{Port: intstr.FromInt32(80)}
	if _, err := NewRequest(t.Context(), &action, web, "", "probe"); err == nil {
		t.Error("without any address: got a request, want an error, for it would go to this node")
	}
}

func TestRequestHeaders(t *testing.T) {
	agent := "kube-probe/" + versions.KubernetesMinor
	list := func(kv ...string) (l []v1.HTTPHeader) {
		for i := 0; i < len(kv); i += 2 {
			l = append(l, v1.HTTPHeader{Name: kv[i], Value: kv[i+1]})
		}
		return l
	}
	for name, c := range map[string]struct {
		have []v1.HTTPHeader
		host string
		want http.Header
	}{
		"none":        {nil, "", http.Header{"User-Agent": {agent}, "Accept": {"*/*"}}},
		"own agent":   {list("user-agent", "me"), "", http.Header{"User-Agent": {"me"}, "Accept": {"*/*"}}},
		"empty agent": {list("User-Agent", ""), "", http.Header{"User-Agent": {""}, "Accept": {"*/*"}}},
		"own accept":  {list("Accept", "text/html"), "", http.Header{"User-Agent": {agent}, "Accept": {"text/html"}}},
		"no accept":   {list("Accept", ""), "", http.Header{"User-Agent": {agent}}},
		"repeated":    {list("X-A", "1", "x-a", "2"), "", http.Header{"User-Agent": {agent}, "Accept": {"*/*"}, "X-A": {"1", "2"}}},
		"host":        {list("Host", "shop.test"), "shop.test", http.Header{"User-Agent": {agent}, "Accept": {"*/*"}, "Host": {"shop.test"}}},
	} {
		action := v1.HTTPGetAction{Port: intstr.FromInt32(80), HTTPHeaders: c.have}
		req, err := NewRequest(t.Context(), &action, web, "10.0.0.1", "probe")
		if err != nil {
			t.Fatal(err)
		}
		var got, want bytes.Buffer
		if err := req.Header.Write(&got); err != nil {
			t.Fatal(err)
		}
		if err := c.want.Write(&want); err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() || req.Host != c.host {
			t.Errorf("%s: got host %q and %q, want %q and %q", name, req.Host, got.String(), c.host, want.String())
		}
	}
}

func TestRedirectsStayOnTheHost(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/same", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/end", http.StatusFound) })
	mux.HandleFunc("/end", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	mux.HandleFunc("/other", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://other.test/", http.StatusTemporaryRedirect)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	client := http.Client{Transport: NewProbeTransport(), CheckRedirect: CheckRedirect}
	for path, want := range map[string]int{"/same": http.StatusTeapot, "/other": http.StatusTemporaryRedirect, "/loop": 0} {
		resp, err := client.Get(server.URL + path)
		if want == 0 {
			if err == nil || !strings.Contains(err.Error(), "stopped after 10 redirects") {
				t.Errorf("%s: got %v, want the end after ten", path, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: got %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// TestNothingIsAskedWithoutAHost: a path such as x:y makes a URL without one, and
// port 80 of the node's own loopback was asked.
func TestNothingIsAskedWithoutAHost(t *testing.T) {
	for _, scheme := range []v1.URIScheme{v1.URISchemeHTTP, v1.URISchemeHTTPS} {
		action := v1.HTTPGetAction{Path: "x:y", Port: intstr.FromInt32(1), Scheme: scheme}
		req, err := NewRequest(t.Context(), &action, web, "127.0.0.1", "probe")
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: NewProbeTransport(), CheckRedirect: CheckRedirect}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "http: no Host in request URL") {
			t.Errorf("%s: got %v, want no host in the URL", scheme, err)
		}
	}
}

func TestBodiesAreReadToTheirBound(t *testing.T) {
	got, err := ReadBody(strings.NewReader(strings.Repeat("x", 1<<20)))
	if err != nil || len(got) != MaxBody {
		t.Errorf("got %d bytes (%v), want %d", len(got), err, MaxBody)
	}
}

// TestHeaderFloodsAreCut: a target may not have podd hold megabytes of headers.
func TestHeaderFloodsAreCut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Flood", strings.Repeat("x", 1<<20))
	}))
	defer server.Close()
	client := http.Client{Transport: NewProbeTransport()}
	if resp, err := client.Get(server.URL); err == nil {
		_ = resp.Body.Close()
		t.Error("got a response with 1 MiB of headers, want an error")
	}
}

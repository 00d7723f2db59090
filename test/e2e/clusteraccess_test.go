package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"podd/test/cluster"
)

// caller is somebody who uses the kubelet's API of a node.
type caller struct {
	token  string
	client *http.Client
}

func newCaller(token string, certificates ...tls.Certificate) caller {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}
	return caller{token, &http.Client{Transport: transport, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// call returns the answer's code, and the beginning of its body.
func (c caller) call(ctx context.Context, method, url string) (code int, body string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, "", err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	const most = 1000
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	return resp.StatusCode, string(text), err
}

// fineGrained are the paths of the port with the subresource of their own; proxied says that
// nodes/proxy does as well (pkg/kubelet/server/auth.go).
var fineGrained = []struct {
	method, path, subresource string
	proxied                   bool
}{
	{"GET", "/pods", "pods", true},
	{"GET", "/runningpods/", "pods", true},
	{"GET", "/healthz", "healthz", true},
	{"GET", "/healthz/ping", "healthz", true},
	{"GET", "/configz", "configz", true},
	{"GET", "/metrics", "metrics", false},
	{"GET", "/metrics/probes", "metrics", false},
	{"GET", "/metrics/cadvisor", "metrics", false},
	{"GET", "/metrics/resource", "metrics", false},
	{"GET", "/stats/summary", "stats", false},
	{"GET", "/logs/", "log", false},
	{"GET", "/logs/none", "log", false},
	{"GET", "/logs/?query=kubelet", "log", false},
	{"POST", "/checkpoint/default/none/c", "checkpoint", false},
	{"GET", "/statusz", "statusz", false},
	{"GET", "/flagz", "configz", false},
	{"GET", "/containerLogs/default/none/c", "", true},
	{"GET", "/exec/default/none/c?command=x&output=1", "", true},
	{"POST", "/exec/default/none/c?command=x&output=1", "", true},
	{"GET", "/attach/default/none/c?output=1", "", true},
	{"POST", "/run/default/none/c?cmd=x", "", true},
	{"POST", "/portForward/default/none", "", true},
	{"GET", "/debug/pprof/", "", true},
	{"GET", "/debug/pprof/cmdline", "", true},
	{"PUT", "/debug/flags/v", "", true},
	{"GET", "/", "", true},
	{"GET", "/nonsense", "", true},
	{"GET", "/podsandmore", "", true},
	{"GET", "/metrics/../pods", "metrics", false}, // answered by a redirect to what it is once cleaned
}

// The apiserver says who may do what on port 10250, by the subresources that upstream maps
// the paths to.
func TestWhoMayUseTheKubeletsAPI(t *testing.T) {
	m := meetWith(t, []string{"nobody", "proxy", "fine"})
	if err := m.server.NodeKubeconfig(m.kubeconfig(), m.podd.NodeName()); err != nil {
		t.Fatal(err)
	}
	m.start()
	var subresources []string
	for _, p := range fineGrained {
		if p.subresource != "" {
			subresources = append(subresources, "nodes/"+p.subresource)
		}
	}
	for user, resources := range map[string][]string{"proxy": {"nodes/proxy"}, "fine": subresources} {
		role := map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "kubelet-" + user},
			"rules": []any{map[string]any{"apiGroups": []string{""}, "resources": resources, "verbs": []string{"*"}}}}
		binding := map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "kubelet-" + user},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubelet-" + user},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}}}
		for _, o := range []cluster.Object{role, binding} {
			if err := m.server.Client().Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	strange, err := m.server.ClientCertificate("admin", false)
	if err != nil {
		t.Fatal(err)
	}
	known, err := m.server.ClientCertificate("nobody", true)
	if err != nil {
		t.Fatal(err)
	}
	callers := map[string]caller{
		"no credentials": newCaller(""), "a wrong token": newCaller("x"), "a certificate of another authority": newCaller("", strange),
		"a certificate without rights": newCaller("", known), "a token without rights": newCaller(m.server.UserToken("nobody")),
		"nodes/proxy": newCaller(m.server.UserToken("proxy")), "the subresource": newCaller(m.server.UserToken("fine")),
	}
	base := "https://127.0.0.1:" + strconv.Itoa(m.node.Port+9)
	m.eventually("the roles are known", func(ctx context.Context) error {
		for _, who := range []string{"nodes/proxy", "the subresource"} {
			if code, body, err := callers[who].call(ctx, "GET", base+"/healthz"); err != nil || code != http.StatusOK {
				return errors.Join(err, fmt.Errorf("%s: %d %s", who, code, body))
			}
		}
		return nil
	})
	for _, p := range fineGrained {
		for who, c := range callers {
			want := 0 // whatever it is, it was let in
			switch {
			case strings.HasPrefix(who, "no ") || strings.HasPrefix(who, "a wrong") || strings.HasSuffix(who, "authority"):
				want = http.StatusUnauthorized
			case strings.HasSuffix(who, "without rights"), who == "nodes/proxy" && !p.proxied, who == "the subresource" && p.subresource == "":
				want = http.StatusForbidden
			}
			code, body, err := c.call(t.Context(), p.method, base+p.path)
			switch {
			case err != nil:
				t.Errorf("%s %s with %s: %v", p.method, p.path, who, err)
			case want != 0 && code != want, want == 0 && (code == http.StatusUnauthorized || code == http.StatusForbidden):
				t.Errorf("%s %s with %s: got %d %.100q, want %d", p.method, p.path, who, code, body, want)
			case want == http.StatusUnauthorized && body != "Unauthorized", want == http.StatusForbidden && !strings.HasPrefix(body, "Forbidden (user="):
				t.Errorf("%s %s with %s: got %d %.100q", p.method, p.path, who, code, body)
			}
		}
	}
}

// The pages and the logs of the node, by way of the apiserver's proxy.
func TestPagesAndLogsOfTheNodeComeThroughTheApiserver(t *testing.T) {
	m := join(t)
	m.eventually("the node has registered", func(ctx context.Context) error {
		_, err := m.server.Client().Raw(ctx, "/api/v1/nodes/"+m.podd.NodeName()+"/proxy/healthz")
		return err
	})
	for path, want := range map[string]string{
		"flagz": "kubeconfig=", "statusz": "Binary version: 1.36.3", "logs/": "<pre>", "configz": `"enableSystemLogHandler":true`, "debug/pprof/cmdline": "podd",
	} {
		got, err := m.server.Client().Raw(t.Context(), "/api/v1/nodes/"+m.podd.NodeName()+"/proxy/"+path)
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: got %.300q, %v, want %q", path, got, err, want)
		}
	}
}

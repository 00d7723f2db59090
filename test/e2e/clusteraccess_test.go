package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"podd/internal/versions"
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
	{"GET", "/allocatedPods", "pods", true},
	{"GET", "/allocatedPods/default/none", "pods", true},
	{"GET", "/healthz", "healthz", true},
	{"GET", "/healthz/ping", "healthz", true},
	{"GET", "/configz", "configz", true},
	{"GET", "/metrics", "metrics", false},
	{"GET", "/metrics/probes", "metrics", false},
	{"GET", "/metrics/cadvisor", "metrics", false},
	{"GET", "/metrics/resource", "metrics", false},
	{"GET", "/metrics/slis", "metrics", false},
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
		"flagz": "kubeconfig=", "statusz": "Binary version: " + versions.Kubernetes[1:], "logs/": "<pre>", "configz": `"enableSystemLogHandler":true`, "debug/pprof/cmdline": "podd",
	} {
		got, err := m.server.Client().Raw(t.Context(), "/api/v1/nodes/"+m.podd.NodeName()+"/proxy/"+path)
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: got %.300q, %v, want %q", path, got, err, want)
		}
	}
}

// A client that offers only older versions, or only suites that are not configured, gets no connection.
func TestThePortSpeaksTLS12AndTheConfiguredSuites(t *testing.T) {
	m := joinWith(t, func(config map[string]any) {
		config["tlsCipherSuites"] = []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
	})
	m.nodeIsReady()
	few := []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}
	all := append([]uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, few...)
	for _, test := range []struct {
		version uint16
		suites  []uint16
		want    string // of the alert; empty for a connection
	}{
		{tls.VersionTLS13, nil, ""},
		{tls.VersionTLS12, all, ""},
		{tls.VersionTLS12, few, "handshake failure"},
		{tls.VersionTLS11, nil, "protocol version not supported"},
		{tls.VersionTLS10, nil, "protocol version not supported"},
	} {
		c, err := tls.Dial("tcp", strings.TrimPrefix(m.api(), "https://"), &tls.Config{
			InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: test.version, CipherSuites: test.suites,
		})
		if err == nil {
			if of := c.ConnectionState(); test.want != "" || of.Version != test.version || test.suites != nil && of.CipherSuite != all[0] && of.CipherSuite != all[1] {
				t.Errorf("%s, %v: got %s, %s", tls.VersionName(test.version), test.suites, tls.VersionName(of.Version), tls.CipherSuiteName(of.CipherSuite))
			}
			_ = c.Close()
		} else if test.want == "" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s, %v: got %v, want %q", tls.VersionName(test.version), test.suites, err, test.want)
		}
	}
}

// webSocket opens a session at the node's port with the newest protocol that a kubelet speaks:
// the first byte of a message is the number of its channel.
func (m *member) webSocket(path string) *websocket.Conn {
	m.Helper()
	c, err := websocket.NewConfig(replaced(m, m.api(), "https:", "wss:")+path, "https://x/")
	if err != nil {
		m.Fatal(err)
	}
	c.Protocol, c.TlsConfig = []string{"v4.channel.k8s.io"}, &tls.Config{InsecureSkipVerify: true}
	c.Header.Set("Authorization", "Bearer "+m.server.UserToken("reader"))
	conn, err := websocket.DialConfig(c)
	if err != nil {
		m.Fatalf("%s: %v", path, err)
	}
	m.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		m.Fatal(err)
	}
	return conn
}

// sends writes a message to a channel.
func (m *member) sends(conn *websocket.Conn, channel byte, text string) {
	m.Helper()
	if err := websocket.Message.Send(conn, append([]byte{channel}, text...)); err != nil {
		m.Fatal(err)
	}
}

// hears reads until a channel has said something that ends with a text, whatever others say.
func (m *member) hears(conn *websocket.Conn, channel byte, end string) {
	m.Helper()
	var said []byte
	for !strings.HasSuffix(string(said), end) {
		var message []byte
		if err := websocket.Message.Receive(conn, &message); err != nil {
			m.Fatalf("channel %d has said %q, and not %q: %v", channel, said, end, err)
		}
		if len(message) > 1 && message[0] == channel {
			said = append(said, message[1:]...)
		}
	}
}

func TestSessionsOverWebSocketsAndByRun(t *testing.T) {
	m := joinAsAdmin(t)
	m.bind(replaced(m, m.podOf("web", "echo page > /tmp/index.html; httpd -p 8080 -h /tmp; : > /out/web; while read line; do echo got $line; done"), "    image:", "    stdin: true\n    image:"))
	m.mark("web")
	m.shown("web", "ready", isReady)
	const stdin, stdout, status = 0, 1, 3
	exec := m.webSocket("/exec/default/web/main?command=sh&command=-c&command=" + url.QueryEscape("read line; echo got $line; exit 7") + "&input=1&output=1&error=1")
	m.sends(exec, stdin, "a line\n")
	m.hears(exec, stdout, "got a line\n")
	m.hears(exec, status, `"ExitCode","message":"7"}]}}`)

	attach := m.webSocket("/attach/default/web/main?input=1&output=1&error=1")
	m.sends(attach, stdin, "a line\n")
	m.hears(attach, stdout, "got a line\n")

	forward := m.webSocket("/portForward/default/web?port=8080")
	m.hears(forward, 0, string([]byte{8080 & 0xff, 8080 >> 8})) // the number of the port, first of all
	m.sends(forward, 0, "GET /index.html HTTP/1.0\r\n\r\n")
	m.hears(forward, 0, "page\n")
	reader := newCaller(m.server.UserToken("reader"))
	if code, body, err := reader.call(t.Context(), "POST", m.api()+"/run/default/web/main?cmd=cat+/tmp/index.html"); err != nil || code != http.StatusOK || body != "page\n" {
		t.Errorf("/run: got %d %q, %v", code, body, err)
	}
	m.delete("web")
	m.gone("web")
}

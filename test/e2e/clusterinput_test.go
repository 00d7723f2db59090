package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/test/cluster"
)

// A pod that was deleted by force and made again under its name is another pod: the old one
// ends first, whatever it does, and the new one runs.
func TestAPodThatIsReplacedUnderItsNameEndsBeforeTheNewOneRuns(t *testing.T) {
	m := join(t)
	m.bind(m.podOf("web", "trap '' TERM; i=0; while :; do i=$((i+1)); echo $i > /out/beat; : > /out/first; sleep 0.01; done"))
	m.mark("first")
	first := m.shown("web", "ready", isReady)
	if err := m.server.Client().DeleteNow(t.Context(), podNamed("web")); err != nil {
		t.Fatal(err)
	}
	m.bind(m.podOf("web", `a=$(cat /out/beat); sleep 1; b=$(cat /out/beat); [ "$a" = "$b" ] && : > /out/in-order; : > /out/second; ${REST}`))
	m.mark("second")
	second := m.shown("web", "ready", isReady)
	if first.UID == second.UID {
		t.Fatal("the pod was not replaced")
	}
	if !m.marked("in-order") {
		t.Error("the new pod ran before the old one had ended")
	}
	all, err := m.node.CRI.Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Labels["io.kubernetes.pod.uid"] == string(first.UID) {
			t.Errorf("the old pod still has container %s", c.Metadata.Name)
		}
	}
	m.delete("web")
	m.gone("web")
}

// Two agents that use one node's name: each renews the lease, and podd says so.
func TestAnotherAgentWithTheNameOfTheNodeIsNoticed(t *testing.T) {
	m := joinWith(t, func(config map[string]any) { config["nodeLeaseDurationSeconds"] = 4 })
	m.nodeIsReady()
	lease := cluster.Object{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": m.podd.NodeName(), "namespace": v1.NamespaceNodeLease}}
	other, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { // the other agent
		for other.Err() == nil {
			var l coordinationv1.Lease
			if err := m.server.Client().Get(other, lease, &l); err == nil {
				now := metav1.NowMicro()
				l.Spec.RenewTime = &now
				_ = m.server.Client().Put(other, lease, &l) // somebody else may have been first
			}
			select {
			case <-other.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
		done <- nil
	}()
	m.problem("node "+m.podd.NodeName(), "another agent uses the name of this node", "--hostname-override")
	stop()
	<-done
	m.noProblem("node " + m.podd.NodeName())
}

// What keeps a node from its apiserver is told in words, and ends when the file is right.
func TestWhyAnApiserverIsNotReachedIsToldAndEnds(t *testing.T) {
	m := join(t)
	m.nodeIsReady()
	right, err := os.ReadFile(m.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := cluster.OtherAuthority()
	if err != nil {
		t.Fatal(err)
	}
	authority := filepath.Join(m.podd.Dir, "other.crt")
	if err := os.WriteFile(authority, []byte(stranger), 0o600); err != nil {
		t.Fatal(err)
	}
	server := strings.TrimPrefix(m.server.URL(), "https://")
	own := filepath.Join(m.podd.Dir, "apiserver", "certs", "apiserver.crt")
	for _, test := range []struct {
		what, text, origin string
		words              []string
	}{
		{"a certificate for another host", replaced(m, string(right), "{server:", `{tls-server-name: other.example, server:`), server, []string{"other.example", "certificate"}},
		{"another authority", replaced(m, string(right), own, authority), server, []string{"certificate signed by unknown authority"}},
		{"a client certificate that has expired", m.withCertificate(string(right), -time.Hour), "kubeconfig", []string{"the client certificate expired", "goes on with the last version"}},
		{"a client certificate that was revoked", m.withRevoked(string(right)), server, []string{"unauthorized"}},
		{"a token that is none", replaced(m, string(right), "{token: ", "{token: x"), server, []string{"unauthorized"}},
	} {
		m.replaceKubeconfig(test.text)
		m.problem(test.origin, test.words...)
		if t.Failed() {
			t.Fatal(test.what)
		}
		m.replaceKubeconfig(string(right))
		m.noProblem(test.origin)
	}
	m.bind(m.resting("after"))
	m.shown("after", "ready", isReady)
	m.delete("after")
	m.gone("after")
}

// noProblem waits until podd reports no problem with a file.
func (m *member) noProblem(file string) {
	m.Helper()
	m.eventually("no problem with "+file, func(ctx context.Context) error {
		l, err := m.listing(ctx)
		if err != nil {
			return err
		}
		for _, p := range l.Problems {
			if filepath.Base(p.Origin) == file {
				return errors.New(p.Message)
			}
		}
		return nil
	})
}

// kept is what podd holds for its clients.
type kept struct{ goroutines, descriptors int }

func (m *member) kept(admin caller) (k kept, err error) {
	code, body, err := admin.call(m.Context(), "GET", m.api()+"/debug/pprof/goroutine?debug=1")
	if err != nil || code != http.StatusOK {
		return k, fmt.Errorf("read the goroutines: %d %w", code, err)
	}
	if _, err := fmt.Sscanf(body, "goroutine profile: total %d", &k.goroutines); err != nil {
		return k, err
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.podd.Pid()))
	k.descriptors = len(entries)
	return k, err
}

func (m *member) api() string { return "https://127.0.0.1:" + strconv.Itoa(m.node.Port+9) }

// dial opens a connection of its own to the API.
func (m *member) dial() net.Conn {
	m.Helper()
	c, err := tls.Dial("tcp", strings.TrimPrefix(m.api(), "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		m.Fatal(err)
	}
	return c
}

// Clients of logs and commands that stop reading, and then vanish without a word, leave
// nothing behind.
func TestClientsThatStopReadingAndVanishLeaveNothingBehind(t *testing.T) {
	m := joinAsAdmin(t)
	// More output than sockets and buffers between here and there hold.
	m.bind(m.podOf("loud", `: > /out/loud; yes 0123456789012345678901234567890123456789 | head -c 30000000; ${REST}`))
	m.mark("loud")
	p := m.shown("loud", "ready", isReady)
	admin := newCaller(m.server.UserToken("reader"))
	if _, err := m.kept(admin); err != nil { // what the first request makes stays
		t.Fatal(err)
	}
	before, err := m.kept(admin)
	if err != nil {
		t.Fatal(err)
	}
	const clients = 10
	path := "/" + p.Namespace + "/" + p.Name + "/main"
	var all []net.Conn
	for i := range clients {
		for _, request := range []string{
			"GET /containerLogs" + path + "?follow=true HTTP/1.1\r\n",
			"POST /exec" + path + "?output=1&command=yes HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n",
			"GET /exec" + path + "?output=1&command=sleep&command=3600 HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n",
		} {
			c := m.dial()
			all = append(all, c)
			if _, err := io.WriteString(c, request+"Host: x\r\nAuthorization: Bearer "+m.server.UserToken("reader")+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReaderSize(c, 16).ReadSlice('\n') // and no more than that
			if status := string(line); err == nil && !strings.HasPrefix(status, "HTTP/1.1 200") && !strings.HasPrefix(status, "HTTP/1.1 101") {
				t.Fatalf("client %d: %q answered %q", i, request, status)
			}
		}
	}
	during, err := m.kept(admin)
	if err != nil {
		t.Fatal(err)
	}
	if during.descriptors < before.descriptors+clients {
		t.Errorf("with %d clients: %+v, before: %+v: that shows nothing", len(all), during, before)
	}
	for _, c := range all {
		if raw, ok := c.(*tls.Conn).NetConn().(*net.TCPConn); ok {
			_ = raw.SetLinger(0) // a reset, as of a machine that is gone
		}
		_ = c.(*tls.Conn).NetConn().Close()
	}
	m.eventually("goroutines and descriptors are back", func(context.Context) error {
		now, err := m.kept(admin)
		if err == nil && (now.goroutines > before.goroutines+2 || now.descriptors > before.descriptors+2) {
			err = fmt.Errorf("got %+v, want %+v", now, before)
		}
		return err
	})
	m.delete("loud")
	m.gone("loud")
}

// joinAsAdmin is join with a user "reader" who may do everything at the node's API.
func joinAsAdmin(t *testing.T) *member {
	t.Helper()
	m := meetWith(t, []string{"reader"})
	if err := m.server.NodeKubeconfig(m.kubeconfig(), m.podd.NodeName()); err != nil {
		t.Fatal(err)
	}
	m.start()
	binding := cluster.Object{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "reader"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}}}
	if err := m.server.Client().Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	reader := newCaller(m.server.UserToken("reader"))
	m.eventually("the role is known", func(ctx context.Context) error {
		if code, body, err := reader.call(ctx, "GET", m.api()+"/healthz"); err != nil || code != http.StatusOK {
			return errors.Join(err, fmt.Errorf("%d %s", code, body))
		}
		return nil
	})
	return m
}

// Paths that lead elsewhere, or are no paths: refused, and nothing of the machine shows.
func TestPathsThatLeadElsewhereAreRefused(t *testing.T) {
	m := joinAsAdmin(t)
	m.bind(m.podOf("web", "echo said; : > /out/web; ${REST}"))
	m.mark("web")
	m.shown("web", "ready", isReady)
	long := strings.Repeat("a", 100<<10)
	for _, path := range []string{
		"/containerLogs/default/../../../../etc/passwd",
		"/containerLogs/default/%2e%2e%2f%2e%2e%2fetc/passwd",
		"/containerLogs/default/web/..%2f..%2f..%2fetc%2fpasswd",
		"/containerLogs/default%2Fweb%2Fmain",
		"/containerLogs/%00/web/main",
		"/containerLogs/default/web/main%0d%0aX-Injected:%201",
		"/containerLogs/default/web/main?tailLines=-1",
		"/containerLogs/default/web/main?sinceTime=yesterday",
		"/containerLogs/default/web/main?limitBytes=0",
		"/containerLogs/default/web/" + long,
		"/logs/../../etc/passwd",
		"/logs/..%2f..%2fetc%2fpasswd",
		"/logs/%2e%2e/%2e%2e/etc/passwd",
		"/logs//etc/passwd",
		"/exec/default/web/..%2fmain?command=cat&output=1",
		"/run/default/web/main?cmd=" + long + long,
		"/" + long,
		"/pods/" + long,
		"//" + long + "/../pods/x",
		"/checkpoint/../../x/y/z",
	} {
		c := m.dial()
		method := "GET"
		if strings.HasPrefix(path, "/run") || strings.HasPrefix(path, "/checkpoint") {
			method = "POST"
		}
		if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n", method, path, m.server.UserToken("reader")); err != nil {
			t.Logf("%.80s: %v", path, err) // it was cut off while it was still talking
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		text, err := io.ReadAll(io.LimitReader(c, 64<<10))
		_ = c.Close()
		answer := string(text)
		status, _, _ := strings.Cut(answer, "\r\n")
		fields := strings.Fields(status)
		switch {
		case len(fields) < 2:
			if len(path) < 1<<10 {
				t.Errorf("%.80s: got no answer: %v", path, err)
			}
		case fields[1][0] != '4' && fields[1][0] != '3':
			t.Errorf("%.80s: got %s, want a refusal", path, status)
		case strings.Contains(answer, "root:x:0") || strings.Contains(answer, "\r\nX-Injected"):
			t.Errorf("%.80s: got %.300q", path, answer)
		case len(answer) > 8<<10:
			t.Errorf("%.80s: got %d bytes in answer", path, len(answer))
		}
	}
	reader := newCaller(m.server.UserToken("reader"))
	if code, body, err := reader.call(t.Context(), "GET", m.api()+"/containerLogs/default/web/main"); err != nil || code != http.StatusOK || body != "said\n" {
		t.Errorf("afterwards: got %d %q %v", code, body, err)
	}
	m.delete("web")
	m.gone("web")
}

// An apiserver that hangs in the middle of a token review: refused in time, and whoever was
// reviewed before, or needs no review, goes on.
func TestATokenReviewThatHangsIsARefusalInTime(t *testing.T) {
	m := joinAsAdmin(t)
	known, unknown := newCaller(m.server.UserToken("reader")), newCaller("another-token")
	if code, _, err := known.call(t.Context(), "GET", m.api()+"/pods"); err != nil || code != http.StatusOK {
		t.Fatalf("got %d %v", code, err)
	}
	if err := m.server.Freeze(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.server.Thaw() }()
	if code, body, err := unknown.call(t.Context(), "GET", m.api()+"/pods"); err != nil || code != http.StatusUnauthorized {
		t.Errorf("an unknown token while the apiserver hangs: got %d %q %v, want 401", code, body, err)
	}
	if code, body, err := known.call(t.Context(), "GET", m.api()+"/pods"); err != nil || code != http.StatusOK {
		t.Errorf("a token that was reviewed a moment ago: got %d %q %v", code, body, err)
	}
	if out, err := m.prints("ps"); err != nil {
		t.Errorf("podd ps: %v %s", err, out)
	}
	if err := m.server.Thaw(); err != nil {
		t.Fatal(err)
	}
	m.nodeIsReady()
}

// label sets the Node's label example.com/rack.
func (m *member) label(value string) {
	m.Helper()
	var n v1.Node
	node := cluster.Object{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": m.podd.NodeName()}}
	m.eventually("the Node is labelled "+value, func(ctx context.Context) error { // podd may write it at the same time
		if err := m.server.Client().Get(ctx, node, &n); err != nil {
			return err
		}
		n.Labels["example.com/rack"] = value
		return m.server.Client().Put(ctx, node, &n)
	})
}

// Whoever labels a node has pods bound to it at once: none of them is rejected, whichever of
// the two podd is told first.
func TestAPodThatIsBoundForALabelJustSetIsNotRejected(t *testing.T) {
	m := join(t)
	m.nodeIsReady()
	for i := range 12 {
		name := fmt.Sprint("web", i)
		pod := m.podOf(name, "${REST}", fmt.Sprintf("nodeSelector: {example.com/rack: %q}", name))
		m.label(name)
		m.bind(pod)
		m.shown(name, "ready", func(p *v1.Pod) error {
			if p.Status.Phase == v1.PodFailed {
				t.Fatalf("%s: %s", p.Status.Reason, p.Status.Message)
			}
			return isReady(p)
		})
		m.delete(name)
		m.gone(name)
	}
}

// What the scheduler has bound by a label that somebody gave to the Node runs again after a
// boot, when podd hears of the pods before it has seen the Node
// (https://issues.k8s.io/92067).
func TestPodsWithALabelOfTheClusterRunAgainAfterABoot(t *testing.T) {
	m := join(t)
	m.nodeIsReady()
	m.label("one")
	var names []string
	for i := range 5 {
		name := fmt.Sprint("web", i)
		names = append(names, name)
		m.bind(m.podOf(name, "echo x >> /out/starts-"+name+"; : > /out/"+name+"; ${REST}", "nodeSelector: {example.com/rack: one}"))
	}
	for _, name := range names {
		m.shown(name, "ready", isReady)
	}
	m.kill()
	if err := m.node.CRI.RemoveAll(t.Context()); err != nil { // a boot forgets what runs
		t.Fatal(err)
	}
	m.start()
	for _, name := range names {
		m.eventually(name+" runs again", func(context.Context) error {
			if n := strings.Count(m.contents("starts-"+name), "x"); n != 2 {
				return fmt.Errorf("it was started %d times", n)
			}
			return nil
		})
		m.shown(name, "ready", isReady)
	}
	// The Node has been seen: what does not match is rejected.
	m.bind(m.podOf("two", "${REST}", "nodeSelector: {example.com/rack: two}"))
	m.shown("two", "rejected", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "NodeAffinity" {
			return errors.New("not rejected")
		}
		return nil
	})
	m.delete(append(names, "two")...)
	m.gone(append(names, "two")...)
}

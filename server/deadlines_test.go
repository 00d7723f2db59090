package server

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/podlogs"
)

// overTLS serves a group as port 10250 is served, in a bubble, and returns a client that
// speaks HTTP/2, as the apiserver does, or HTTP/1.1.
func overTLS(t *testing.T, s *Server, g group, version int) *http.Client {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"node"}, NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, own, own, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	p := newPipes()
	admitted := func(next http.Handler) http.Handler { // as the guard lets in whoever has a token
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			Admit(r.Context(), true)
			next.ServeHTTP(w, r)
		})
	}
	of := api{name: "kubelet", network: "tcp", guard: []middleware{admitted, s.extendWriteDeadline}, groups: []group{g}, tls: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}}
	l := listener{p, of, of.newLimiter()}
	servers, accept := s.servers(t.Context(), l)
	var ended sync.WaitGroup
	ended.Go(func() { _ = accept() })
	for _, one := range servers {
		ended.Go(func() { _ = one.Server.Serve(one.Listener) })
	}
	transport := &http.Transport{
		DialContext: p.dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: version == 2, //nolint:gosec // its own
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = l.Close()
		for _, one := range servers {
			_ = one.Server.Close()
		}
		l.limiter.closeAll()
		ended.Wait()
	})
	return &http.Client{Transport: transport}
}

// TestAResponseMayWaitForAnHour: for a line of a log that is followed, and for a command or a
// checkpoint. Over HTTP/2 a deadline of writing ends a response of which nothing is being
// written.
func TestAResponseMayWaitForAnHour(t *testing.T) {
	for version := 1; version <= 2; version++ {
		t.Run(fmt.Sprint("HTTP/", version), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(Config{Pods: &node{}})
				client := overTLS(t, s, group{routes: []route{
					{"/follow", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						out := &deadlineWriter{ResponseWriter: w, s: s, each: true}
						for _, text := range []string{"", "one\n", "two\n"} {
							if _, err := io.WriteString(out, text); err != nil {
								t.Error(err)
							}
							time.Sleep(time.Hour)
						}
					})},
					{"/slow", s.deferWriteDeadline(func(w http.ResponseWriter, r *http.Request) {
						time.Sleep(time.Hour)
						if r.Context().Err() != nil {
							t.Error("the request was canceled")
						}
						_, _ = io.WriteString(w, "done")
					})},
				}}, version)
				began := time.Now()
				resp, err := client.Get("https://node/follow")
				if err != nil || resp.ProtoMajor != version {
					t.Fatalf("got %v, %v", resp, err)
				}
				if d := time.Since(began); d > time.Second {
					t.Errorf("the header came after %v", d)
				}
				if text, err := io.ReadAll(resp.Body); string(text) != "one\ntwo\n" || err != nil {
					t.Errorf("follow: got %q, %v", text, err)
				}
				_ = resp.Body.Close()
				resp, err = client.Get("https://node/slow")
				if err != nil {
					t.Fatal(err)
				}
				if text, err := io.ReadAll(resp.Body); string(text) != "done" || err != nil {
					t.Errorf("slow: got %q, %v", text, err)
				}
				_ = resp.Body.Close()
			})
		})
	}
}

// following is a runtime whose one log goes on until ended is closed.
type following struct {
	fakeRuntime
	path  string
	ended chan struct{}
}

func (f *following) Log(context.Context, *v1.Pod, string) (podlogs.Log, error) {
	return podlogs.Log{Path: f.path, Ended: f.ended}, nil
}

// followed serves a log without lines until stop, and returns the response of who follows it.
func followed(t *testing.T) (rt *following, resp *http.Response, stop func()) {
	t.Helper()
	rt = &following{path: filepath.Join(t.TempDir(), "0.log"), ended: make(chan struct{})}
	if err := os.WriteFile(rt.path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	p.Spec.Containers = []v1.Container{{Name: "main"}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", ContainerID: "containerd://now", State: runsNow()}}
	s := New(Config{Socket: filepath.Join(t.TempDir(), "podd.sock"), Pods: onePod{p}})
	s.Attach(rt)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	resp, err := clientOf(s, "socket").Get("http://localhost/containerLogs/shop/web/main?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return rt, resp, stop
}

// TestWhoFollowsALogHearsAtOnceThatItIsThere: before there is any line, and the end is that of
// the container.
func TestWhoFollowsALogHearsAtOnceThatItIsThere(t *testing.T) {
	rt, resp, _ := followed(t)
	if resp.StatusCode != 200 {
		t.Fatalf("got %s", resp.Status)
	}
	if err := os.WriteFile(rt.path, []byte("2026-01-02T03:04:05Z stdout F one\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); line != "one\n" || err != nil {
		t.Errorf("got %q, %v", line, err)
	}
	close(rt.ended)
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("got %q, %v, want the end", rest, err)
	}
}

// TestALogThatIsBrokenOffIsNotAWholeOne: podd stops, and the container goes on.
func TestALogThatIsBrokenOffIsNotAWholeOne(t *testing.T) {
	_, resp, stop := followed(t)
	stop()
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err == nil {
		t.Errorf("got %q, %v, want an error", rest, err)
	}
}

// TestABodyThatDoesNotComeHoldsNoConnection: whatever the answer is, nobody waits for it.
func TestABodyThatDoesNotComeHoldsNoConnection(t *testing.T) {
	s, _ := start(t, nil)
	for listener, path := range map[string]string{"readonly": "/healthz", "healthz": "/nothing"} {
		for _, host := range []string{"localhost", "elsewhere.example.com"} {
			conn, err := net.Dial("tcp", s.Address(listener).String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 9\r\n\r\n", path, host); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute)) // what nobody bounds goes on for ever
			if text, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 4") {
				t.Errorf("%s of %s: got %q, %v, want an answer, and the end", path, host, text, err)
			}
		}
	}
}

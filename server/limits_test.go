package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// ask sends a request on an open connection and reads the answer.
func ask(c net.Conn, path string) error {
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("got %s", resp.Status)
	}
	return err
}

// TestAPortKeepsABoundedNumberOfConnections: 5,000 kept-alive ones cost 110 MB.
// The idlest go, so that one more is always answered.
func TestAPortKeepsABoundedNumberOfConnections(t *testing.T) {
	s, _ := start(t, nil)
	for _, port := range []string{"readonly", "healthz"} {
		var all []net.Conn
		for i := range 4 * maxConnections {
			c, err := net.Dial("tcp", s.Address(port).String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if err := ask(c, "/healthz"); err != nil {
				t.Fatalf("%s: connection %d: %v", port, i, err)
			}
			all = append(all, c)
		}
		open := 0
		for _, c := range all {
			if ask(c, "/healthz") == nil {
				open++
			}
		}
		if open == 0 || open > maxConnections {
			t.Errorf("%s: got %d connections still open, want at most %d", port, open, maxConnections)
		}
		// Which of the others went is not certain: one whose goroutine the machine
		// holds up after its answer is not idle yet.
		if err := ask(all[len(all)-1], "/healthz"); err != nil {
			t.Errorf("%s: the newest connection: got %v, want it kept", port, err)
		}
	}
}

// TestSilentConnectionsKeepNobodyOut: a connection that says nothing is idle.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	s, _ := start(t, nil)
	for range 2 * maxConnections {
		c, err := net.Dial("tcp", s.Address("readonly").String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	if code, body := get(t, s, "readonly", "/healthz"); code != 200 {
		t.Errorf("got %d %s, want an answer", code, body)
	}
}

// counted tells how many lists are made at the same time.
type counted struct {
	*node
	entered chan struct{}
	leave   chan struct{}
}

func (c *counted) Pods() []*v1.Pod {
	c.entered <- struct{}{}
	<-c.leave
	return c.node.Pods()
}

// TestFewListsOfPodsAreAnsweredAtATime: each is as large as all manifests.
func TestFewListsOfPodsAreAnsweredAtATime(t *testing.T) {
	c := &counted{entered: make(chan struct{}, 100), leave: make(chan struct{})}
	s, _ := start(t, func(cfg *Config) {
		c.node = cfg.Pods.(*node)
		cfg.Pods = c
	})
	const asked = 3 * maxLists
	codes := make(chan int, asked)
	for i := range asked {
		go func() {
			code, _ := get(t, s, "readonly", []string{"/pods", "/runningpods/"}[i%2])
			codes <- code
		}()
	}
	for range maxLists {
		<-c.entered
	}
	// What does not wait for its turn shows while others wait.
	if code, _ := get(t, s, "readonly", "/healthz"); code != 200 {
		t.Errorf("healthz: got %d", code)
	}
	if n := len(c.entered); n > 0 {
		t.Errorf("got %d lists more than %d at the same time", n, maxLists)
	}
	close(c.leave)
	if code, _ := get(t, s, "socket", "/pods"); code != 200 {
		t.Errorf("socket: got %d", code)
	}
	for range asked {
		if code := <-codes; code != 200 {
			t.Errorf("got %d, want each answered in its turn", code)
		}
	}
}

// TestABodyIsRejectedBeforeThePathIsRouted: ServeMux answers an unclean path
// itself, past the middleware of any group, and would then wait for the body.
func TestABodyIsRejectedBeforeThePathIsRouted(t *testing.T) {
	s, _ := start(t, nil)
	for _, listener := range []string{"socket", "readonly", "healthz"} {
		for _, path := range []string{"//pods", "/nothing", "/healthz/../pods"} {
			resp, err := clientOf(s, listener).Post("http://localhost"+path, "", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
				t.Errorf("%s on %s: got %d, closed %v, want 413 and the end of the connection", path, listener, resp.StatusCode, resp.Close)
			}
		}
	}
}

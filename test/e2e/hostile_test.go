package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// hostile is a server on loopback that does one thing with each connection,
// until the test's end.
type hostile struct {
	port        int
	asked, open atomic.Int32
}

func (e *env) hostile(do func(c net.Conn)) *hostile {
	e.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.Fatal(err)
	}
	h := &hostile{port: l.Addr().(*net.TCPAddr).Port}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	e.Cleanup(func() { stop(); _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.asked.Add(1)
			h.open.Add(1)
			all.Go(func() {
				defer h.open.Add(-1)
				end := context.AfterFunc(ctx, func() { _ = c.Close() })
				defer end()
				do(c)
				_ = c.Close()
			})
		}
	})
	return h
}

// TestHostileProbeTargetsHoldUpNobody: servers that hang, flood, drip or speak
// something else, and commands that flood or cannot be ended. All of it costs its
// own pod its readiness; podd's memory, connections and log stay where they were,
// and a pod beside them is probed in time.
func TestHostileProbeTargetsHoldUpNobody(t *testing.T) {
	e := begin(t)
	e.write("first.yaml", e.resting("first"))
	e.ready("first")
	forever := func(c net.Conn, text string, pause time.Duration) {
		for {
			if _, err := c.Write([]byte(text)); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}
	request := func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }
	const head = "HTTP/1.1 200 OK\r\n"
	block := strings.Repeat("x", 64<<10)
	servers := map[string]*hostile{
		"hangs": e.hostile(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), // until podd gives up
		"flood": e.hostile(func(c net.Conn) { request(c); forever(c, block, 0) }),
		"heads": e.hostile(func(c net.Conn) { request(c); forever(c, head+"X-A: "+block+"\r\n", 0) }),
		"drips": e.hostile(func(c net.Conn) {
			request(c)
			_, _ = c.Write([]byte(head + "Content-Length: 9999\r\n\r\n"))
			forever(c, "x", 100*time.Millisecond)
		}),
		"closes": e.hostile(func(c net.Conn) { request(c) }),
	}
	rss, log, began := e.memory(), e.logSize(), time.Now()
	how := "periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 1}"
	for name, s := range servers {
		e.write(name+".yaml", withFields(e.podOf(name, "${REST}"), fmt.Sprintf("readinessProbe: {httpGet: {host: 127.0.0.1, port: %d}, %s", s.port, how)))
	}
	e.write("spew.yaml", withFields(e.podOf("spew", "${REST}"), `readinessProbe: {exec: {command: [/bin/sh, -c, "yes a flood of words; false"]}, `+how))
	e.write("deaf.yaml", withFields(e.podOf("deaf", "${REST}"), `readinessProbe: {exec: {command: [/bin/sh, -c, "trap '' TERM INT HUP; while :; do sleep 1; done"]}, `+how))
	bad := []string{"hangs", "flood", "heads", "drips", "closes", "spew", "deaf"}
	for _, name := range bad {
		said := "Readiness probe failed"
		if name == "drips" {
			said = "Readiness probe errored" // as upstream: an answer that never ends is none
		}
		e.event(name, "Unhealthy", said)
	}
	at := time.Now()
	e.write("good.yaml", withFields(e.podOf("good", "${REST}"), `readinessProbe: {exec: {command: [/bin/true]}, `+replaced(e, how, "timeoutSeconds: 1", "timeoutSeconds: 5")))
	e.ready("good")
	beside := time.Since(at)
	time.Sleep(max(0, 8*time.Second-time.Since(began)))
	for name, s := range servers {
		e.restarted(name, 0)
		if open, asked := s.open.Load(), s.asked.Load(); open > 2 || asked < 2 {
			t.Errorf("%s: %d of %d connections are open, want only the probe's that runs", name, open, asked)
		}
	}
	grown, wrote := e.memory()-rss, e.logSize()-log
	t.Logf("in %v: %d MiB more, %d bytes of log; a pod beside them ready after %v", time.Since(began).Round(time.Second), grown>>20, wrote, beside)
	if grown > 48<<20 {
		t.Errorf("podd has %d MiB more than before", grown>>20)
	}
	if wrote > 40_000 {
		t.Errorf("podd wrote %d bytes:\n%s", wrote, e.podd.LogTail(4000))
	}
	e.atMost("beside them a pod's way to ready", beside, 20)
	for _, name := range bad {
		for _, event := range e.eventsOf(name) {
			if len(event) > 12<<10 { // 10 KiB of a command's output, and some words
				t.Errorf("%s: an event of %d bytes: %.100s", name, len(event), event)
			}
		}
	}
}

// memory is podd's resident set in bytes.
func (e *env) memory() int {
	e.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(e.podd.Pid()), "status"))
	if err != nil {
		e.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kb int
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		e.Fatal(err)
	}
	return kb << 10
}

// TestAHookWhoseServerNeverAnswersIsCutOffWithTheGracePeriod: nor one whose
// answer never ends.
func TestAHookWhoseServerNeverAnswersIsCutOffWithTheGracePeriod(t *testing.T) {
	e := begin(t)
	hangs := e.hostile(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	endless := e.hostile(func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		for block := []byte(strings.Repeat("x", 64<<10)); ; {
			if _, err := c.Write(append([]byte("HTTP/1.1 200 OK\r\n\r\n"), block...)); err != nil {
				return
			}
		}
	})
	hook := func(name, when string, port int) {
		e.write(name+".yaml", e.told(name, "terminationGracePeriodSeconds: 2", nil, []string{
			fmt.Sprintf("name: main\nlifecycle: {%s: {httpGet: {host: 127.0.0.1, port: %d}}}\n", when, port) + says(name, name+"-ends", "0"),
		}))
	}
	hook("stop", "preStop", hangs.port)
	hook("start", "postStart", hangs.port)
	hook("flood", "preStop", endless.port)
	e.ready("stop")
	e.ready("flood")
	e.waitPod("start", "waiting for its hook", func(p *v1.Pod) error {
		c := p.Status.ContainerStatuses
		if hangs.asked.Load() == 0 || len(c) != 1 || c[0].State.Waiting == nil || !strings.Contains(c[0].State.Waiting.Message, "postStart hook") {
			return errors.New(describe(p))
		}
		return nil
	})
	// Before that, the signal may find what the runtime executes the command with.
	e.eventually("their commands run", func(context.Context) error {
		return e.hasSaid("stop\n", "start\n", "flood\n")
	})
	rss := e.memory()
	e.remove("stop.yaml", "start.yaml", "flood.yaml")
	e.eventually("they are gone", func(ctx context.Context) error {
		pods, err := e.podd.Pods(ctx)
		if err == nil && len(pods) > 0 {
			err = errors.New(describe(&pods[0]))
		}
		return err
	})
	e.eventually("nobody asks any more", func(context.Context) error {
		if n := hangs.open.Load() + endless.open.Load(); n > 0 {
			return fmt.Errorf("%d connections are open", n)
		}
		return nil
	})
	if grown := e.memory() - rss; grown > 32<<20 {
		t.Errorf("podd has %d MiB more than before", grown>>20)
	}
	if err := e.hasSaid("stop-ends\n", "start-ends\n", "flood-ends\n"); err != nil {
		t.Errorf("not all were told to end in time: %v", err)
	}
}

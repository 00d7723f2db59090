package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/cri/critest"
)

// TestAPodStartsInSoManyCalls holds what a pod asks of the runtime, so that it
// does not grow unseen: each call is a fraction of a millisecond of podd's and of
// the runtime's, and those before the last start are the pod's waiting time.
func TestAPodStartsInSoManyCalls(t *testing.T) {
	d := newDaemon(t, 0)
	for i := range 3 {
		d.srv.Script(fmt.Sprintf("init-%d", i), critest.Script{ExitAfter: 20 * time.Millisecond})
	}
	d.start()
	d.await("podd answers", 20*time.Second, func() bool { return d.pods() != nil })
	d.write("warm")
	d.await("the first pod runs", 10*time.Second, func() bool { return d.running() == 1 })
	d.settle(3 * time.Second) // the relister looks once more when its stream is surely open

	image := "image: " + testImage
	for i, c := range []struct {
		name, spec string
		most       int // calls; a look more than usual is 2
		makes      int // containers
	}{
		{"one", "containers: [{name: one, " + image + "}]", 12 + 2, 1},
		{"two", "containers: [{name: two-a, " + image + "}, {name: two-b, " + image + "}]", 16 + 2, 2},
		{"init", "initContainers: [{name: init-0, " + image + "}, {name: init-1, " + image + "}, {name: init-2, " + image +
			"}]\n  containers: [{name: init, " + image + "}]", 39 + 4, 4},
	} {
		d.srv.ResetCalls()
		d.put(c.name, "apiVersion: v1\nkind: Pod\nmetadata: {name: "+c.name+"}\nspec:\n  dnsPolicy: Default\n  "+c.spec+"\n")
		d.await(c.name+" runs", 10*time.Second, func() bool { return d.running() == i+2 })
		d.settle(500 * time.Millisecond)
		got := map[string]int{}
		for _, call := range d.srv.Calls() {
			got[call.Method]++
		}
		t.Logf("%s: %d calls, %v", c.name, d.srv.Count(""), got)
		if got["RunPodSandbox"] != 1 || got["CreateContainer"] != c.makes || got["StartContainer"] != c.makes || got["ImageStatus"] > c.makes {
			t.Errorf("%s: want one sandbox, and one create, one start and one look at the image for each of %d containers", c.name, c.makes)
		}
		if n := d.srv.Count(""); n > c.most {
			t.Errorf("%s: %d calls, want %d at most", c.name, n, c.most)
		}
	}
}

// TestFiveHundredProbesASecondCostPoddLessThanATenthOfACore has fifty pods of ten
// containers, each asked once a second whether it is ready, by the real binary.
func TestFiveHundredProbesASecondCostPoddLessThanATenthOfACore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	const pods, containers = 50, 10
	var asked atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprintln(w, "ok")
	}))
	t.Cleanup(target.Close)
	probe := fmt.Sprintf("{periodSeconds: 1, httpGet: {host: 127.0.0.1, port: %d, path: /healthz}}", target.Listener.Addr().(*net.TCPAddr).Port)
	d := newDaemon(t, 0)
	for i := range pods {
		var list strings.Builder
		for j := range containers {
			fmt.Fprintf(&list, "  - {name: c%d, image: %q, readinessProbe: %s}\n", j, testImage, probe)
		}
		name := fmt.Sprintf("p%d", i)
		d.put(name, "apiVersion: v1\nkind: Pod\nmetadata: {name: "+name+"}\nspec:\n  dnsPolicy: Default\n  containers:\n"+list.String())
	}
	d.start()
	d.await("all pods are ready", 2*time.Minute, func() bool { return d.ready() == pods })
	d.settle(3 * time.Second)
	share, rate := 1.0, 0.0
	for try := 0; try < 3 && share > 0.1; try++ { // a busy machine makes everything dearer
		const window = 5 * time.Second
		runs, before := asked.Load(), d.cpu()
		time.Sleep(window)
		share, rate = float64(d.cpu()-before)/float64(window), float64(asked.Load()-runs)/window.Seconds()
		t.Logf("%.0f probes a second: %.3f of a core", rate, share)
	}
	if rate < 0.9*pods*containers {
		t.Errorf("got %.0f probes a second, want %d", rate, pods*containers)
	}
	if share > 0.1 {
		t.Errorf("got %.3f of a core, want less than a tenth", share)
	}
}

// ready is how many pods are.
func (d *daemon) ready() (n int) {
	for _, p := range d.pods() {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				n++
			}
		}
	}
	return n
}

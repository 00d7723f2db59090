package main

import (
	"fmt"
	"testing"
	"time"

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

package cri

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"podd/internal/pod"
)

// knows returns what a roster knows of a pod, "?" where it must be listed.
func knows(r *roster, uid pod.UID) string {
	sandboxes, containers, ok := r.known(uid)
	if !ok {
		return "?"
	}
	ids := append(sandboxes, slices.Collect(maps.Keys(containers))...)
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// settledRoster has an open stream and has listed everything: nothing is there.
func settledRoster() *roster {
	r := newRoster()
	r.streamOpened()
	r.markStreamReady(0)
	r.recordFullList(r.begin(), nil)
	return r
}

func TestAListDoesNotForgetWhatWasCreatedSinceItBegan(t *testing.T) {
	r := settledRoster()
	r.createdSandbox("web", "box")
	old, oldAll := r.begin(), r.begin()
	r.createdContainer("web", "app", "box")
	r.createdSandbox("new", "newbox")
	r.recordPodList("web", old, podList{sandboxes: []string{"box"}})
	if got := knows(r, "web"); got != "app box" {
		t.Errorf("a list of the pod: got %q, want app box", got)
	}
	r.recordFullList(oldAll, map[pod.UID]podList{"web": {sandboxes: []string{"box"}}})
	if got := knows(r, "web"); got != "app box" {
		t.Errorf("a list of everything: got %q, want app box", got)
	}
	if got := knows(r, "new"); got != "newbox" {
		t.Errorf("a pod that the list has not: got %q, want newbox", got)
	}
}

func TestAListDoesNotBringBackWhatWasRemovedSinceItBegan(t *testing.T) {
	r := settledRoster()
	r.createdSandbox("web", "box")
	r.createdContainer("web", "app", "box")
	number := r.begin()
	r.removedSandbox("box")
	r.recordFullList(number, map[pod.UID]podList{"web": {sandboxes: []string{"box"}, containers: map[string]string{"app": "box"}}})
	if got := knows(r, "web"); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
	for _, id := range []string{"box", "app"} { // late events
		if uid := r.event("", id, false); uid != "web" {
			t.Errorf("an event about the removed %s: got pod %q, want web", id, uid)
		}
	}
	if got := knows(r, "web"); got != "" {
		t.Errorf("after late events: got %q, want nothing", got)
	}
	if len(r.pods) != 0 {
		t.Errorf("got %d pods, want none left", len(r.pods))
	}
}

func TestWhatRaisesADoubtAndWhatSettlesIt(t *testing.T) {
	r := newRoster()
	steps := []struct {
		what string
		do   func()
		want string
	}{
		{"no stream", func() { r.recordFullList(r.begin(), nil) }, "?"},
		{"a stream that may not be open yet", func() { r.streamOpened(); r.recordFullList(r.begin(), nil) }, "?"},
		{"an open stream", func() { r.markStreamReady(0) }, "?"},
		{"a list of everything", func() { r.recordFullList(r.begin(), nil) }, ""},
		{"podd creates a sandbox", func() { r.createdSandbox("web", "box") }, "box"},
		{"its event", func() { r.event("web", "box", false) }, "box"},
		{"an event about something else", func() { r.event("web", "other", false) }, "?"},
		{"a list that began before it", func() {}, "?"},
		{"a list", func() { r.recordPodList("web", r.begin(), podList{sandboxes: []string{"box"}}) }, "box"},
		{"an event that comes before the answer", func() { r.event("web", "app", false); r.createdContainer("web", "app", "box") }, "app box"},
		{"a create that fails", func() { r.createFailed("web") }, "?"},
		{"a list of it", func() {
			r.recordPodList("web", r.begin(), podList{sandboxes: []string{"box"}, containers: map[string]string{"app": "box"}})
		}, "app box"},
		{"a removal by somebody else", func() { r.event("", "app", true) }, "box"},
		{"another agent's part", func() {
			r.recordPodList("web", r.begin(), podList{sandboxes: []string{"box"}, containers: map[string]string{"theirs": "box"}, shared: true})
		}, "?"},
		{"its end", func() { r.recordPodList("web", r.begin(), podList{sandboxes: []string{"box"}}) }, "box"},
		{"another stream", func() { r.streamOpened(); r.reliableSince = 0; r.markStreamReady(0) }, "?"},
	}
	for _, s := range steps {
		s.do()
		if got := knows(r, "web"); got != s.want {
			t.Fatalf("%s: got %q, want %q", s.what, got, s.want)
		}
	}
}

func TestWhatIsRememberedOfRemovalsIsBounded(t *testing.T) {
	r := settledRoster()
	for i := range 3 * maxRemovedIDs {
		id := strings.Repeat("x", i%7) + string(rune('0'+i%10)) + strings.Repeat("y", i/1000)
		r.createdSandbox("web", id+"-"+string(rune(0x4e00+i)))
		r.removedSandbox(id + "-" + string(rune(0x4e00+i)))
	}
	if len(r.removed) > maxRemovedIDs || len(r.oldest) > maxRemovedIDs || len(r.owners) != 0 || len(r.pods) != 0 {
		t.Errorf("got %d removals in an order of %d, %d owners, %d pods; want at most %d removals and nothing else", len(r.removed), len(r.oldest), len(r.owners), len(r.pods), maxRemovedIDs)
	}
}

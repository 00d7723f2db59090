package node

import (
	"slices"
	"testing"
)

func TestTheNodesAddressesFollowTheMachines(t *testing.T) {
	found := []string{"192.0.2.1"}
	a := newNodeAddresses(func() []string { return found })
	for _, step := range []struct {
		what    string
		found   []string
		changed bool
		want    []string
	}{
		{"the same", []string{"192.0.2.1"}, false, []string{"192.0.2.1"}},
		{"a cable that is out", nil, false, []string{"192.0.2.1"}},
		{"another one", []string{"192.0.2.2"}, true, []string{"192.0.2.2"}},
		{"again", []string{"192.0.2.2"}, false, []string{"192.0.2.2"}},
		{"a second family", []string{"192.0.2.2", "2001:db8::2"}, true, []string{"192.0.2.2", "2001:db8::2"}},
	} {
		found = step.found
		before := a.now()
		had := slices.Clone(before)
		if changed := a.look(); changed != step.changed || !slices.Equal(a.now(), step.want) {
			t.Errorf("%s: got %t, %q, want %t, %q", step.what, changed, a.now(), step.changed, step.want)
		}
		if !slices.Equal(before, had) {
			t.Errorf("%s: what somebody reads was changed to %q", step.what, before)
		}
	}
}

package lastgood

import "testing"

// testdata/earlier has what podd 3e2131e has written: podd is upgraded while a manifest is broken.
func TestAVersionOfAnEarlierPoddIsRead(t *testing.T) {
	if got := New("testdata/earlier", "").Load("/etc/podd/manifests/web.yaml"); string(got) != "apiVersion: v1\nkind: Pod\n" {
		t.Errorf("got %q", got)
	}
}

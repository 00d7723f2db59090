package records

import "testing"

// testdata/earlier has what podd 3e2131e has written, in upstream's format.
func TestRecordsOfAnEarlierPoddAreRead(t *testing.T) {
	f := newFiles("testdata/earlier")
	r, err := f.pulledRecord("sha256:abc")
	if err != nil || r == nil || !r.CredentialMapping["registry.example.com/web"].NodePodsAccessible {
		t.Errorf("got %+v, %v", r, err)
	}
	if is, err := f.hasIntent("registry.example.com/db:1"); err != nil || !is {
		t.Errorf("an interrupted pull: got %t, %v", is, err)
	}
}

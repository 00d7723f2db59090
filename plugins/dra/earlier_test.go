package dra

import "testing"

// testdata/earlier has what podd 3e2131e has written: podd is upgraded while pods run.
func TestClaimsOfAnEarlierPoddAreRead(t *testing.T) {
	s, err := newCheckpoint("testdata/earlier/dra.json").Read()
	if err != nil || len(s.Claims) != 1 {
		t.Fatalf("got %+v, %v", s, err)
	}
	c := s.Claims[0]
	if c.Namespace != "shop" || c.Name != "gpu" || c.UID != "k1" || c.Allocation != "a1" || len(c.Pods) != 1 || c.Pods[0] != "u1" || len(c.Drivers["gpu.example.com"]) != 1 || c.Drivers["gpu.example.com"][0].Name != "d0" {
		t.Errorf("got %+v", c)
	}
}

package devices

import (
	"slices"
	"testing"
)

// testdata/earlier has what podd 3e2131e has written: podd is upgraded while pods run.
func TestDevicesOfAnEarlierPoddAreRead(t *testing.T) {
	s, err := newCheckpoint("testdata/earlier/devices.json").Read()
	if err != nil || !slices.Equal(s.Resources, []string{"example.com/gpu"}) {
		t.Fatalf("got %+v, %v", s, err)
	}
	pods, err := podDevicesOf(s)
	if err != nil {
		t.Fatal(err)
	}
	g := pods["u1"].containers["web"]["example.com/gpu"]
	if !slices.Equal(g.ids, []string{"g0"}) || g.response.GetEnvs()["GPU"] != "0" || !slices.Equal(g.numaNodes["g0"], []int64{0}) {
		t.Errorf("got %+v", g)
	}
}

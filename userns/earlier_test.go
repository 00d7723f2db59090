package userns

import "testing"

// testdata/earlier has what podd 3e2131e has written: podd is upgraded while pods run.
func TestARangeOfAnEarlierPoddIsRead(t *testing.T) {
	if got, err := readRecord("testdata/earlier/userns"); err != nil || got != (Range{First: 131072, Length: 65536}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

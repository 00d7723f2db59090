package archive

import (
	"slices"
	"testing"
)

// testdata/earlier has what podd 3e2131e has written: podd is upgraded while pods run.
func TestImportsOfAnEarlierPoddAreRead(t *testing.T) {
	r, ok := loadState("testdata/earlier/imports.json").get("/etc/hostname")
	if !ok || r.Stamp != (fileStamp{12, 34}) || r.Digest != "abc" || !slices.Equal(r.Refs, []string{"localhost/podd/web:1"}) {
		t.Errorf("got %+v, %t", r, ok)
	}
}

package objects

import (
	"log/slog"
	"testing"

	"podd/objects/claims"
)

// testdata/earlier has what podd 3e2131e has written: podd is upgraded while pods run.
func TestBindingsOfAnEarlierPoddAreRead(t *testing.T) {
	got := loadClaims(Config{BindingsFile: "testdata/earlier/volume-bindings.json", Log: slog.New(slog.DiscardHandler)})
	if want := (claims.Ref{Key: claims.Key{Namespace: "shop", Name: "data"}}); got.bound["pv"] != want || got.holders["pv"] != "u1" {
		t.Errorf("pv: got %+v, held by %s", got.bound["pv"], got.holders["pv"])
	}
	if want := (claims.Ref{Key: claims.Key{Namespace: "shop", Name: "web-scratch"}, Owner: "u2"}); got.bound["scratch"] != want {
		t.Errorf("scratch: got %+v", got.bound["scratch"])
	}
	if got.remoteHolders["cluster-pv"] != "u3" || len(got.fileProblems) > 0 {
		t.Errorf("got %+v", got)
	}
}

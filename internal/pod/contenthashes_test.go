package pod

import (
	"fmt"
	"reflect"
	"testing"
)

func TestContentsAreReadBackAsTheyWereWritten(t *testing.T) {
	settings := ObjectKey{Kind: KindConfigMap, Namespace: "shop", Name: "settings.v1"}
	keys := ObjectKey{Kind: KindSecret, Namespace: "shop", Name: "keys"}
	c := ContentHashes{Epoch: "ab12", ByObject: map[ObjectKey]uint64{settings: 1, keys: 1<<64 - 1}}
	const want = "ab12 ConfigMap/settings.v1=1 Secret/keys=ffffffffffffffff"
	if got := c.Text(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := ParseContentHashes("shop", want); !reflect.DeepEqual(got, c) {
		t.Errorf("got %v, want %v", got, c)
	}
}

func TestContentsThatNobodyCanCompareHaveNoText(t *testing.T) {
	of := map[ObjectKey]uint64{{Kind: KindSecret, Name: "keys"}: 1}
	many := map[ObjectKey]uint64{}
	for i := range 1000 {
		many[ObjectKey{Kind: KindSecret, Name: fmt.Sprint("keys", i)}] = 1
	}
	for what, c := range map[string]ContentHashes{"nothing": {}, "no epoch": {ByObject: of}, "no objects": {Epoch: "a"}, "too many": {Epoch: "a", ByObject: many}} {
		if got := c.Text(); got != "" {
			t.Errorf("%s: got %.40q", what, got)
		}
	}
}

func TestWhatCannotBeReadOfContentsIsLeftOut(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "a": 0, "a Secret/x": 0, "a Secret/x=": 0, "a Secret/x=zz": 0, "a Secret/=1": 0, "a Pod/x=1": 0, "a =1": 0,
		"a Secret/x=1 nonsense Secret/y=2": 2, "a Secret/x=fffffffffffffffff": 0,
	} {
		if got := ParseContentHashes("n", text); len(got.ByObject) != want {
			t.Errorf("%q: got %v, want %d objects", text, got, want)
		}
	}
}

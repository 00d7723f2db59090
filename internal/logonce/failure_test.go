package logonce

import (
	"errors"
	"testing"
)

func TestAFailureIsNewUntilItIsTheSameAsTheLast(t *testing.T) {
	var f Failure
	one, other := errors.New("one"), errors.New("other")
	for i, step := range []struct {
		err  error
		want bool
	}{{nil, false}, {one, true}, {errors.New("one"), false}, {other, true}, {one, true}, {nil, false}, {one, true}} {
		if got := f.IsNew(step.err); got != step.want {
			t.Errorf("step %d, %v: got %t", i, step.err, got)
		}
	}
	if !f.Recovered() || f.Recovered() || !f.IsNew(one) {
		t.Error("an end is told once, and the failure after it is new")
	}
}

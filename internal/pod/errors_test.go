package pod

import (
	"errors"
	"fmt"
	"testing"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

func TestOnlyAnswersThatAreStillToComeAreAwaited(t *testing.T) {
	other := errors.New("forbidden")
	token := fmt.Errorf("failed to fetch token: %w", ErrObjectPending)
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing is wrong":            {nil, false},
		"itself":                      {ErrObjectPending, true},
		"wrapped":                     {WithReason("FailedMount", token), true},
		"two of them, joined":         {WithReason("FailedMount", errors.Join(token, ErrObjectPending)), true},
		"two of them, an aggregate":   {utilerrors.NewAggregate([]error{token, ErrObjectPending}), true},
		"another":                     {other, false},
		"another beside it, joined":   {errors.Join(token, other), false},
		"another in an aggregate":     {fmt.Errorf("volume: %w", utilerrors.NewAggregate([]error{other, token})), false},
		"another of the same wording": {errors.New(ErrObjectPending.Error()), false},
	} {
		if got := IsObjectPending(c.err); got != c.want {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
	}
}

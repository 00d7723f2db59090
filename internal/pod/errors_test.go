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

func TestNothingIsKnownToBeWrongWhileTheApiserverIsAway(t *testing.T) {
	away := fmt.Errorf("configmap: %w", APIServerUnavailable(errors.New("connection refused")))
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing is wrong":               {nil, false},
		"itself":                         {ErrAPIServerUnavailable, true},
		"two of them":                    {WithReason("FailedMount", errors.Join(away, away)), true},
		"one that has not answered yet":  {errors.Join(away, ErrObjectPending), true},
		"another beside it, joined":      {errors.Join(away, ErrNotFound), false},
		"another beside it, aggregated":  {utilerrors.NewAggregate([]error{ErrNotFound, away}), false},
		"an answer from it":              {ErrNotFound, false},
		"another inside of two wrappers": {fmt.Errorf("volume: %w", errors.Join(errors.Join(away), errors.New("no such key"))), false},
	} {
		if got := IsAPIServerUnavailable(c.err); got != c.want {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
	}
}

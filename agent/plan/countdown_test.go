package plan_test

import (
	"testing"
	"time"

	"podd/agent/plan"
)

func TestCountdownToTheKill(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		grace, after time.Duration // at noon, and when the signal is sent
		hook         bool
		signal       time.Duration
	}{
		"the whole of it":           {30 * s, 0, true, 30 * s},
		"what the hook left":        {30 * s, 10 * s, true, 20 * s},
		"never less than the least": {30 * s, 29 * s, true, 2 * s},
		"nor when it is over":       {30 * s, 45 * s, true, 2 * s},
		"nor when it was short":     {s, 0, true, 2 * s},
		"none stays none":           {0, 0, false, 0},
		"less than none is none":    {-s, 5 * s, false, 0},
	} {
		d := plan.NewCountdown(c.grace, noon)
		if got := d.Signal(noon.Add(c.after)); got != c.signal || d.RunsHook() != c.hook || !d.Until.Equal(noon.Add(c.grace)) {
			t.Errorf("%s: got %v, hook %v, until %v", name, got, d.RunsHook(), d.Until)
		}
	}
}

func TestACountdownIsOnlyShortened(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		first, after, second time.Duration
		news                 bool
		signal               time.Duration // then
	}{
		"shorter":                   {30 * s, 10 * s, 5 * s, true, 5 * s},
		"longer":                    {30 * s, 10 * s, 30 * s, false, 20 * s},
		"to the same end":           {30 * s, 10 * s, 20 * s, false, 20 * s},
		"to none":                   {30 * s, 10 * s, 0, true, 0},
		"to none when it is over":   {30 * s, 40 * s, 0, true, 0},
		"none once more":            {0, 10 * s, 0, false, 0},
		"none is not lengthened":    {0, 10 * s, 5 * s, false, 0},
		"an end in the past stays":  {5 * s, 10 * s, s, false, 2 * s},
		"less than none, from some": {5 * s, 0, -s, true, 0},
	} {
		now := noon.Add(c.after)
		next, news := plan.NewCountdown(c.first, noon).Shortened(c.second, now)
		if got := next.Signal(now); news != c.news || got != c.signal {
			t.Errorf("%s: got %v (news %v), want %v (%v)", name, got, news, c.signal, c.news)
		}
	}
}

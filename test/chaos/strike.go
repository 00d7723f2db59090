package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// strikeAll lets faults strike, and returns how many did.
func (w *world) strikeAll(ctx context.Context) (int, error) {
	for step := 1; step <= w.o.faults; step++ {
		rng := choices(w.o.seed, uint64(step))
		if err := w.strike(ctx, step, rng); err != nil {
			return step, err
		}
		if step%w.o.settle == 0 || step == w.o.faults {
			began := time.Now()
			if err := w.settle(ctx); err != nil {
				return step, err
			}
			w.say(step, "at rest after %v, with %d pods", time.Since(began).Round(time.Millisecond), len(w.desired))
		}
	}
	return w.o.faults, nil
}

// choices are those of a step; they do not depend on how many those before it made.
func choices(seed, step uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, step)) }

func (w *world) strike(ctx context.Context, step int, rng *rand.Rand) error {
	for range rng.IntN(3) {
		if err := w.change(step, rng); err != nil {
			return err
		}
	}
	time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond)
	all := faults
	if w.member != nil {
		all = slices.Concat(faults, memberFaults)
	}
	f := draw(rng, all)
	meanwhile := func() error { return nil }
	if rng.IntN(3) == 0 {
		meanwhile = func() error { return w.change(step, rng) }
	}
	what, err := f.strike(ctx, w, rng, meanwhile)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	w.say(step, "%s %s", f.name, what)
	time.Sleep(time.Duration(rng.IntN(800)) * time.Millisecond)
	if err := ctx.Err(); err != nil {
		return err
	}
	if gone, how := w.podd.Ended(); gone {
		// A supervisor starts it again; but it must have had a reason.
		w.say(step, "podd ended by itself: %s", how)
		if err := w.podd.Start(); err != nil {
			return err
		}
	}
	return w.never(ctx)
}

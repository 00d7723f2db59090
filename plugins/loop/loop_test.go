package loop

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTasksRunUntilTheLoopEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := New()
		var ended atomic.Int32
		var over atomic.Bool
		task := func(ctx context.Context) { <-ctx.Done(); ended.Add(1) }
		l.Go(task) // before Run
		go func() {
			l.Run(ctx, func(time.Time) time.Time { return time.Time{} })
			over.Store(true)
		}()
		synctest.Wait()
		if !l.Idle() || ended.Load() > 0 {
			t.Errorf("idle is %v, and %d tasks have ended", l.Idle(), ended.Load())
		}
		l.Go(func(ctx context.Context) { time.Sleep(time.Hour); task(ctx) })
		synctest.Wait()
		cancel()
		synctest.Wait()
		if ended.Load() != 1 || over.Load() {
			t.Errorf("%d tasks have ended, and the loop's end is %v, want one, and that it waits for the other", ended.Load(), over.Load())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if ended.Load() != 2 || !over.Load() {
			t.Errorf("%d tasks have ended, and the loop's end is %v", ended.Load(), over.Load())
		}
	})
}

func TestExpireIsCalledWhenSomethingIsDueAndWhenItIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var called []time.Duration
		l := New()
		var run sync.WaitGroup
		run.Go(func() {
			l.Run(ctx, func(now time.Time) time.Time {
				called = append(called, now.Sub(began))
				d := Deadlines{Now: now}
				if !d.Due(began) || d.Due(began.Add(time.Hour)) != (len(called) >= 3) {
					t.Errorf("call %d at %v: what is due is wrong", len(called), now.Sub(began))
				}
				d.Due(began.Add(2 * time.Hour))
				d.Due(began.Add(90 * time.Minute))
				if len(called) == 4 {
					return time.Time{}
				}
				return d.Next
			})
		})
		time.Sleep(time.Minute)
		l.Wake()
		time.Sleep(10 * time.Hour)
		cancel()
		run.Wait()
		if want := []time.Duration{0, time.Minute, time.Hour, 90 * time.Minute}; !slices.Equal(called, want) {
			t.Errorf("called at %v, want %v", called, want)
		}
	})
}

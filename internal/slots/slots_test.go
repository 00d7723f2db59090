package slots_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"podd/internal/slots"
)

func TestSlotsAreGivenInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slots.New(1, 0, 0)
		leave, err := s.Acquire(t.Context(), slots.Rest{})
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		done := make(chan struct{})
		for i := range 3 {
			go func() {
				leave, err := s.Acquire(t.Context(), slots.Rest{})
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				leave()
				done <- struct{}{}
			}()
			synctest.Wait()
		}
		if n := s.Waiting(); n != 3 || len(order) != 0 {
			t.Fatalf("got %d waiting and %v through, want 3 and none", n, order)
		}
		leave()
		leave() // twice is once
		for range 3 {
			<-done
		}
		if order[0] != 0 || order[1] != 1 || order[2] != 2 {
			t.Errorf("got %v, want the order of arrival", order)
		}
		if n := s.Waiting(); n != 0 {
			t.Errorf("got %d waiting, want none", n)
		}
	})
}

func TestWhoHangsDelaysNobodyForLongAndNoMoreThanTheBoundHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slots.New(2, 3, 10*time.Second)
		began := time.Now()
		var inFlight []func()
		enter := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			leave, err := s.Acquire(ctx, slots.Rest{})
			if err == nil {
				inFlight = append(inFlight, leave)
			}
			return err
		}
		for i := range 5 {
			if err := enter(time.Minute); err != nil {
				t.Fatalf("the holder %d: got %v, want a slot", i, err)
			}
		}
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("five that hang: the last one got its slot after %v, want 20s", took)
		}
		if err := enter(time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with 2 slots and 3 that hang: got %v, want no slot", err)
		}
		// One that gave up its slot ends: another may, and its slot is free. It tries once in
		// its timeout; a deadline at that very instant could come first.
		inFlight[0]()
		if err := enter(10*time.Second + 1); err != nil {
			t.Errorf("after one that hung has ended: got %v, want a slot", err)
		}
		for _, leave := range inFlight {
			leave()
			leave()
		}
		for range 2 {
			if err := enter(0 * time.Second); err == nil {
				t.Error("an ended context got a slot")
			}
		}
		for range 2 {
			if err := enter(time.Second); err != nil {
				t.Errorf("after all have left: got %v, want a slot", err)
			}
		}
	})
}

func TestWaitingEndsWithTheContextsCause(t *testing.T) {
	s := slots.New(1, 0, 0)
	if _, err := s.Acquire(t.Context(), slots.Rest{}); err != nil {
		t.Fatal(err)
	}
	why := errors.New("the pod is being stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := s.Acquire(ctx, slots.Rest{}); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	if n := s.Waiting(); n != 0 {
		t.Errorf("got %d waiting, want none", n)
	}
}

// TestWhoRestsHasItsSlotBackAtOnce: others have it meanwhile, and nobody enters after the
// rest until there is a slot to spare.
func TestWhoRestsHasItsSlotBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slots.New(1, 10, time.Minute)
		began := time.Now()
		enter := func(rest slots.Rest) (leave func(), after time.Duration) {
			leave, err := s.Acquire(t.Context(), rest)
			if err != nil {
				t.Fatal(err)
			}
			return leave, time.Since(began)
		}
		first, _ := enter(slots.Rest{From: time.Second, To: 30 * time.Second})
		second, after := enter(slots.Rest{})
		if after != time.Second {
			t.Errorf("the second entered after %v, want 1s: the first rests", after)
		}
		time.Sleep(30 * time.Second) // the first is at work again, beside the second
		second()
		entered := make(chan time.Duration)
		go func() {
			leave, after := enter(slots.Rest{})
			entered <- after
			leave()
		}()
		synctest.Wait()
		if n := s.Waiting(); n != 1 {
			t.Errorf("got %d waiting, want 1: the first is at work", n)
		}
		time.Sleep(4 * time.Second)
		first()
		if after := <-entered; after != 35*time.Second {
			t.Errorf("the third entered after %v, want 35s, when the first left", after)
		}
	})
}

// TestARestThatIsNoRest: one that would be over before it begins, and one of a holder that
// leaves during it.
func TestARestThatIsNoRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slots.New(1, 10, time.Minute)
		leave, err := s.Acquire(t.Context(), slots.Rest{From: time.Second, To: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx, slots.Rest{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want no slot within the patience", err)
		}
		leave()
		leave, err = s.Acquire(t.Context(), slots.Rest{From: time.Second, To: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		leave()
		time.Sleep(2 * time.Hour)
		for range 2 {
			leave, err := s.Acquire(t.Context(), slots.Rest{})
			if err != nil {
				t.Fatal(err)
			}
			leave()
		}
	})
}

package keylock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestALockIsHeldByOneAndWaitedForAsLongAsTheContextLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Locks[string]
		unlock, err := k.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := k.Lock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := k.Lock(impatient, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.AfterFunc(time.Minute, unlock)
		began := time.Now()
		unlock, err = k.Lock(t.Context(), "a")
		if err != nil || time.Since(began) != time.Minute {
			t.Errorf("got it after %v, %v", time.Since(began), err)
		}
		unlock()
		synctest.Wait() // the first unlock may still have to leave
		if k.Len() > 0 {
			t.Errorf("left behind: %v", k.locks)
		}
	})
}

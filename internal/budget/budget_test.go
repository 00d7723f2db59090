package budget_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"podd/internal/budget"
)

// crash restarts so many containers each as soon as its place in the budget allows, for
// a while, and returns how often they were restarted.
func crash(b *budget.Budget, containers int, every, ordinary, during time.Duration) int {
	next := make([]time.Time, containers)
	restarts := 0
	for began := time.Now(); time.Since(began) < during; time.Sleep(10 * time.Millisecond) {
		for i, at := range next {
			if now := time.Now(); !at.After(now) {
				restarts++
				next[i] = b.Reserve(budget.Restart, now.Add(every), now.Add(ordinary))
			}
		}
	}
	return restarts
}

func TestEarlyActionsTakeNoMoreThanTheNodesBudget(t *testing.T) {
	for _, containers := range []int{1, 4, 1000} {
		synctest.Test(t, func(t *testing.T) {
			b := budget.New(prometheus.NewRegistry())
			const during = 10 * time.Minute
			got := crash(b, containers, 100*time.Millisecond, 5*time.Minute, during)
			early := got - containers*int(during/(5*time.Minute)) // the rest would happen anyway
			if most := int((budget.Burst+budget.Rate*time.Duration(during/time.Second))/(70*time.Millisecond)) + 1; early > most {
				t.Errorf("%d containers: %d early restarts in %v, want at most %d", containers, early, during, most)
			}
			if got < 430 {
				t.Errorf("%d containers: %d restarts in %v, want the budget used", containers, got, during)
			}
		})
	}
}

func TestAPlaceIsNeverLaterThanWithoutTheAnnotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := budget.New(reg)
		now := time.Now()
		for range 1000 {
			wanted, otherwise := now.Add(100*time.Millisecond), now.Add(3*time.Second)
			if at := b.Reserve(budget.ExecProbe, wanted, otherwise); at.Before(wanted) || at.After(otherwise) {
				t.Fatalf("got a place after %v, want one from 100ms to 3s", at.Sub(now))
			}
		}
		// Those for whom there was no room have taken none.
		time.Sleep(3 * time.Second)
		wanted := time.Now().Add(700 * time.Millisecond)
		if at := b.Reserve(budget.ExecProbe, wanted, wanted.Add(time.Hour)); !at.Equal(wanted) {
			t.Errorf("after those before have had their turn: got a place %v late", at.Sub(wanted))
		}
		if n, err := testutil.GatherAndCount(reg, "podd_early_actions_deferred_total"); err != nil || n != 1 {
			t.Errorf("got %d counters, %v; want one for exec_probe", n, err)
		}
	})
}

func TestABudgetThatIsNotUsedIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(prometheus.NewRegistry())
		for range 3 {
			now := time.Now()
			for i := range 28 {
				if at := b.Reserve(budget.Restart, now, now.Add(time.Minute)); !at.Equal(now) {
					t.Fatalf("the restart %d of 28 at once: got a place after %v, want at once", i, at.Sub(now))
				}
			}
			if at := b.Reserve(budget.Restart, now, now.Add(time.Minute)); at.Sub(now) <= 0 || at.Sub(now) > time.Second {
				t.Errorf("one more: got a place after %v, want it in less than a second", at.Sub(now))
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestRestartsThatWaitKeepNoProbeWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(prometheus.NewRegistry())
		now := time.Now()
		for range 1000 {
			b.Reserve(budget.Restart, now, now.Add(5*time.Minute))
		}
		if at := b.Reserve(budget.Probe, now, now.Add(10*time.Second)); !at.Equal(now) {
			t.Errorf("a probe: got a place after %v, want at once", at.Sub(now))
		}
	})
}

func TestNoBudgetHasRoomForEverything(t *testing.T) {
	var b *budget.Budget
	now := time.Now()
	if at := b.Reserve(budget.Restart, now, now.Add(time.Hour)); !at.Equal(now) {
		t.Errorf("got %v later, want at once", at.Sub(now))
	}
}

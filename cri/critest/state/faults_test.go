package state_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podd/cri/critest/state"
)

func TestFaultsOfCalls(t *testing.T) {
	broken := errors.New("broken")
	var f state.Faults
	f.Begin("Stop", "shop") // what was before counts for nothing
	f.FailNext("Stop shop", 9, broken)
	f.FailNext("Stop shop", 0, broken)
	f.FailNth("Stop shop", 2, broken)
	f.FailNth("Stop shop", 3, broken)
	f.LoseAnswer("Stop", 4, broken)
	f.Ignore("Remove shop", true)
	var got []string
	call := func(method, pod string) {
		what := "nothing"
		err := f.Begin(method, pod).Do(func() error { what = "done"; return nil })
		if err != nil {
			what += " failed"
		}
		got = append(got, what)
	}
	for range 4 {
		call("Stop", "shop")
	}
	call("Stop", "other")
	call("Remove", "shop")
	call("Remove", "other")
	f.Ignore("Remove shop", false)
	call("Remove", "shop")
	const want = "done, nothing failed, nothing failed, done failed, done, nothing, done, done"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	if n, m := f.Count("Stop"), f.Count("Stop shop"); n != 6 || m != 5 {
		t.Errorf("got %d calls, %d of shop, want 6, 5", n, m)
	}
	f.FailNext("Stop", 1, broken)
	f.Calm()
	if err := f.Begin("Stop", "").Err(); err != nil {
		t.Errorf("after all faults ended: got %v", err)
	}
}

func TestFaultsThatTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f state.Faults
		gone := make(chan struct{})
		// waits says how long a call took by then, and whether its caller was there.
		waits := func(method, pod string, sticky bool) func() (time.Duration, bool) {
			began, took, there := time.Now(), time.Duration(-1), false
			fate := f.Begin(method, pod)
			go func() {
				there = fate.Wait(gone, sticky)
				took = time.Since(began)
			}()
			return func() (time.Duration, bool) { synctest.Wait(); return took, there }
		}
		expect := func(what string, call func() (time.Duration, bool), took time.Duration, there bool) {
			t.Helper()
			if d, ok := call(); d != took || ok != there {
				t.Errorf("%s: got %v, %v, want %v, %v", what, d, ok, took, there)
			}
		}
		f.Delay("", time.Second)
		f.Delay("Stop", 2*time.Second)
		f.Delay("Stop shop", 0)
		all, stop, shop := waits("Remove", "", false), waits("Stop", "other", false), waits("Stop", "shop", false)
		time.Sleep(time.Minute)
		expect("all", all, time.Second, true)
		expect("a method", stop, 2*time.Second, true)
		expect("one pod's", shop, 0, true)

		f.Delay("", 0)
		release := f.Hang("Run")
		f.Stick("Create shop")
		hangs, sticks, next := waits("Run", "shop", false), waits("Create", "shop", true), waits("Create", "shop", false)
		expect("hangs", hangs, -1, false)
		expect("the one after one that sticks", next, 0, true)
		time.Sleep(time.Minute)
		close(gone)
		expect("its caller went", hangs, time.Minute, false)
		expect("the caller of one that is sticky went", sticks, -1, false)
		if got := f.Hanging(); len(got) != 1 || got[0] != "Run" {
			t.Errorf("got %q, want that Run hangs", got)
		}
		release()
		f.Unstick()
		expect("sticks", sticks, time.Minute, true)
		expect("after the release", waits("Run", "shop", true), 0, true)
		for _, end := range []func(){func() { f.Release("Run") }, f.LetGo} {
			f.Hang("Run")
			held := waits("Run", "", true)
			expect("hangs again", held, -1, false)
			end()
			expect("let go", held, 0, true)
		}
	})
}

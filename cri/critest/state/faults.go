package state

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Faults are the faults of a runtime's calls, and how often each call came. A fault applies
// to a method ("StopContainer"), or to one pod's calls of it ("StopContainer shop"). The
// zero value is ready for use, by anybody at any time.
type Faults struct {
	mu      sync.Mutex // guards everything below
	counts  map[string]int
	fails   map[string]map[int]failure // by the number of the call
	delays  map[string]time.Duration
	hangs   map[string]chan struct{}
	sticks  map[string]bool
	stuck   []chan struct{}
	ignored map[string]bool
	waiting map[string]int
}

type failure struct {
	err  error
	late bool
}

// Fate is the outcome of one call. The face that serves the call first waits, and then
// performs it.
type Fate struct {
	failure
	delay   time.Duration
	gate    <-chan struct{}
	ignored func() bool
	waits   func(more int)
}

// Begin counts a call and returns its fate. pod is empty for a call that concerns no pod.
func (f *Faults) Begin(method, pod string) Fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	fate := Fate{
		delay:   f.delays[""],
		ignored: func() bool { return f.ignores(method, pod) },
		waits:   func(more int) { f.waits(method, more) },
	}
	for _, call := range keys(method, pod) {
		set(&f.counts, call, f.counts[call]+1)
		if failure, ok := f.fails[call][f.counts[call]]; ok {
			fate.failure = failure
		}
		if d, ok := f.delays[call]; ok {
			fate.delay = d
		}
		if gate := f.hangs[call]; gate != nil {
			fate.gate = gate
		}
		if f.sticks[call] {
			delete(f.sticks, call)
			gate := make(chan struct{})
			f.stuck = append(f.stuck, gate)
			fate.gate = gate
		}
	}
	return fate
}

// keys are the names under which a call may have faults, the narrower one last.
func keys(method, pod string) []string {
	if pod == "" {
		return []string{method}
	}
	return []string{method, method + " " + pod}
}

func set[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// Wait waits as long as the call's faults demand, and says whether its caller is still
// there: gone is closed when the caller leaves. A sticky call hangs on without its caller.
func (f Fate) Wait(gone <-chan struct{}, sticky bool) bool {
	if f.delay > 0 {
		timer := time.NewTimer(f.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-gone:
			return false
		}
	}
	if f.gate == nil {
		return true
	}
	if sticky {
		gone = nil
	}
	f.waits(1)
	defer f.waits(-1)
	select {
	case <-f.gate:
		return true
	case <-gone:
		return false
	}
}

// Do fails without an effect, or performs the call; the answer may be lost then. It does
// not perform a call that the runtime ignores.
func (f Fate) Do(effect func() error) error {
	if f.err != nil && !f.late {
		return f.err
	}
	if f.ignored() {
		return nil
	}
	if err := effect(); f.err == nil {
		return err
	}
	return f.err
}

// Err returns the error of a call without an effect; nil for a call with one.
func (f Fate) Err() error {
	if f.late {
		return nil
	}
	return f.err
}

// Count returns how often a call came.
func (f *Faults) Count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[call]
}

// FailNth makes the nth call from now (1 is the next) fail without an effect.
func (f *Faults) FailNth(call string, n int, err error) { f.add(call, n, failure{err, false}) }

// FailNext makes the next n calls fail without an effect, and no others.
func (f *Faults) FailNext(call string, n int, err error) {
	f.mu.Lock()
	delete(f.fails, call)
	f.mu.Unlock()
	for i := range n {
		f.FailNth(call, i+1, err)
	}
}

// LoseAnswer lets the nth call from now have its effect and then fail.
func (f *Faults) LoseAnswer(call string, n int, err error) { f.add(call, n, failure{err, true}) }

func (f *Faults) add(call string, n int, what failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails[call] == nil {
		set(&f.fails, call, map[int]failure{})
	}
	f.fails[call][f.counts[call]+n] = what
}

// Delay makes each such call take that much longer; "" is all calls without a
// delay of their own. 0 ends it.
func (f *Faults) Delay(call string, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.delays, call, d)
}

// Hang makes such calls wait until the returned function is called, or all calls are let
// go.
func (f *Faults) Hang(call string) (release func()) {
	gate := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.hangs, call, gate)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.hangs[call] == gate {
			delete(f.hangs, call)
			close(gate)
		}
	}
}

// Hanging returns the calls that hang, sorted.
func (f *Faults) Hanging() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.hangs))
}

// Waiting returns the number of calls of a method that hang or stick right now.
func (f *Faults) Waiting(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting[method]
}

func (f *Faults) waits(method string, more int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.waiting, method, f.waiting[method]+more)
}

// Release lets go of such calls that hang, and of later ones.
func (f *Faults) Release(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if gate := f.hangs[call]; gate != nil {
		close(gate)
		delete(f.hangs, call)
	}
}

// Stick makes the next such call wait, and no other, until Unstick.
func (f *Faults) Stick(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.sticks, call, true)
}

// Unstick lets go of the calls that stick.
func (f *Faults) Unstick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, gate := range f.stuck {
		close(gate)
	}
	f.stuck = nil
}

// Ignore makes such calls be answered but not performed; false ends that.
func (f *Faults) Ignore(call string, ignore bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.ignored, call, ignore)
}

func (f *Faults) ignores(method, pod string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, call := range keys(method, pod) {
		if f.ignored[call] {
			return true
		}
	}
	return false
}

// LetGo lets go of all calls that hang or stick.
func (f *Faults) LetGo() {
	f.Unstick()
	f.mu.Lock()
	defer f.mu.Unlock()
	for call, gate := range f.hangs {
		close(gate)
		delete(f.hangs, call)
	}
}

// Calm lets all calls go, and makes no later call fail or stick.
func (f *Faults) Calm() {
	f.LetGo()
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.fails)
	clear(f.sticks)
}

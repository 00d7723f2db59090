package plan

import (
	"maps"
	"time"

	"podd/agent/backoff"
	"podd/internal/pod"
)

// Memory is what has to be remembered between two decisions and cannot be seen
// in the runtime. Losing it (a restart of podd) costs nothing but a shorter
// wait. A Memory is a value: Next returns a changed copy.
type Memory struct {
	// Restarts is the back-off of each container, by name.
	Restarts map[string]backoff.Entry
	// Failures are starts that went wrong, by name.
	Failures map[string]Failure
	// Taken are attempts whose name the runtime holds for another create, by
	// container name; "" is the sandbox.
	Taken map[string]Taken
	// Counts are the least restart counts of the next containers, by name: a
	// count never goes down, although dead containers are removed.
	Counts map[string]int32
}

// AtLeast returns the memory in which the next container of each name has no
// lower restart count than counts says, such as one that logs have shown.
func (m Memory) AtLeast(counts map[string]int32) Memory {
	next := maps.Clone(m.Counts)
	if next == nil {
		next = make(map[string]int32)
	}
	for name, n := range counts {
		next[name] = max(next[name], n)
	}
	m.Counts = next
	return m
}

// Retried returns the memory of a pod that is to try again at once, as if it had
// never failed.
func (m Memory) Retried() Memory {
	m.Restarts, m.Failures = nil, nil
	return m
}

// Taken is an attempt that the runtime refused because its name is taken.
type Taken struct {
	Attempt int64
	// Since is the first refusal.
	Since time.Time
}

// takenPatience is how long an attempt whose name is taken is tried again
// before the next one is made. Meanwhile the create that holds the name, whose
// caller was killed or gave up, comes true and is adopted, or is rolled back:
// a runtime ends a call whose caller is gone within moments. A runtime that does neither holds the name until it is restarted
// (containerd#4604), and the pod must not wait for that.
const takenPatience = 5 * time.Second

// NameTaken returns the memory with one more refusal of an attempt's name.
func (m Memory) NameTaken(name string, attempt int64, now time.Time) Memory {
	if t, ok := m.Taken[name]; ok && t.Attempt == attempt {
		return m
	}
	m.Taken = maps.Clone(m.Taken)
	if m.Taken == nil {
		m.Taken = make(map[string]Taken)
	}
	m.Taken[name] = Taken{Attempt: attempt, Since: now}
	return m
}

// attempt is the one to make: the next one by what the runtime shows, unless
// that, or a later one, turned out to be taken.
func (m Memory) attempt(name string, next int64, now time.Time) int64 {
	t, ok := m.Taken[name]
	switch {
	case !ok || t.Attempt < next:
		return next
	case now.Sub(t.Since) < takenPatience:
		return t.Attempt
	default:
		return t.Attempt + 1
	}
}

// Failure is a start that went wrong: no image, a configuration that cannot be
// made, a create or a start that the runtime refused.
type Failure struct {
	// ID is the container that would not start; empty when none was made. Once
	// the runtime calls that container ended, restart policy and back-off
	// decide about its successor, and the failure is history.
	ID      string
	Waiting pod.Waiting
	// Count is how often in a row.
	Count int
	// NotBefore is when the next try is worth it.
	NotBefore time.Time
}

// remember copies before it writes: Memory is a value.
func (s *Step) remember(name string, e backoff.Entry) {
	next := maps.Clone(s.Memory.Restarts)
	if next == nil {
		next = make(map[string]backoff.Entry)
	}
	next[name] = e
	s.Memory.Restarts = next
}

// Succeeded returns the memory without name's failures.
func (m Memory) Succeeded(name string) Memory {
	if _, ok := m.Failures[name]; ok {
		m.Failures = maps.Clone(m.Failures)
		delete(m.Failures, name)
	}
	return m
}

// Failed returns the memory with one more failed start of name, whose
// container is id (empty when none was made). The next try waits 1 s, doubling
// to 10 s: a start that was refused leaves nothing that runs, so trying is cheap.
func (m Memory) Failed(name, id string, why pod.Waiting, now time.Time) Memory {
	f := Failure{ID: id, Waiting: why, Count: m.Failures[name].Count + 1}
	f.NotBefore = now.Add(min(time.Second<<min(f.Count-1, 10), 10*time.Second))
	return m.with(name, f)
}

// Awaiting returns the memory with name waiting for something that is under
// way, such as an image. That is no failed try and lengthens no wait.
func (m Memory) Awaiting(name string, why pod.Waiting) Memory {
	return m.with(name, Failure{Waiting: why, Count: m.Failures[name].Count})
}

func (m Memory) with(name string, f Failure) Memory {
	m.Failures = maps.Clone(m.Failures)
	if m.Failures == nil {
		m.Failures = make(map[string]Failure)
	}
	m.Failures[name] = f
	return m
}

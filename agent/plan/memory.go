package plan

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/backoff"
	"podd/internal/pod"
)

// Memory is what has to be remembered between two decisions and cannot be observed in
// the runtime. Losing it (a restart of podd) costs nothing but a shorter wait. A
// Memory is a value: Next returns a changed copy.
type Memory struct {
	// Restarts is the back-off of each container under the node's policy, by name, and
	// Own that under the pod's, if it has one.
	Restarts, Own map[string]backoff.Entry
	// Early are places in the node's budget, by name.
	Early map[string]Early
	// Failures are failed starts, by name.
	Failures map[string]Failure
	// Taken are attempts with a name that the runtime reserves for another create, by
	// container name; "" is the sandbox.
	Taken map[string]Taken
	// Counts are the least restart counts of the next containers, by name. Nothing else
	// counts restarts: the next container of a name has one more than the runtime, or a
	// log, has shown for any previous one, whatever was removed or lost since.
	Counts map[string]int32
	// Killed are containers that are followed by another whatever their exit code is, by
	// name: they were stopped for that, or podd's end interrupted their start.
	Killed map[string]Killed
	// Removed are the ends of containers that have no record any more and still have
	// to be restarted, by name.
	Removed map[string]backoff.End

	// Seen is when the newest containers started and ended by podd's own clock, by
	// name: the runtime's may be set while something waits.
	Seen map[string]Seen

	// Looked is when the pod was last observed; zero for never.
	Looked time.Time

	// Held are the limits that containers were last given, by name; "" is the pod.
	Held map[string]Held

	// RestartingSince is when the restart of all containers in progress began; zero
	// for none.
	RestartingSince time.Time

	// Contents are those that the pod's objects had when they last existed. At first they
	// are those that its containers were made with; nil before the first look.
	Contents map[pod.ObjectKey]uint64

	// Change is what the containers have yet to be restarted for; nil for nothing.
	Change *Change

	// Before is the pod as an earlier podd created it, with what it was granted then;
	// nil if that is Granted.
	Before *v1.Pod

	// ResizeAt is when a failed resize is retried; zero for at once.
	ResizeAt time.Time

	// Overdue is when a termination by the node takes too long.
	Overdue Overdue

	// Sandbox is the one that was last observed ready, and Died when it was first
	// observed dead.
	Sandbox string
	Died    time.Time
	// Changed is the sandbox that was last said to be replaced.
	Changed string

	// of is the pod of the last decision, and hashes are those of its containers if
	// they are created from it, by name.
	of     *v1.Pod
	hashes map[string]string
	// whole are the bounds of that pod.
	whole Bounds
}

// Killed is a container that was stopped to be restarted, or that never ran because its
// start was interrupted.
type Killed struct {
	ID string
	// First says that it is the first of its name, or never ran: its successor never waits.
	First bool
}

// Seen is when one container started and ended, on the clock of Input.Now; zero for
// not yet.
type Seen struct {
	ID           string
	Began, Ended time.Time
}

// shownLate is how long a runtime may take to show that a container started or ended.
const shownLate = 5 * time.Second

// see records when a container started and ended, as far as that is new. What the last
// look at the newest container had not shown happened after it, or hardly before: if it
// seems to have happened earlier, the clock was set forward in between, and it counts as
// having happened now.
func (m *Memory) see(c *pod.Container, now time.Time) {
	happened := func(t time.Time) time.Time {
		at := pod.Happened(t, now)
		if newest := c.RestartCount+1 >= m.Counts[c.Name]; newest && !at.IsZero() && at.Add(shownLate).Before(m.Looked) {
			return now
		}
		return at
	}
	before := m.Seen[c.Name]
	next := before
	if before.ID != c.ID {
		next = Seen{ID: c.ID}
	}
	if next.Began.IsZero() {
		next.Began = happened(c.StartedAt)
	}
	if next.Ended.IsZero() && c.State == pod.ContainerExited {
		next.Ended = happened(endOf(c))
	}
	if next != before {
		m.Seen = with(m.Seen, c.Name, next)
	}
}

// interrupted records that nobody heard how a container's start ended (begun is its ID),
// and that it certainly never ran: its end counts for nothing. One that may have run has
// ended (ADR 0015).
func (m *Memory) interrupted(c *pod.Container, begun string) {
	if c.NeverRan && c.State == pod.ContainerExited && c.ID == begun && m.Killed[c.Name].ID != c.ID {
		m.Killed = with(m.Killed, c.Name, Killed{ID: c.ID, First: true})
	}
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

// Retried returns the memory of a pod that retries at once, as if it had never
// failed.
func (m Memory) Retried() Memory {
	m.Restarts, m.Own, m.Early, m.Failures, m.Removed = nil, nil, nil, nil, nil
	return m
}

// learn updates the memory with what was observed: counts rise, and what is known of
// containers that have a successor, or another spec, is forgotten.
func (s *Step) learn(in *Input) {
	m := &s.Memory
	m.about(in.Granted.Pod)
	if all := in.Observed.Sandboxes; len(all) > 0 {
		switch {
		case all[0].Ready:
			m.Sandbox, m.Died = all[0].ID, time.Time{}
		case all[0].ID == m.Sandbox && m.Died.IsZero():
			m.Died = in.Now
		}
	}
	own := false
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		if next := c.RestartCount + 1; m.Counts[c.Name] < next {
			if !own {
				*m, own = m.AtLeast(nil), true
			}
			m.Counts[c.Name] = next
		}
		if c.State != pod.ContainerCreated && c == in.Observed.Latest(c.Name) {
			m.see(c, in.Now)
			m.interrupted(c, in.Begun[c.Name])
		}
	}
	m.Looked = in.Observed.At
	for name, killed := range m.Killed {
		if c := in.Observed.Latest(name); c == nil || c.ID != killed.ID {
			m.Killed = without(m.Killed, name)
		}
	}
	for name := range m.Removed {
		if in.Observed.Latest(name) != nil {
			m.Removed = without(m.Removed, name)
		}
	}
}

// about records which pod the decision is about. A container starts over if its image or
// resources changed: the earlier failures were another container's (upstream's
// GetBackoffKey).
func (m *Memory) about(p *v1.Pod) {
	if m.of == p {
		return
	}
	before := m.of
	m.of, m.hashes, m.whole = p, make(map[string]string), podBounds(p)
	for c := range pod.ContainerSpecs(&p.Spec) {
		m.hashes[c.Name] = pod.ContainerHash(c)
		if before == nil {
			continue
		}
		old, _ := pod.ContainerSpec(&before.Spec, c.Name)
		if old != nil && (old.Image != c.Image || old.Resources.String() != c.Resources.String()) {
			m.Restarts = without(m.Restarts, c.Name)
			m.Own = without(m.Own, c.Name)
			m.Failures = without(m.Failures, c.Name)
			m.Removed = without(m.Removed, c.Name)
		}
	}
}

// without returns the map without a key; the one that was passed is unchanged.
func without[V any](all map[string]V, key string) map[string]V {
	if _, there := all[key]; !there {
		return all
	}
	rest := maps.Clone(all)
	delete(rest, key)
	return rest
}

// with returns the map with a key set; the one that was passed is unchanged.
func with[K comparable, V any](all map[K]V, key K, v V) map[K]V {
	next := maps.Clone(all)
	if next == nil {
		next = make(map[K]V)
	}
	next[key] = v
	return next
}

// Taken is an attempt that the runtime rejected because its name is taken.
type Taken struct {
	Attempt int64
	// Since is the first rejection.
	Since time.Time
}

// nameConflictGrace is how long an attempt with a taken name is retried before the next
// one is made. Meanwhile the create that reserved the name succeeds and is adopted, or is
// rolled back: its caller was killed or gave up, and within moments a runtime ends a call
// from a caller that has disconnected. A runtime that does neither reserves the name
// until it is restarted (containerd#4604), and the pod must not wait for that.
const nameConflictGrace = 5 * time.Second

// NameLost returns the memory with an attempt that can never be made: the next
// one is due now.
func (m Memory) NameLost(name string, attempt int64) Memory {
	return m.NameTaken(name, attempt, time.Time{})
}

// NameTaken returns the memory with one more rejection of an attempt's name.
func (m Memory) NameTaken(name string, attempt int64, now time.Time) Memory {
	if t, ok := m.Taken[name]; ok && t.Attempt == attempt && !now.IsZero() {
		return m
	}
	m.Taken = with(m.Taken, name, Taken{Attempt: attempt, Since: now})
	return m
}

// attempt is the next one by what the runtime shows, unless the name of that, or of a
// later one, turned out to be taken.
func (m Memory) attempt(name string, next int64, now time.Time) int64 {
	t, ok := m.Taken[name]
	switch {
	case !ok || t.Attempt < next:
		return next
	case now.Sub(t.Since) < nameConflictGrace:
		return t.Attempt
	default:
		return t.Attempt + 1
	}
}

// Failure is a failed start: no image, an invalid configuration, a create or a start
// that failed in the runtime.
type Failure struct {
	// ID is the container that would not start, or that had the failed hook; empty when
	// none was made. Once the runtime reports that container as exited, restart policy
	// and back-off decide about its successor; the failure is the waiting reason shown
	// until NotBefore.
	ID      string
	Waiting pod.Waiting
	// Count is how often in a row.
	Count int
	// NotBefore is when the next attempt is due.
	NotBefore time.Time
}

// Succeeded returns the memory without name's failures.
func (m Memory) Succeeded(name string) Memory {
	m.Failures = without(m.Failures, name)
	return m
}

// Failed returns the memory with one more failed start of name; id is its container
// (empty when none was made). The next attempt waits 1 s, doubling to 10 s: a start that
// failed leaves nothing running, so trying is cheap.
func (m Memory) Failed(name, id string, why pod.Waiting, now time.Time) Memory {
	f := Failure{ID: id, Waiting: why, Count: m.Failures[name].Count + 1}
	f.NotBefore = now.Add(min(time.Second<<min(f.Count-1, 10), 10*time.Second))
	m.Failures = with(m.Failures, name, f)
	return m
}

// Awaiting returns the memory with name waiting for something in progress, such as an
// image. That is no failed attempt and lengthens no wait.
func (m Memory) Awaiting(name string, why pod.Waiting) Memory {
	m.Failures = with(m.Failures, name, Failure{Waiting: why, Count: m.Failures[name].Count})
	return m
}

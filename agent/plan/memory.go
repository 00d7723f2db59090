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
	// NodeBackOff is the back-off of each container under the node's policy, by name, and
	// PodBackOff that under the pod's, if it has one.
	NodeBackOff, PodBackOff map[string]backoff.Entry
	// EarlyRestarts are those that the node's budget has granted, by name.
	EarlyRestarts map[string]EarlyRestart
	// Failures are failed starts, by name.
	Failures map[string]Failure
	// NameConflicts are attempts whose name the runtime reserves for another create, by
	// container name; "" is the sandbox.
	NameConflicts map[string]NameConflict
	// RestartCounts are the least restart counts of the next containers, by name. Nothing
	// else counts restarts: the next container of a name has one more than the runtime, or
	// a log, has shown for any previous one, whatever was removed or lost since.
	RestartCounts map[string]int32
	// ForcedRestarts are containers that are followed by another whatever their exit code
	// is, by name: they were stopped for that, or podd's end interrupted their start.
	ForcedRestarts map[string]ForcedRestart
	// RequestedRestarts are the IDs of containers that are to be restarted on request, by name.
	RequestedRestarts map[string]string
	// RemovedExits are the exits of containers that have no record any more and still have
	// to be restarted, by name.
	RemovedExits map[string]backoff.Exit

	// Times is when the newest containers started and ended by podd's own clock, by
	// name: the runtime's may be set while something waits.
	Times map[string]ContainerTimes

	// ObservedAt is when the pod was last observed; zero for never.
	ObservedAt time.Time

	// Actuated are the limits that podd last set for containers, by name; "" is the pod.
	Actuated map[string]Actuated

	// RestartingSince is when the restart of all containers in progress began; zero
	// for none.
	RestartingSince time.Time

	// Contents are those that the pod's objects had when they last existed. At first they
	// are those that its containers were made with; nil before the first look.
	Contents map[pod.ObjectKey]uint64

	// ObjectChange is what the containers have yet to be restarted for; nil for nothing.
	ObjectChange *ObjectChange

	// AdoptedPod is the pod as an earlier podd created it, with what it was granted then;
	// nil if that is Granted.
	AdoptedPod *v1.Pod

	// ResizeAt is when a failed resize is retried; zero for at once.
	ResizeAt time.Time

	// Overdue is when a termination by the node takes too long.
	Overdue Overdue

	// LastReadySandbox is the one that was last observed ready, and SandboxDiedAt when it
	// was first observed dead.
	LastReadySandbox string
	SandboxDiedAt    time.Time
	// ReportedSandbox is the one that was last reported as replaced.
	ReportedSandbox string

	// lastPod is the pod of the last decision, and hashes are those of its containers if
	// they are created from it, by name.
	lastPod *v1.Pod
	hashes  map[string]string
	// whole are the bounds of that pod.
	whole Bounds
}

// ForcedRestart is a container that was stopped to be restarted, or that never ran because
// its start was interrupted.
type ForcedRestart struct {
	ID string
	// SkipBackOff says that its successor never waits: it is the first of its name, or
	// never ran.
	SkipBackOff bool
}

// ContainerTimes is when one container started and ended, on the clock of Input.Now; zero
// for not yet.
type ContainerTimes struct {
	ID                    string
	StartedAt, FinishedAt time.Time
}

// shownLate is how long a runtime may take to show that a container started or ended.
const shownLate = 5 * time.Second

// setTimes records when a container started and ended, as far as that is new. What the last
// look at the newest container had not shown happened after it, or hardly before: if it
// seems to have happened earlier, the clock was set forward in between, and it counts as
// having happened now.
func (m *Memory) setTimes(c *pod.Container, now time.Time) {
	happened := func(t time.Time) time.Time {
		at := pod.WithMonotonic(t, now)
		if newest := c.RestartCount+1 >= m.RestartCounts[c.Name]; newest && !at.IsZero() && at.Add(shownLate).Before(m.ObservedAt) {
			return now
		}
		return at
	}
	before := m.Times[c.Name]
	next := before
	if before.ID != c.ID {
		next = ContainerTimes{ID: c.ID}
	}
	if next.StartedAt.IsZero() {
		next.StartedAt = happened(c.StartedAt)
	}
	if next.FinishedAt.IsZero() && c.State == pod.ContainerExited {
		next.FinishedAt = happened(endOf(c))
	}
	if next != before {
		m.Times = with(m.Times, c.Name, next)
	}
}

// interrupted records that nobody heard how a container's start ended (pendingID is its ID),
// and that it certainly never ran: its end counts for nothing. One that may have run has
// ended (ADR 0015).
func (m *Memory) interrupted(c *pod.Container, pendingID string) {
	if c.NeverRan && c.State == pod.ContainerExited && c.ID == pendingID && m.ForcedRestarts[c.Name].ID != c.ID {
		m.ForcedRestarts = with(m.ForcedRestarts, c.Name, ForcedRestart{ID: c.ID, SkipBackOff: true})
	}
}

// WithRestartCounts returns the memory in which the next container of each name has no
// lower restart count than counts says, such as one that logs have shown.
func (m Memory) WithRestartCounts(counts map[string]int32) Memory {
	next := maps.Clone(m.RestartCounts)
	if next == nil {
		next = make(map[string]int32)
	}
	for name, n := range counts {
		next[name] = max(next[name], n)
	}
	m.RestartCounts = next
	return m
}

// BackOffReset returns the memory of a pod that retries at once, as if it had never
// failed.
func (m Memory) BackOffReset() Memory {
	m.NodeBackOff, m.PodBackOff, m.EarlyRestarts, m.Failures, m.RemovedExits = nil, nil, nil, nil, nil
	return m
}

// learn updates the memory with what was observed: counts rise, and what is known of
// containers that have a successor, or another spec, is forgotten.
func (s *Step) learn(in *Input) {
	m := &s.Memory
	m.setPod(in.Granted.Pod)
	if all := in.Observed.Sandboxes; len(all) > 0 {
		switch {
		case all[0].Ready:
			m.LastReadySandbox, m.SandboxDiedAt = all[0].ID, time.Time{}
		case all[0].ID == m.LastReadySandbox && m.SandboxDiedAt.IsZero():
			m.SandboxDiedAt = in.Now
		}
	}
	own := false
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		if next := c.RestartCount + 1; m.RestartCounts[c.Name] < next {
			if !own {
				*m, own = m.WithRestartCounts(nil), true
			}
			m.RestartCounts[c.Name] = next
		}
		if c.State != pod.ContainerCreated && c == in.Observed.LatestContainer(c.Name) {
			m.setTimes(c, in.Now)
			m.interrupted(c, in.PendingStarts[c.Name])
		}
	}
	m.ObservedAt = in.Observed.At
	for name, forced := range m.ForcedRestarts {
		if c := in.Observed.LatestContainer(name); c == nil || c.ID != forced.ID {
			m.ForcedRestarts = without(m.ForcedRestarts, name)
		}
	}
	for name := range m.RemovedExits {
		if in.Observed.LatestContainer(name) != nil {
			m.RemovedExits = without(m.RemovedExits, name)
		}
	}
}

// setPod records which pod the decision is about. A container starts over if its image or
// resources changed: the earlier failures were another container's (upstream's
// GetBackoffKey).
func (m *Memory) setPod(p *v1.Pod) {
	if m.lastPod == p {
		return
	}
	before := m.lastPod
	m.lastPod, m.hashes, m.whole = p, make(map[string]string), podBounds(p)
	for c := range pod.ContainerSpecs(&p.Spec) {
		m.hashes[c.Name] = pod.ContainerHash(c)
		if before == nil {
			continue
		}
		old, _ := pod.ContainerSpec(&before.Spec, c.Name)
		if old != nil && (old.Image != c.Image || old.Resources.String() != c.Resources.String()) {
			m.NodeBackOff = without(m.NodeBackOff, c.Name)
			m.PodBackOff = without(m.PodBackOff, c.Name)
			m.Failures = without(m.Failures, c.Name)
			m.RemovedExits = without(m.RemovedExits, c.Name)
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

// NameConflict is an attempt that the runtime rejected because its name is taken.
type NameConflict struct {
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
	if t, ok := m.NameConflicts[name]; ok && t.Attempt == attempt && !now.IsZero() {
		return m
	}
	m.NameConflicts = with(m.NameConflicts, name, NameConflict{Attempt: attempt, Since: now})
	return m
}

// attempt is the next one by what the runtime shows, unless the name of that, or of a
// later one, turned out to be taken.
func (m Memory) attempt(name string, next int64, now time.Time) int64 {
	t, ok := m.NameConflicts[name]
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

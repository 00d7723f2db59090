package cgroup

import (
	"log/slog"
	"sync"

	"podd/internal/pod"
)

// codeKilled is the exit code of a container that was killed by SIGKILL, by the
// OOM killer or otherwise.
const codeKilled = 137

// OOMDetector detects OOM kills that the runtime missed: under systemd, on cgroup
// v2, a container's cgroup is removed as soon as its last process exits, and
// memory.oom.group kills all of them at once; containerd, which reads that cgroup,
// then reports Error. The pod's cgroup is podd's own, outlives its containers and
// counts their OOM kills, too. Create it with NewOOMDetector.
type OOMDetector struct {
	// kills returns how many processes of a pod the OOM killer has killed.
	kills func(pod.UID) (int64, error)
	log   *slog.Logger

	mu   sync.Mutex // guards what follows; held while kills reads a small cgroup file
	pods map[pod.UID]*oomKills
	past map[pod.UID]*pastKills
}

// pastKills are the containers of a pod that ended by an OOM kill: those that the runtime
// still has, by ID, and how many by name there have been.
type pastKills struct {
	ids    map[string]bool
	byName map[string]uint64
}

// oomKills are the containers of a pod that ended by SIGKILL, by ID, and whether
// the OOM killer sent it. counted is the number of OOM kills that they account
// for.
type oomKills struct {
	killed  map[string]bool
	counted int64
}

// NewOOMDetector returns an OOMDetector; kills, such as Tree.OOMKills, returns how many
// processes of a pod the OOM killer has killed.
func NewOOMDetector(kills func(pod.UID) (int64, error), log *slog.Logger) *OOMDetector {
	return &OOMDetector{kills: kills, log: log, pods: map[pod.UID]*oomKills{}, past: map[pod.UID]*pastKills{}}
}

// Attribute sets the reason OOMKilled in seen, the pod's latest observation, where
// it applies. Calls for one pod must not overlap. A SIGKILL from elsewhere between
// the same two observations as an OOM kill is taken for one, and so is a later
// SIGKILL if in between the OOM killer killed a process that its container
// survived: CRI's own reason is no more precise.
func (w *OOMDetector) Attribute(uid pod.UID, seen *pod.Observed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.countLocked(uid, seen) }()
	known := w.pods[uid]
	before := map[string]bool{}
	if known != nil {
		before = known.killed
	}
	now := map[string]bool{}
	kills := int64(-1) // not read
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if c.State != pod.ContainerExited || c.ExitCode != codeKilled {
			continue
		}
		forMemory, judged := before[c.ID]
		if !judged {
			if kills < 0 {
				kills = w.read(uid)
			}
			forMemory = c.Reason == pod.ReasonOOMKilled || known == nil && kills > 0 || known != nil && kills > known.counted
		}
		if now[c.ID] = forMemory; forMemory && c.Reason == pod.ReasonExitError {
			c.Reason = pod.ReasonOOMKilled
		}
	}
	switch {
	case len(now) == 0 && (known == nil || known.counted == 0 || seen.Empty()):
		delete(w.pods, uid)
	case kills < 0:
		known.killed = now
	default:
		w.pods[uid] = &oomKills{killed: now, counted: kills}
	}
}

// countLocked counts the containers that ended by an OOM kill, each once.
func (w *OOMDetector) countLocked(uid pod.UID, seen *pod.Observed) {
	if seen.Empty() {
		delete(w.past, uid)
		return
	}
	known := w.past[uid]
	ids := map[string]bool{}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if c.State != pod.ContainerExited || c.Reason != pod.ReasonOOMKilled {
			continue
		}
		if known == nil {
			known = &pastKills{byName: map[string]uint64{}}
			w.past[uid] = known
		}
		if ids[c.ID] = true; !known.ids[c.ID] {
			known.byName[c.Name]++
		}
	}
	if known != nil {
		known.ids = ids
	}
}

// PastOOMKills returns how many OOM kills have ended earlier containers of that name. When a
// container is removed, its cgroup disappears, and with it the kernel's count.
func (w *OOMDetector) PastOOMKills(uid pod.UID, container, id string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.past[uid]
	switch {
	case known == nil:
		return 0
	case known.ids[id]:
		return known.byName[container] - 1 // its cgroup, if it is there, has its own
	}
	return known.byName[container]
}

func (w *OOMDetector) read(uid pod.UID) int64 {
	n, err := w.kills(uid)
	if err != nil {
		w.log.Debug("cannot determine whether a container was OOM killed", "uid", uid, "error", err)
		return 0
	}
	return n
}

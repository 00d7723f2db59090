package cgroup

import (
	"log/slog"
	"sync"

	"podd/internal/pod"
)

// codeKilled is the exit code of a container that was killed, for its memory or
// otherwise.
const codeKilled = 137

// OOMWitness knows which containers the kernel killed for their memory where the
// runtime came too late to see it: under systemd, on cgroup v2, a container's
// group is gone as soon as its last process is, and with memory.oom.group all of
// them go at once; containerd, which asks that group, then says Error. The pod's
// group is podd's own, outlives its containers and counts their kills too. Make it
// with NewOOMWitness.
type OOMWitness struct {
	// kills is how many processes of a pod were killed so.
	kills func(pod.UID) (int64, error)
	log   *slog.Logger

	mu   sync.Mutex // guards what follows; held while kills reads a small file of the kernel's
	pods map[pod.UID]*oomKills
}

// oomKills are the containers of a pod that ended by a kill, by ID: whether for
// memory. counted is how many kills that explains.
type oomKills struct {
	dead    map[string]bool
	counted int64
}

// NewOOMWitness returns a witness that asks kills, such as Tree.Kills, how many
// processes of a pod the kernel has killed for want of memory.
func NewOOMWitness(kills func(pod.UID) (int64, error), log *slog.Logger) *OOMWitness {
	return &OOMWitness{kills: kills, log: log, pods: map[pod.UID]*oomKills{}}
}

// Attribute names what the kernel did in seen, which is what was observed of a
// pod now; of one pod one call at a time. A kill by somebody else within the
// same look as one for memory is taken for one of those, and so is a later one
// if between the two the kernel killed a process that its container survived:
// CRI's own words are no better in that.
func (w *OOMWitness) Attribute(uid pod.UID, seen *pod.Observed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.pods[uid]
	before := map[string]bool{}
	if known != nil {
		before = known.dead
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
		known.dead = now
	default:
		w.pods[uid] = &oomKills{dead: now, counted: kills}
	}
}

func (w *OOMWitness) read(uid pod.UID) int64 {
	n, err := w.kills(uid)
	if err != nil {
		w.log.Debug("cannot tell whether the kernel killed a container for memory", "uid", uid, "error", err)
		return 0
	}
	return n
}

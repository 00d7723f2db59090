// Package budget bounds what the annotations of pods may cost the node as a whole
// (ADR 0032).
//
// An annotation may make podd act earlier than it would without: restart a container before
// the node's back-off is over, or run a probe before its period is. Each such action takes
// processor time outside the pod's cgroup, in podd and in the runtime. All restarts share
// one allowance and all probes another, so that restarts, which may wait for minutes, do
// not keep probes waiting. If its allowance has no room, an action happens when it would
// happen without the annotation: no pod is worse off for having one.
package budget

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
)

// Rate is the processor time that early restarts may take in each second, a twentieth of
// one processor, and Burst what they may take at once after a while without any. Early
// probes may take as much again.
const (
	Rate  = 50 * time.Millisecond
	Burst = 2 * time.Second
)

// Action is something that an annotation may make podd do early.
type Action string

// The actions. Their names are values of a label.
const (
	Restart   Action = "restart"
	ExecProbe Action = "exec_probe"
	Probe     Action = "probe" // one that asks over the network
)

// cost is roughly the processor time that an action takes outside the pod's cgroup with the
// bundled runtime: a restart makes and removes a container, an exec probe is a runc exec,
// and podd alone does the rest. The figures are fixed: a budget need not be exact.
func (a Action) cost() time.Duration {
	switch a {
	case Restart:
		return 70 * time.Millisecond
	case ExecProbe:
		return 30 * time.Millisecond
	default:
		return 150 * time.Microsecond
	}
}

// Budget is the allowance that early actions have left. Create it with New. Its methods are
// safe for concurrent use; a nil Budget has room for everything.
type Budget struct {
	restarts, probes *rate.Limiter // in microseconds of a processor
	deferred         *prometheus.CounterVec
}

// New returns a budget of Rate and Burst. metrics may be nil.
func New(metrics prometheus.Registerer) *Budget {
	allowance := func() *rate.Limiter {
		return rate.NewLimiter(rate.Limit(Rate.Microseconds()), int(Burst.Microseconds()))
	}
	return &Budget{
		restarts: allowance(), probes: allowance(),
		deferred: promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "podd_early_actions_deferred_total",
			Help: "Restarts and probes that an annotation of their pod wants earlier than the node's budget has room for them.",
		}, []string{"action"}),
	}
}

// Reserve takes room for an action that a pod wants at the time wanted, and that would happen
// at the later time otherwise without the pod's annotation. It returns when the action may
// happen: at wanted, or as soon as there is room. If there is no room before otherwise, it
// returns otherwise and takes nothing. It does not block.
func (b *Budget) Reserve(a Action, wanted, otherwise time.Time) time.Time {
	if b == nil {
		return wanted
	}
	room := b.probes
	if a == Restart {
		room = b.restarts
	}
	now := time.Now()
	place := room.ReserveN(now, int(a.cost().Microseconds()))
	at := now.Add(place.DelayFrom(now))
	if !at.After(wanted) {
		return wanted
	}
	b.deferred.WithLabelValues(string(a)).Inc()
	if !at.Before(otherwise) {
		place.CancelAt(now)
		return otherwise
	}
	return at
}

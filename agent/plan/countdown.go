package plan

import "time"

// minimumGrace is the least time after every stop signal, however long hook and
// waiting took; the kubelet's minimumGracePeriodInSeconds. A grace period of 0 stays
// 0 (Stop.Grace).
const minimumGrace = 2 * time.Second

// Countdown is the time that one container has to terminate: the preStop hook, the
// wait for its turn and the stop signal use it up. It is a value, and may be
// shortened, never lengthened. The zero Countdown has expired.
type Countdown struct {
	// Until is when the container is killed.
	Until time.Time
	// Immediate says that the container is killed without a hook and without time to
	// react.
	Immediate bool
}

// NewCountdown begins at now, with the grace period of a Stop.
func NewCountdown(grace time.Duration, now time.Time) Countdown {
	return Countdown{Until: now.Add(grace), Immediate: grace <= 0}
}

// Shortened is the countdown that ends grace from now, if that is sooner; changed
// says that it is.
func (c Countdown) Shortened(grace time.Duration, now time.Time) (next Countdown, changed bool) {
	next = NewCountdown(grace, now)
	if next.Until.Before(c.Until) || next.Immediate && !c.Immediate {
		return next, true
	}
	return c, false
}

// RunsHook says that there is time for a preStop hook.
func (c Countdown) RunsHook() bool { return !c.Immediate }

// Signal is the time between a stop signal that is sent now and SIGKILL.
func (c Countdown) Signal(now time.Time) time.Duration {
	if c.Immediate {
		return 0
	}
	return max(c.Until.Sub(now), minimumGrace)
}

package stats

import (
	"maps"
	"time"
)

const (
	// minBaseAge is the least age of the point that a rate begins at, where there is one:
	// cAdvisor's housekeeping interval in the kubelet.
	minBaseAge = 10 * time.Second
	// minRateInterval is the shortest time that a rate is computed over, cAdvisor's.
	minRateInterval = 100 * time.Millisecond
	// maxBaseAge is how old the point that a rate begins at may be: an average over hours
	// says nothing about now.
	maxBaseAge = 5 * time.Minute
)

// point is a counter, in nanoseconds of CPU, at a time.
type point struct {
	at    time.Time
	usage uint64
}

// rate has the point that rates begin at, and a later one, which takes its place once it is
// old enough.
type rate struct {
	base, next point
	seen       bool // in this reading
}

// rates are those of everything that was read last, by name.
type rates struct{ byName map[string]*rate }

// observe returns the rate at a point, in nanoseconds of CPU a second; nil if no earlier
// point is known. What was born recently had used nothing then.
func (r *rates) observe(name string, now point, born time.Time) *uint64 {
	known := r.byName[name]
	if known != nil && (now.usage < known.next.usage || now.at.Sub(known.next.at) > maxBaseAge) {
		known = nil // another one of the same name, or too long ago
	}
	if known == nil {
		base := now
		if age := now.at.Sub(born); age > 0 && age <= maxBaseAge {
			base = point{at: born}
		}
		known = &rate{base: base, next: now}
		r.byName[name] = known
	}
	known.seen = true
	if now.at.Sub(known.next.at) >= minBaseAge {
		known.base, known.next = known.next, now
	}
	took := now.at.Sub(known.base.at)
	if took < minRateInterval {
		return nil
	}
	n := uint64(float64(now.usage-known.base.usage) / took.Seconds())
	return &n
}

// forget drops what was not observed since the last call.
func (r *rates) forget() {
	maps.DeleteFunc(r.byName, func(_ string, one *rate) bool {
		seen := one.seen
		one.seen = false
		return !seen
	})
}

package pod

import (
	"math"
	"time"
)

// MaxInterval replaces any longer time of the API. It is 68 years: fields of 64 bits hold
// more seconds than a time.Duration does, and sums of two must not overflow either.
const MaxInterval = math.MaxInt32 * time.Second

// Seconds converts a number of seconds from the API to a duration, MaxInterval at most in
// either direction.
func Seconds(n int64) time.Duration {
	return time.Duration(min(max(n, math.MinInt32), int64(MaxInterval/time.Second))) * time.Second
}

// GracePeriod converts a grace period of the API to a duration: a negative one becomes a
// second, as in upstream's kubelet (calculateEffectiveGracePeriod in
// pkg/kubelet/pod_workers.go); 0 stays 0.
func GracePeriod(n int64) time.Duration {
	if n < 0 {
		return time.Second
	}
	return Seconds(n)
}

package pod

import (
	"math"
	"testing"
	"time"
)

func TestSecondsOfTheAPIDoNotOverflow(t *testing.T) {
	for n, want := range map[int64]time.Duration{
		0: 0, 1: time.Second, 30: 30 * time.Second, -1: -time.Second,
		math.MaxInt32: MaxInterval, math.MaxInt32 + 1: MaxInterval, 9999999999: MaxInterval, math.MaxInt64: MaxInterval,
		math.MinInt64: -MaxInterval - time.Second,
	} {
		if got := Seconds(n); got != want {
			t.Errorf("Seconds(%d): got %v, want %v", n, got, want)
		}
		if n < 0 {
			want = time.Second
		}
		if got := GracePeriod(n); got != want {
			t.Errorf("GraceSeconds(%d): got %v, want %v", n, got, want)
		}
	}
	if sum := MaxInterval + MaxInterval/2; sum < MaxInterval {
		t.Errorf("one and a half of it overflow: %v", sum)
	}
}

package pod

import (
	"testing"
	"time"
)

func TestCPUNumbers(t *testing.T) {
	for _, c := range []struct{ milli, shares, weight, quota int64 }{
		{0, 2, 1, 0}, {1, 2, 1, 1000}, {10, 10, 1, 1000}, {100, 102, 4, 10000}, {1000, 1024, 39, 100000}, {2500, 2560, 98, 250000}, {1_000_000, 262144, 10000, 100_000_000},
	} {
		shares := CPUShares(c.milli)
		if weight, quota := CPUWeight(shares), CPUQuota(c.milli, 100*time.Millisecond); shares != c.shares || weight != c.weight || quota != c.quota {
			t.Errorf("%dm: got shares %d, weight %d, quota %d; want %d, %d, %d", c.milli, shares, weight, quota, c.shares, c.weight, c.quota)
		}
	}
	if got := CPUQuota(500, 10*time.Millisecond); got != 5000 {
		t.Errorf("a period of 10 ms: got %d, want 5000", got)
	}
}

package perftest

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns the CPU time that a process has used so far, in nanoseconds, with all its
// threads and without its children; pid 0 is the caller.
func CPUTime(pid int) (time.Duration, error) {
	// See clock_getcpuclockid(3): the clock of a process is its complement, shifted,
	// and 2 for the scheduler's count.
	id := int32(^pid)<<3 | 2
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

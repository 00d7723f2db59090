package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// calm is how long no pod has changed before code is let go of.
	calm = 5 * time.Second
	// dropGap is the least time between two such times: each costs about a
	// millisecond of processor time.
	dropGap = 30 * time.Second
	// gcPercent is what the heap may grow by between two collections. Little of
	// podd's memory is its heap, and a collection takes some milliseconds, ten or
	// twenty times in a burst of 50 pods.
	gcPercent = 50
)

// limitHeap is overruled by the environment's GOGC.
func limitHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// dropCodeWhenCalm lets go of podd's code after it has started, and after pods
// have changed: at rest podd runs little of it.
func (n *node) dropCodeWhenCalm(ctx context.Context) error {
	changed, stop := n.status.Changes()
	defer stop()
	timer := time.NewTimer(calm)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-changed:
			timer.Reset(max(calm, time.Until(last.Add(dropGap))))
		case <-timer.C:
			last = time.Now()
			if err := dropCode(); err != nil {
				n.log.Debug("code that is not needed stays in memory", "error", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// dropCode unmaps the pages of podd's own file, which are two thirds of its
// memory after the start: upstream's API types and their validation initialise
// themselves, and the kernel maps sixteen pages where one is asked for. What is
// used comes back from the page cache at its next use.
func dropCode() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	var from, to uint64 // of the mapping that the lines are about; from is 0 for one that stays
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		key, value, _ := strings.Cut(line, " ")
		switch {
		case !strings.HasSuffix(key, ":"):
			from = 0
			if begin, end, ok := strings.Cut(key, "-"); ok && strings.HasPrefix(value, "r-") && strings.HasSuffix(line, " "+self) {
				if from, err = strconv.ParseUint(begin, 16, 64); err != nil {
					return err
				}
				if to, err = strconv.ParseUint(end, 16, 64); err != nil {
					return err
				}
			}
		// A page that the loader or a debugger has changed would come back unchanged.
		case key == "Anonymous:" && from > 0 && strings.TrimSpace(value) == "0 kB":
			if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED); errno != 0 {
				return fmt.Errorf("let go of the pages from %#x: %w", from, errno)
			}
		}
	}
	return lines.Err()
}

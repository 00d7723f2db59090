package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapUnused gives up the mapped pages of the program itself. After podd's start these are
// some 17 MiB, since the kernel maps sixteen pages around each one that is touched. A page that
// is used again is mapped again from the page cache within microseconds. The kernel may then
// reclaim the rest as it does other pages of files. Until it does, the machine has no more free
// memory than before, but podd's resident memory is only what podd uses.
func unmapUnused(log *slog.Logger) {
	exe, err := os.Readlink("/proc/self/exe")
	if err == nil {
		err = unmapProgram(exe)
	}
	if err != nil {
		log.Debug("cannot unmap what of the program is not used", "error", err)
	}
}

func unmapProgram(exe string) error {
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer func() { _ = smaps.Close() }()
	all, err := unmodifiedMappings(smaps, exe)
	if err != nil {
		return err
	}
	for _, m := range all {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// unmodifiedMappings returns the mappings of a file that are not writable and have no page
// that differs from the file. A program that is relocated, or being debugged, has pages that
// differ. These must not be dropped.
func unmodifiedMappings(smaps io.Reader, file string) (all []mapping, err error) {
	var current mapping
	of := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 5 && !strings.HasSuffix(fields[0], ":") { // 00400000-015e2000 r-xp 00000000 fe:00 123 /usr/bin/podd
			of = false
			if len(fields) < 6 || strings.Join(fields[5:], " ") != file || len(fields[1]) < 2 || fields[1][1] == 'w' {
				continue
			}
			from, to, _ := strings.Cut(fields[0], "-")
			start, err1 := strconv.ParseUint(from, 16, 64)
			end, err2 := strconv.ParseUint(to, 16, 64)
			if err1 != nil || err2 != nil || end <= start {
				return nil, fmt.Errorf("unknown line %q", lines.Text())
			}
			current, of = mapping{uintptr(start), uintptr(end)}, true
		}
		if of && fields[0] == "Anonymous:" && len(fields) > 1 && fields[1] == "0" {
			all = append(all, current)
		}
	}
	return all, lines.Err()
}

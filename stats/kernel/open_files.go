package kernel

import (
	"bytes"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxLinks bounds in how many open files of a cgroup a reading looks for sockets: a container
// may open any number of them.
const maxLinks = 1 << 16

// countOpenFiles counts what the processes named in the text of cgroup.procs have open, and
// reads the limit of the first. A process that ends meanwhile counts for what was seen of it.
func (r *Reader) countOpenFiles(f *file, members []byte, s *Sample) {
	f.pids = f.pids[:0]
	for line := range bytes.FieldsSeq(members) {
		if pid := int(parseNumber(line)); pid != 0 {
			f.pids = append(f.pids, pid)
		}
	}
	links := maxLinks
	for _, pid := range f.pids {
		r.countOpenFilesOf(f, pid, s, &links)
	}
	if s.FirstPID != 0 {
		s.MaxOpenFiles = r.maxOpenFiles(f, s.FirstPID)
	}
}

// maxOpenFiles returns a process's soft limit, -1 for none, 0 if it is unknown. The kernel
// has a call for one limit, which costs a tenth of reading its file of all limits. Another
// /proc than podd's own shows other processes, so the call is not used there.
func (r *Reader) maxOpenFiles(f *file, pid int) int64 {
	var limit unix.Rlimit
	if r.cfg.Proc == "/proc" && unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit) == nil {
		if limit.Cur > math.MaxInt64 {
			return -1
		}
		return int64(limit.Cur)
	}
	limits, _ := f.read(r.cfg.Proc+"/"+strconv.Itoa(pid), "limits") // without it they are unknown
	return parseMaxOpenFiles(limits)
}

// countOpenFilesOf adds what one process has open. It reads only the names that the kernel
// gives the files: a look at a file may hang with the server of its file system.
func (r *Reader) countOpenFilesOf(f *file, pid int, s *Sample, links *int) {
	dir, err := unix.Open(r.cfg.Proc+"/"+strconv.Itoa(pid)+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(dir) }()
	own := pid == os.Getpid() && r.cfg.Proc == "/proc"
	for {
		n, err := unix.ReadDirent(dir, f.buf)
		if err != nil || n <= 0 {
			return
		}
		f.names = f.names[:0]
		_, _, f.names = unix.ParseDirent(f.buf[:n], -1, f.names)
		s.OpenFiles += uint64(len(f.names))
		for _, name := range f.names {
			if *links--; *links < 0 {
				break
			}
			if own && r.cache.has(name) {
				continue // thousands, and no sockets
			}
			if isSocket(dir, name) {
				s.OpenSockets++
			}
		}
	}
}

func isSocket(dir int, name string) bool {
	var link [len("socket:")]byte
	n, err := unix.Readlinkat(dir, name, link[:])
	return err == nil && string(link[:n]) == "socket:"
}

// parseMaxOpenFiles reads the soft limit in /proc/PID/limits.
func parseMaxOpenFiles(limits []byte) int64 {
	for line := range bytes.Lines(limits) {
		if rest, ok := bytes.CutPrefix(line, []byte("Max open files")); ok {
			soft, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte{' '})
			if string(soft) == "unlimited" {
				return -1
			}
			return int64(parseNumber(soft))
		}
	}
	return 0
}

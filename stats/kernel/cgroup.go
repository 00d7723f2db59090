package kernel

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Config says where the kernel shows its numbers.
type Config struct {
	// V2 is false for v1 and hybrid hierarchies. Controllers maps each controller to its
	// mount point.
	V2          bool
	Controllers map[string]string
	// Proc and Sys are the mount points of procfs and sysfs; "" for the usual ones.
	Proc, Sys string
}

// Reader reads cgroups and processes. Create it with New, once in a process: what it has open
// stays so.
type Reader struct {
	cfg    Config
	booted time.Time
	cache  *fileCache
}

// New returns a Reader. It reads only the clock, and the kind of the hierarchies.
func New(cfg Config) *Reader {
	if cfg.Proc == "" {
		cfg.Proc = "/proc"
	}
	if cfg.Sys == "" {
		cfg.Sys = "/sys"
	}
	return &Reader{cfg: cfg, booted: bootTime(), cache: newFileCache(cfg.Controllers)}
}

// Detail is how much of a cgroup is read: Usage is what /stats/summary shows, in about half
// the time of All.
type Detail int

const (
	Usage Detail = iota
	All
)

// Cgroup reads a cgroup by its path in the hierarchies. The root is "/", with the machine's
// memory. It returns ErrGone if there is no such cgroup. Files stay open for the next
// reading, until a Sweep.
func (r *Reader) Cgroup(rel string, detail Detail) (Sample, error) {
	h := r.cache.acquire(rel)
	again := len(h.dirs) > 0
	s, err := r.cgroup(h, rel, detail)
	if again && errors.Is(err, ErrGone) { // there may be another one of that name
		h.close()
		s, err = r.cgroup(h, rel, detail)
	}
	if err != nil {
		h.close()
	}
	h.trim()
	r.cache.release(rel, h)
	return s, err
}

// Sweep closes the files of cgroups that were not read since the last Sweep.
func (r *Reader) Sweep() { r.cache.sweep() }

// cgroup reads a cgroup, using the files that are already open.
func (r *Reader) cgroup(h *handles, rel string, detail Detail) (Sample, error) {
	f := files.Get().(*file)
	defer files.Put(f)
	s := Sample{Time: time.Now()}
	in := &reads{file: f, handles: h}
	at, created, err := r.find(in, rel)
	if err != nil {
		return s, err
	}
	s.Created = created
	if r.cfg.V2 {
		r.v2(in, &at, detail, &s)
	} else {
		r.v1(in, &at, detail, &s)
	}
	in.checkReplaced()
	if in.err == nil && in.missed && !at.allExist() {
		return s, ErrGone // what is not there would pass for a counter that began again
	}
	if in.err == nil && at.root {
		proc := &reads{file: f}
		defer proc.close()
		r.machineMemory(proc, &s)
		in.err = proc.err
	}
	return s, in.err
}

// Memory reads the memory of a cgroup alone, as Cgroup does, with the machine's as the limit
// of the root. It returns ErrGone if there is no such cgroup, or no accounting of memory.
func (r *Reader) Memory(rel string) (Memory, error) {
	f := files.Get().(*file)
	defer files.Put(f)
	mount, ok := r.cfg.Controllers["memory"]
	if !ok {
		return Memory{}, ErrGone
	}
	root := rel == "/"
	if root {
		rel = ""
	}
	in := &reads{file: f, dir: mount + rel}
	defer in.close()
	m := &Memory{}
	if r.cfg.V2 {
		m = in.memoryV2(root)
	} else if !in.memoryV1(m) {
		m = nil
	}
	switch {
	case in.err != nil:
		return Memory{}, in.err
	case m == nil:
		return Memory{}, ErrGone
	}
	if root {
		in.dir = r.cfg.Proc
		info := in.meminfo()
		m.Limit, m.HugePages = info.total, info.hugePages
	}
	return *m, in.err
}

// cgroupDirs are a cgroup's directories, one in each hierarchy; "" in one where it is not. On
// v2 there is unified alone.
type cgroupDirs struct {
	root                                       bool
	unified, cpu, cpuacct, memory, pids, blkio string
}

// allExist reports whether all its directories are still there.
func (p *cgroupDirs) allExist() bool {
	var st unix.Stat_t
	for _, dir := range []string{p.unified, p.cpu, p.cpuacct, p.memory, p.pids, p.blkio} {
		if dir != "" && unix.Stat(dir, &st) != nil {
			return false
		}
	}
	return true
}

// find returns where a cgroup is, if it exists, and when it was made. On v1 it looks at
// one hierarchy; the read drops the others that lack the cgroup. podd makes the pods'
// cgroups in the hierarchies where it sets limits, the runtime makes the rest.
func (r *Reader) find(at *reads, rel string) (p cgroupDirs, created time.Time, err error) {
	p.root = rel == "/"
	if p.root {
		rel = ""
	}
	in := func(controller string) string {
		if mount, ok := r.cfg.Controllers[controller]; ok {
			return mount + rel
		}
		return ""
	}
	var dir string
	if r.cfg.V2 {
		p.unified = cmp.Or(in("memory"), in("cpu"))
		dir = p.unified
	} else {
		p.cpu, p.cpuacct, p.memory, p.pids, p.blkio = in("cpu"), in("cpuacct"), in("memory"), in("pids"), in("blkio")
		dir = cmp.Or(p.memory, p.cpu, p.pids)
	}
	at.dir = dir
	if created, err = r.created(at); errors.Is(err, errMissing) {
		err = ErrGone
	}
	return p, created, err
}

// created returns when a directory was made. It is modified by each cgroup made or removed
// in it, the named file by nothing; both may be older than the machine's start by the
// clock, which was set since. Of a directory that stays open it was asked before.
func (r *Reader) created(in *reads) (time.Time, error) {
	name := "cgroup.clone_children"
	if r.cfg.V2 {
		name = "cgroup.events"
	}
	var st unix.Stat_t
	if err := in.enter(); err != nil {
		return time.Time{}, err
	}
	if !in.currentDir.created.IsZero() {
		return in.currentDir.created, nil
	}
	if err := unix.Fstat(in.currentDir.fd, &st); err != nil {
		return time.Time{}, &os.PathError{Op: "stat", Path: in.dir, Err: err}
	}
	at := time.Unix(st.Mtim.Unix())
	if unix.Fstatat(in.currentDir.fd, name, &st, 0) == nil {
		if t := time.Unix(st.Mtim.Unix()); t.Before(at) {
			at = t
		}
	}
	if at.Before(r.booted) {
		at = r.booted
	}
	in.currentDir.created = at
	return at, nil
}

// processes counts the lines of cgroup.procs. Processes of another PID namespace are 0
// there.
func processes(text []byte, s *Sample) {
	for line := range bytes.FieldsSeq(text) {
		s.Processes++
		if s.FirstPID == 0 {
			s.FirstPID = int(parseNumber(line))
		}
	}
}

// device finds or adds the device "major:minor".
func (s *Sample) device(name []byte) *Device {
	a, b, ok := bytes.Cut(name, []byte{':'})
	if !ok {
		return nil
	}
	major, minor := parseNumber(a), parseNumber(b)
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Major == major && d.Minor == minor {
			return d
		}
	}
	s.Devices = append(s.Devices, Device{Major: major, Minor: minor})
	return &s.Devices[len(s.Devices)-1]
}

func (s *Sample) sortDevices() {
	slices.SortFunc(s.Devices, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	})
}

// pressure reads a pressure file; nil without one.
func (r *reads) pressure(name string) *Pressure {
	text := r.text(name)
	if len(text) == 0 {
		return nil
	}
	var p Pressure
	for line := range bytes.Lines(text) {
		kind, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
		stall := &p.Some
		if string(kind) == "full" {
			stall = &p.Full
		}
		for field := range bytes.FieldsSeq(rest) {
			name, value, _ := bytes.Cut(field, []byte{'='})
			percent, _ := strconv.ParseFloat(string(value), 64)
			switch string(name) {
			case "avg10":
				stall.Avg10 = percent
			case "avg60":
				stall.Avg60 = percent
			case "avg300":
				stall.Avg300 = percent
			case "total":
				stall.Total = parseNumber(value)
			}
		}
	}
	return &p
}

// bootTime returns when the machine started, by the clock as it is now.
func bootTime() time.Time {
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}

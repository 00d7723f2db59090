package kernel

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podd/internal/child"
)

// realGroup is a cgroup in the hierarchies of this machine.
type realGroup struct {
	t   *testing.T
	cfg Config
	rel string
}

// onRealGroups runs a test on v1 and v2, on what of them the machine has.
func onRealGroups(t *testing.T, test func(*testing.T, *realGroup)) {
	unified := "/sys/fs/cgroup"
	if _, err := os.Stat(unified + "/cgroup.controllers"); err != nil {
		unified += "/unified" // hybrid: it has the usage of CPU and pressure
	}
	for name, v2 := range map[string]bool{"v1": false, "v2": true} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skip("not root: no cgroup can be made")
			}
			rel := "/poddtest-" + strings.ReplaceAll(t.Name(), "/", "-") + strconv.Itoa(os.Getpid())
			g := &realGroup{t: t, cfg: Config{V2: v2, Controllers: map[string]string{}}, rel: rel}
			for _, name := range []string{"memory", "cpu", "cpuacct", "pids", "blkio"} {
				g.cfg.Controllers[name] = "/sys/fs/cgroup/" + name
				if v2 {
					g.cfg.Controllers[name] = unified
				}
			}
			t.Cleanup(func() { g.remove() })
			g.make()
			test(t, g)
		})
	}
}

func (g *realGroup) make(only ...string) {
	g.t.Helper()
	for name, mount := range g.cfg.Controllers {
		if len(only) > 0 && name != only[0] {
			continue
		}
		if err := os.Mkdir(mount+g.rel, 0o755); err != nil && (!g.cfg.V2 || !errors.Is(err, os.ErrExist)) {
			g.t.Skip("a cgroup cannot be made: ", err)
		}
	}
}

func (g *realGroup) remove(only ...string) {
	for name, mount := range g.cfg.Controllers {
		if len(only) == 0 || name == only[0] {
			_ = syscall.Rmdir(mount + g.rel) // it may be gone
		}
	}
}

func (g *realGroup) write(controller, name, text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.cfg.Controllers[controller]+g.rel, name), []byte(text), 0); err != nil {
		g.t.Fatal(err)
	}
}

// use has the cgroup use some of the processor, in a process that has ended.
func (g *realGroup) use() {
	g.t.Helper()
	script := "for i in \"$@\"; do echo $$ > $i" + g.rel + "/cgroup.procs; done; head -c 64M /dev/zero > /dev/null"
	args := []string{"-c", script, "sh"}
	for _, mount := range g.cfg.Controllers {
		args = append(args, mount)
	}
	if out, err := exec.Command("sh", args...).CombinedOutput(); err != nil {
		g.t.Fatalf("%v: %s", err, out)
	}
}

func (g *realGroup) read(r *Reader) Sample {
	g.t.Helper()
	s, err := r.Cgroup(g.rel, All)
	if err != nil || s.CPU == nil {
		g.t.Fatalf("got %+v, %v", s, err)
	}
	return s
}

// TestOpenFilesTellWhatIsTrueNow: with what stays open a reading is as one of a Reader that
// has nothing open.
func TestOpenFilesTellWhatIsTrueNow(t *testing.T) { onRealGroups(t, openFilesTellWhatIsTrueNow) }

func openFilesTellWhatIsTrueNow(t *testing.T, g *realGroup) {
	r := New(g.cfg)
	g.read(r)
	if len(r.cache.fds) < 4 {
		t.Fatalf("%d files stay open", len(r.cache.fds))
	}
	before := g.read(r)
	g.use()
	sleep := exec.Command("sleep", "1000")
	if err := child.Start(sleep); err != nil {
		t.Fatal(err)
	}
	end := func() { _, _ = sleep.Process.Kill(), sleep.Wait() } // it is ours, and sleeps
	t.Cleanup(end)
	for name := range g.cfg.Controllers {
		g.write(name, "cgroup.procs", strconv.Itoa(sleep.Process.Pid))
	}
	if !g.cfg.V2 {
		g.write("cpu", "cpu.shares", "77")
		g.write("memory", "memory.limit_in_bytes", "268435456")
	}
	got, want := g.read(r), g.read(New(g.cfg))
	if got.CPU.Usage <= before.CPU.Usage || got.Processes != 1 || got.FirstPID != sleep.Process.Pid {
		t.Errorf("got %+v, CPU %+v, before it was %+v", got, got.CPU, before.CPU)
	}
	if got.CPU.Shares != want.CPU.Shares || got.Threads != want.Threads || !got.Created.Equal(want.Created) {
		t.Errorf("got %+v, want %+v", got.CPU, want.CPU)
	}
	if m, n := got.Memory, want.Memory; m != nil && (m.Limit != n.Limit || m.MemorySwapLimit != n.MemorySwapLimit) {
		t.Errorf("got %+v, want %+v", m, n)
	}
	end()
	if got = g.read(r); got.Processes != 0 || got.FirstPID != 0 {
		t.Errorf("a process that has ended is still counted: %+v", got)
	}
}

// TestACgroupOfTheSameNameHasNothingOfTheFormer, whether it is made anew in all hierarchies
// or in one.
func TestACgroupOfTheSameNameHasNothingOfTheFormer(t *testing.T) {
	onRealGroups(t, aCgroupOfTheSameNameHasNothingOfTheFormer)
}

func aCgroupOfTheSameNameHasNothingOfTheFormer(t *testing.T, g *realGroup) {
	r := New(g.cfg)
	g.use()
	if s := g.read(r); s.CPU.Usage == 0 {
		t.Fatal("nothing was used")
	}
	g.remove()
	if s, err := r.Cgroup(g.rel, All); !errors.Is(err, ErrGone) {
		t.Errorf("after its end: got %+v, %v", s, err)
	}
	g.make()
	if s := g.read(r); s.CPU.Usage != 0 || s.Memory != nil && s.Memory.MaxUsage != 0 {
		t.Errorf("made anew: got %+v, %+v", s.CPU, s.Memory)
	}
	g.use()
	g.read(r)
	g.remove()
	g.make()
	begun := time.Now()
	if s := g.read(r); s.CPU.Usage != 0 || s.Created.Before(begun.Add(-time.Minute)) {
		t.Errorf("made anew before anybody saw it gone: got %+v, made %v", s.CPU, s.Created)
	}
	if g.cfg.V2 {
		return
	}
	for _, name := range []string{"cpu", "cpuacct", "memory", "pids", "blkio"} {
		g.use()
		g.write("cpu", "cpu.shares", "77")
		g.write("pids", "pids.max", "99")
		g.read(r)
		g.remove(name)
		g.make(name)
		got, want := g.read(r), g.read(New(g.cfg))
		if got.CPU.Usage != want.CPU.Usage || got.CPU.Shares != want.CPU.Shares || got.ThreadsMax != want.ThreadsMax ||
			got.Memory.MaxUsage != want.Memory.MaxUsage || !got.Created.Equal(want.Created) {
			t.Errorf("%s made anew: got %+v, %+v, %+v\nwant %+v, %+v, %+v", name, got, got.CPU, got.Memory, want, want.CPU, want.Memory)
		}
	}
}

// TestFilesStayOpenWhileTheirCgroupIsRead, and no more than there is room for.
func TestFilesStayOpenWhileTheirCgroupIsRead(t *testing.T) {
	onRealGroups(t, filesStayOpenWhileTheirCgroupIsRead)
}

func filesStayOpenWhileTheirCgroupIsRead(t *testing.T, g *realGroup) {
	// Those of the cgroup alone: other tests have files, too.
	open := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(to, g.rel) {
				n++
			}
		}
		return n
	}
	r := New(g.cfg)
	g.read(r)
	all := open()
	for range 3 {
		r.Sweep()
		g.read(r)
	}
	if n := open(); n != all || n != len(r.cache.fds) {
		t.Errorf("%d files were open after the first reading, %d after the last, %d are known", all, n, len(r.cache.fds))
	}
	r.Sweep()
	r.Sweep()
	if n := open(); n != 0 || len(r.cache.fds) != 0 {
		t.Errorf("%d files of a cgroup that nobody reads are open, %d are known", n, len(r.cache.fds))
	}

	r.cache.mostFiles, r.cache.mostDirs = 3, 1
	for range 2 {
		g.read(r)
		if n := open(); n != 4 {
			t.Errorf("with room for three and a directory: %d are open", n)
		}
	}
	g.remove()
	if _, err := r.Cgroup(g.rel, All); !errors.Is(err, ErrGone) || open() != 0 {
		t.Errorf("after its end: %d are open, %v", open(), err)
	}
}

// TestASettingIsReadAgainOnceSomebodyHasWrittenOne, and not before.
func TestASettingIsReadAgainOnceSomebodyHasWrittenOne(t *testing.T) {
	onRealGroups(t, aSettingIsReadAgainOnceSomebodyHasWrittenOne)
}

func aSettingIsReadAgainOnceSomebodyHasWrittenOne(t *testing.T, g *realGroup) {
	type change struct {
		controller, name, text string
		of                     func(Sample) uint64
	}
	changes := []change{
		{"memory", "memory.limit_in_bytes", "268435456", func(s Sample) uint64 { return s.Memory.Limit }},
		{"memory", "memory.soft_limit_in_bytes", "134217728", func(s Sample) uint64 { return s.Memory.Reservation }},
		{"cpu", "cpu.shares", "77", func(s Sample) uint64 { return s.CPU.Shares }},
		{"cpu", "cpu.cfs_period_us", "50000", func(s Sample) uint64 { return s.CPU.Period }},
		{"pids", "pids.max", "99", func(s Sample) uint64 { return s.ThreadsMax }},
	}
	if g.cfg.V2 {
		changes = []change{
			{"memory", "memory.max", "268435456", func(s Sample) uint64 { return s.Memory.Limit }},
			{"memory", "memory.min", "4096", func(s Sample) uint64 { return s.Memory.Reservation }},
			{"memory", "memory.swap.max", "8192", func(s Sample) uint64 { return s.Memory.SwapLimit }},
			{"cpu", "cpu.weight", "77", func(s Sample) uint64 { return s.CPU.Shares }},
			{"cpu", "cpu.max", "20000 50000", func(s Sample) uint64 { return s.CPU.Quota*1000000 + s.CPU.Period }},
			{"pids", "pids.max", "99", func(s Sample) uint64 { return s.ThreadsMax }},
		}
	}
	r := New(g.cfg)
	for range 3 {
		g.read(r)
	}
	tried := 0
	for _, c := range changes {
		path := g.cfg.Controllers[c.controller] + g.rel + "/" + c.name
		if _, err := os.Stat(path); err != nil {
			continue // this hierarchy does not have the controller
		}
		tried++
		before := c.of(g.read(r))
		opened := opens(t, filepath.Dir(path))
		if got := c.of(g.read(r)); got != before || slices.Contains(opened(), c.name) {
			t.Errorf("%s: it was read again though nobody had written it, or got %d, want %d", c.name, got, before)
		}
		g.write(c.controller, c.name, c.text)
		if !slices.Contains(opened(), c.name) {
			t.Errorf("%s: the test sees no opening", c.name)
		}
		got, want := c.of(g.read(r)), c.of(g.read(New(g.cfg)))
		if got != want || got == before {
			t.Errorf("%s: got %d once it was written, want %d, before %d", c.name, got, want, before)
		}
	}
	if tried == 0 {
		t.Skip("this hierarchy has none of the controllers")
	}
	r.Sweep()
	r.Sweep()
	if r.cache.dirs != 0 || r.cache.writes.Add(g.cfg.Controllers["cpu"]+g.rel) == nil {
		t.Errorf("a cgroup that nobody reads has %d directories, or is still watched", r.cache.dirs)
	}
}

// opens returns a function that names what was opened in a directory since it was called last.
func opens(t *testing.T, dir string) func() []string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // it was only read
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() (names []string) {
		buf := make([]byte, 64<<10)
		n, _ := unix.Read(fd, buf) // nothing was opened
		for text := buf[:max(n, 0)]; len(text) > 0; {
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(text[12:]))
			names = append(names, strings.TrimRight(string(text[unix.SizeofInotifyEvent:size]), "\x00"))
			text = text[size:]
		}
		return names
	}
}

package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

// tree writes the files of testdata/name and returns their directory.
func tree(t *testing.T, name string) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range archive.Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// of returns a Reader of a fixture.
func of(t *testing.T, name string) (*Reader, string) {
	t.Helper()
	dir := tree(t, name)
	cfg := Config{V2: name == "v2.txtar", Controllers: map[string]string{}, Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys")}
	for _, c := range []string{"cpu", "cpuacct", "memory", "pids", "blkio"} {
		cfg.Controllers[c] = filepath.Join(dir, "cgroup", c)
		if cfg.V2 {
			cfg.Controllers[c] = filepath.Join(dir, "cgroup")
		}
	}
	return New(cfg), dir
}

const mib = 1 << 20

// TestACgroupIsReadAlikeOnV1AndV2: one container, as the kernel shows it in both.
func TestACgroupIsReadAlikeOnV1AndV2(t *testing.T) {
	for _, name := range []string{"v1.txtar", "v2.txtar"} {
		t.Run(name, func(t *testing.T) {
			r, _ := of(t, name)
			s, err := r.Cgroup("/pods/burstable/poda/c1", All)
			if err != nil {
				t.Fatal(err)
			}
			if time.Since(s.Time) > time.Minute || s.Created.IsZero() || s.Created.After(s.Time) {
				t.Errorf("read at %v, made at %v", s.Time, s.Created)
			}
			wantCPU := CPU{
				Usage: 12_345_678_000, User: 10_500_000_000, System: 1_840_000_000,
				Periods: 120, ThrottledPeriods: 7, ThrottledTime: 350_000_000, Bursts: 2, BurstTime: 9_000_000,
				Shares: 512, Quota: 20000, Period: 100000,
			}
			if name == "v2.txtar" {
				wantCPU.Shares = 2 + 19*262142/9999 // of weight 20, which shares 512 become
			}
			if s.CPU == nil || *s.CPU != wantCPU {
				t.Errorf("CPU: got %+v, want %+v", s.CPU, wantCPU)
			}
			wantMemory := Memory{
				Usage: 60 * mib, MaxUsage: 70 * mib, WorkingSet: 52 * mib, RSS: 40 * mib, Cache: 15 * mib, MappedFile: 3 * mib, Kernel: 2 * mib,
				ActiveFile: 5 * mib, InactiveFile: 8 * mib, Swap: 4 * mib, Failcnt: 11, Faults: 9000, MajorFaults: 12, OwnFaults: 9000, OwnMajorFaults: 12,
				Limit: 128 * mib, Reservation: 1 * mib, SwapLimit: 64 * mib, MemorySwapLimit: 192 * mib, OOMKills: 3,
			}
			if name == "v2.txtar" {
				wantMemory.MemorySwapLimit, wantMemory.HighEvents = 64*mib, 7
				wantMemory.Reclaim = &Reclaim{Dirty: 4096, Writeback: 12288, Scanned: 33, Stolen: 34, RefaultedFile: 32, RefaultedAnon: 31}
			}
			if !reflect.DeepEqual(s.Memory, &wantMemory) {
				t.Errorf("memory: got %+v, want %+v", s.Memory, wantMemory)
			}
			if s.Processes != 2 || s.FirstPID != 4711 || s.Threads != 5 || s.ThreadsMax != 100 {
				t.Errorf("got %d processes, the first %d, %d threads of %d", s.Processes, s.FirstPID, s.Threads, s.ThreadsMax)
			}
			wantDevices := []Device{
				{Major: 8, Minor: 0, ReadBytes: 4096, WrittenBytes: 8192, Reads: 1, Writes: 2},
				{Major: 253, Minor: 1, ReadBytes: 512, WrittenBytes: 1024, Reads: 3, Writes: 4},
			}
			if !reflect.DeepEqual(s.Devices, wantDevices) {
				t.Errorf("devices: got %+v", s.Devices)
			}
			if p := s.CPUPressure; (name == "v2.txtar") != (p != nil) || p != nil && (p.Some != Stall{Total: 1500, Avg10: 0.5, Avg60: 1.25, Avg300: 3} || p.Full.Total != 100) {
				t.Errorf("pressure: got %+v", p)
			}
			if s.IOPressure != nil {
				t.Error("pressure of devices out of nothing")
			}
		})
	}
}

// TestWhatIsUnlimitedAndWhatIsMissing: "max", v1's greatest number, and a kernel without
// swap accounting, pids, block devices.
func TestWhatIsUnlimitedAndWhatIsMissing(t *testing.T) {
	for _, name := range []string{"v1.txtar", "v2.txtar"} {
		t.Run(name, func(t *testing.T) {
			r, _ := of(t, name)
			s, err := r.Cgroup("/pods", All)
			if err != nil {
				t.Fatal(err)
			}
			if m := s.Memory; m.Limit < Unlimited || m.SwapLimit < Unlimited || m.MemorySwapLimit < Unlimited || m.Swap != 0 {
				t.Errorf("got %+v, want no limits", m)
			}
			if s.CPU.Quota != 0 || s.ThreadsMax != 0 || s.Devices != nil || s.Processes != 0 {
				t.Errorf("got %+v, quota %d", s, s.CPU.Quota)
			}
			if s.CPU.Usage != 20_000_000_000 || s.Memory.Usage != 90*mib {
				t.Errorf("got %d, %d", s.CPU.Usage, s.Memory.Usage)
			}
		})
	}
}

// TestTheRootIsTheMachine: its memory and swap are the limits; on v2 the root has no
// memory.current.
func TestTheRootIsTheMachine(t *testing.T) {
	for _, name := range []string{"v1.txtar", "v2.txtar"} {
		t.Run(name, func(t *testing.T) {
			r, _ := of(t, name)
			s, err := r.Cgroup("/", All)
			if err != nil {
				t.Fatal(err)
			}
			m := s.Memory
			if whole, err := r.Memory("/"); err != nil || whole.HugePages != 512*mib || m.HugePages != 512*mib || whole.Available() != 4<<30-(250+512)*mib {
				t.Errorf("huge pages: got %+v, %v", whole, err)
			}
			if m.Limit != 4<<30 || m.SwapLimit != 1<<30 || m.Usage != 300*mib || m.WorkingSet != 250*mib || m.Swap != 256*mib {
				t.Errorf("got %+v", m)
			}
			if s.CPU.Usage != 100_000_000_000 {
				t.Errorf("CPU: got %+v", s.CPU)
			}
			if s.CPUPressure == nil || s.CPUPressure.Some.Total != 7 || s.MemoryPressure != nil {
				t.Errorf("pressure: got %+v and %+v, want that of /proc", s.CPUPressure, s.MemoryPressure)
			}
		})
	}
}

// TestACgroupThatIsGoneIsNoReading: neither before nor half-way.
func TestACgroupThatIsGoneIsNoReading(t *testing.T) {
	for _, name := range []string{"v1.txtar", "v2.txtar"} {
		r, dir := of(t, name)
		if _, err := r.Cgroup("/pods/none", All); !errors.Is(err, ErrGone) {
			t.Errorf("%s: got %v for one that never was", name, err)
		}
		in := &reads{}
		at, _, err := r.find(in, "/pods/burstable/poda/c1")
		in.close()
		if err != nil || !at.allExist() {
			t.Fatalf("%s: got %v", name, err)
		}
		gone := filepath.Join(dir, "cgroup/memory/pods/burstable/poda/c1")
		if name == "v2.txtar" {
			gone = filepath.Join(dir, "cgroup/pods/burstable/poda/c1")
		}
		if err := os.RemoveAll(gone); err != nil {
			t.Fatal(err)
		}
		if at.allExist() {
			t.Errorf("%s: it is there without one of its directories", name)
		}
	}
}

// TestAPodWithoutContainersIsInFewerHierarchies: on v1 podd makes its cgroup only where it
// sets limits.
func TestAPodWithoutContainersIsInFewerHierarchies(t *testing.T) {
	r, dir := of(t, "v1.txtar")
	if err := os.RemoveAll(filepath.Join(dir, "cgroup/cpuacct/pods/burstable/poda")); err != nil {
		t.Fatal(err)
	}
	s, err := r.Cgroup("/pods/burstable/poda", All)
	if err != nil || s.CPU != nil || s.Memory == nil || s.Memory.Usage != 60*mib {
		t.Errorf("got %+v, %v, want its memory alone", s, err)
	}
}

func TestHostileFilesAreNoNumbers(t *testing.T) {
	for text, want := range map[string]uint64{
		"17\n": 17, " 17 ": 17, "max\n": 1<<64 - 1, "-1\n": 0, "": 0, "x": 0, "99999999999999999999999": 1<<64 - 1, "1 2": 0,
	} {
		if got := parseNumber([]byte(text)); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
	r, dir := of(t, "v2.txtar")
	c1 := filepath.Join(dir, "cgroup/pods/burstable/poda/c1")
	for file, text := range map[string]string{
		"io.stat": "8:0\nnonsense rbytes=1\n8:1 rbytes wbytes=x =\n", "memory.stat": "anon\nfile x\n\n" + strings.Repeat("y", 100_000), "cpu.max": "", "cpu.pressure": "some\nfull avg10=x\n",
	} {
		if err := os.WriteFile(filepath.Join(c1, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := r.Cgroup("/pods/burstable/poda/c1", All)
	if err != nil || len(s.Devices) != 1 || s.Devices[0] != (Device{Major: 8, Minor: 1}) || s.Memory.RSS != 0 || s.CPU.Quota != 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestInterfacesOfAProcess(t *testing.T) {
	r, _ := of(t, "v1.txtar")
	got, err := r.Network(4711)
	want := []Interface{
		{Name: "eth0", RxBytes: 1000, RxPackets: 10, RxErrors: 1, RxDropped: 2, TxBytes: 2000, TxPackets: 20, TxErrors: 3, TxDropped: 4},
		{Name: "net1", RxBytes: 1<<64 - 1, TxBytes: 1},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := r.Network(1 << 30); !errors.Is(err, ErrGone) {
		t.Errorf("of no process: got %v", err)
	}
	if got := r.DefaultInterface(); got != "eth7" {
		t.Errorf("default interface: got %q", got)
	}
}

func TestProcessesAndTheMachine(t *testing.T) {
	if up := time.Since(bootTime()); up <= 0 || up > 100*365*24*time.Hour {
		t.Errorf("the machine booted %v ago", up)
	}
	r, _ := of(t, "v1.txtar")
	p, err := r.Process(4711)
	want := Process{Started: r.booted.Add(300 * time.Second), CPU: 3_000_000_000, RSS: 25 * uint64(os.Getpagesize()), Faults: 77, MajorFaults: 5}
	if err != nil || p != want {
		t.Errorf("got %+v, %v, want %+v", p, err, want)
	}
	if _, err := r.Process(9); !errors.Is(err, ErrGone) {
		t.Errorf("of no process: got %v", err)
	}
	if running, most := r.Tasks(); running != 3518 || most != 30000 {
		t.Errorf("got %d tasks of %d", running, most)
	}
	m := r.Machine()
	if m.Cores != 4 || m.PhysicalCores != 2 || m.Sockets != 1 || m.Memory != 4<<30 || m.Swap != 1<<30 || m.Kernel != "6.1.0" || m.BootID != "boot" || m.SystemUUID != "uuid" {
		t.Errorf("got %+v", m)
	}
	if c, p, s := cores([]byte("processor\t: 0\nprocessor\t: 1\n")); c != 2 || p != 2 || s != 1 {
		t.Errorf("without topology: got %d, %d, %d", c, p, s)
	}
}

func TestCgroupOfAProcess(t *testing.T) {
	for _, tt := range []struct{ v1, v2, text string }{
		{"/system.slice/podd.service", "", "4:memory:/system.slice/podd.service\n3:cpu,cpuacct:/system.slice/podd.service\n0::/\n"},
		{"", "/system.slice/podd.service", "0::/system.slice/podd.service\n"},
		{"", "", "4:memory:/one\n2:cpuacct:/other\n0::/\n"},
		{"", "", ""},
	} {
		for _, v2 := range []bool{false, true} {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "5"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "5/cgroup"), []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			want := tt.v1
			if v2 {
				want = tt.v2
			}
			if got := New(Config{V2: v2, Proc: dir}).CgroupOf(5); got != want {
				t.Errorf("v2 %v, %q: got %q, want %q", v2, tt.text, got, want)
			}
		}
	}
}

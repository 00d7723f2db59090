package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTheKernelTellsWhenACgroupsMemoryRunsShort, and nothing while it does not.
func TestTheKernelTellsWhenACgroupsMemoryRunsShort(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: no cgroup can be made")
	}
	const mount = "/sys/fs/cgroup/memory"
	rel := "/poddtest-alarm-" + strconv.Itoa(os.Getpid())
	if _, err := os.Stat(mount + "/cgroup.event_control"); err != nil {
		t.Skip("no cgroup v1 here: thresholds of usage are v1's")
	}
	if err := os.Mkdir(mount+rel, 0o755); err != nil {
		t.Skip("a cgroup cannot be made: ", err)
	}
	t.Cleanup(func() { // the process is reaped by then
		if err := os.Remove(mount + rel); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(mount+rel, "memory.limit_in_bytes"), []byte("268435456"), 0); err != nil {
		t.Fatal(err)
	}
	r := New(Config{Controllers: map[string]string{"memory": mount}})
	a := r.NewAlarm()
	defer a.Close()
	const half = 128 << 20
	for range 3 { // the second and third replace nothing
		if err := a.Arm(rel, half); err != nil {
			t.Fatal(err)
		}
	}
	take := func(mib string) {
		t.Helper()
		cmd := exec.Command("sh", "-c", "echo $$ > "+mount+rel+"/cgroup.procs && head -c "+mib+"M /dev/zero | tail -c "+mib+"M > /dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	take("32")
	select {
	case <-a.C():
		t.Error("it rang with much left")
	default:
	}
	take("192")
	select {
	case <-a.C():
	case <-time.After(time.Minute):
		m, err := r.Memory(rel)
		t.Errorf("it did not ring: %+v %v", m, err)
	}
}

// TestATriggerOfPressureCanBeSetAndRemoved: whether memory is ever short here is not the
// test's to say.
func TestATriggerOfPressureCanBeSetAndRemoved(t *testing.T) {
	if f, err := os.OpenFile("/proc/pressure/memory", os.O_RDWR, 0); err != nil {
		t.Skip("no pressure stall information: ", err)
	} else if _, err := f.WriteString(pressureTrigger + "\x00"); err != nil {
		t.Skip("no triggers here: ", err)
	} else {
		_ = f.Close()
	}
	r := New(Config{V2: true})
	a := r.NewAlarm()
	open := func() (n int) {
		all, _ := os.ReadDir("/proc/self/fd")
		for _, e := range all {
			if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasSuffix(to, "/pressure/memory") {
				n++
			}
		}
		return n
	}
	for range 3 {
		if err := a.Arm("/", 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	if n := open(); n != 1 {
		t.Errorf("%d triggers", n)
	}
	a.Close()
	for end := time.Now().Add(time.Minute); open() > 0 && time.Now().Before(end); {
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
	}
	if n := open(); n != 0 {
		t.Errorf("%d triggers are left", n)
	}
}

// TestMemoryAloneIsThatOfTheWhole: as a reading of the whole cgroup has it.
func TestMemoryAloneIsThatOfTheWhole(t *testing.T) {
	mounts := map[string]string{"memory": "/sys/fs/cgroup/memory"}
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	v2 := err == nil
	if v2 {
		mounts["memory"] = "/sys/fs/cgroup"
	}
	r := New(Config{V2: v2, Controllers: mounts})
	m, err := r.Memory("/")
	if err != nil {
		t.Skip("no accounting of memory: ", err)
	}
	if machine := r.Machine(); m.Limit != machine.Memory || m.WorkingSet == 0 || m.WorkingSet > m.Usage || m.Usage > m.Limit {
		t.Errorf("got %+v of %d", m, machine.Memory)
	}
	if _, err := r.Memory("/poddtest-none"); err != ErrGone {
		t.Errorf("a cgroup that is not there: got %v", err)
	}
}

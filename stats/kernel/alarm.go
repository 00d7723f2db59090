package kernel

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"podd/internal/wake"
)

// Alarm makes the kernel report when memory runs short. On v1 it does when the usage of a
// cgroup crosses a threshold (memory.usage_in_bytes in cgroup.event_control). v2 has no such
// thresholds: there it does when tasks stall for memory (a trigger of pressure stall
// information, Documentation/accounting/psi.rst). An alarm is a hint to look, and may come
// late or never. Between alarms it costs nothing but a goroutine and a few descriptors for
// each cgroup.
type Alarm struct {
	r    *Reader
	poke wake.Signal

	mu    sync.Mutex // guards armed
	armed map[string]*watch
}

// watch is what watches one cgroup.
type watch struct {
	threshold uint64 // bytes of usage; 0 for a trigger
	close     func()
}

// rearmThreshold is by how much a threshold must have moved before it is set anew: the size
// of the page cache changes all the time.
const rearmThreshold = 16 << 20

// pressureTrigger is the trigger of pressure: tasks that waited for memory for 150 ms within 2 s.
const pressureTrigger = "some 150000 2000000"

// NewAlarm returns an Alarm that is armed for nothing; the caller closes it.
func (r *Reader) NewAlarm() *Alarm {
	return &Alarm{r: r, poke: wake.New(), armed: map[string]*watch{}}
}

// C receives when memory may be short.
func (a *Alarm) C() <-chan struct{} { return a.poke }

// Arm watches a cgroup, "/" for the machine, and raises the alarm when less than
// available bytes of its limit are left. It replaces the previous alarm for that cgroup.
func (a *Alarm) Arm(rel string, available uint64) error {
	threshold := uint64(0)
	if !a.r.cfg.V2 {
		m, err := a.r.Memory(rel)
		if err != nil {
			return err
		}
		if m.Limit >= Unlimited {
			return errors.New("no limit of memory")
		}
		// The working set is the usage without inactive pages of files.
		threshold = m.Limit - min(m.Limit, available+m.HugePages) + (m.Usage - m.WorkingSet)
		threshold -= threshold % uint64(unix.Getpagesize())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.armed[rel]
	if before != nil && max(before.threshold, threshold)-min(before.threshold, threshold) < rearmThreshold {
		return nil
	}
	arm := a.watchUsage
	if a.r.cfg.V2 {
		arm = a.watchPressure
	}
	next, err := arm(rel, threshold)
	if err != nil {
		return err
	}
	if before != nil {
		before.close()
	}
	a.armed[rel] = next
	return nil
}

// Close ends all of it.
func (a *Alarm) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for rel, w := range a.armed {
		w.close()
		delete(a.armed, rel)
	}
}

func (a *Alarm) notify() {
	a.poke.Notify()
}

func (a *Alarm) dir(rel string) string {
	if rel == "/" {
		rel = ""
	}
	return a.r.cfg.Controllers["memory"] + rel
}

// watchUsage registers an eventfd for a crossing of the usage.
func (a *Alarm) watchUsage(rel string, threshold uint64) (*watch, error) {
	dir := a.dir(rel)
	watched, err := os.Open(dir + "/memory.usage_in_bytes")
	if err != nil {
		return nil, err
	}
	defer watched.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	events := os.NewFile(uintptr(fd), "eventfd")
	line := strconv.Itoa(fd) + " " + strconv.Itoa(int(watched.Fd())) + " " + strconv.FormatUint(threshold, 10)
	if err := os.WriteFile(dir+"/cgroup.event_control", []byte(line), 0); err != nil {
		_ = events.Close()
		return nil, err
	}
	go func() {
		var count [8]byte
		for {
			if _, err := events.Read(count[:]); err != nil {
				return // closed
			}
			a.notify()
		}
	}()
	return &watch{threshold: threshold, close: func() { _ = events.Close() }}, nil
}

// watchPressure sets a trigger of pressure. The kernel reports it by POLLPRI, which Go's
// poller does not wait for. An epoll instance of its own waits for POLLPRI, and the poller
// waits for that instance.
func (a *Alarm) watchPressure(rel string, _ uint64) (*watch, error) {
	name := a.r.cfg.Proc + "/pressure/memory"
	if rel != "/" {
		name = a.dir(rel) + "/memory.pressure"
	}
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	if _, err := unix.Write(fd, []byte(pressureTrigger+"\x00")); err != nil {
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "write", Path: name, Err: err}
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		if err = errors.Join(unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLPRI, Fd: int32(fd)}), unix.SetNonblock(ep, true)); err != nil {
			_ = unix.Close(ep)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("wait for memory pressure: %w", err)
	}
	events := os.NewFile(uintptr(ep), "memory pressure")
	go func() {
		defer func() { _ = unix.Close(fd) }()
		conn, err := events.SyscallConn()
		for err == nil {
			err = conn.Read(func(ep uintptr) bool {
				var e [1]unix.EpollEvent
				n, err := unix.EpollWait(int(ep), e[:], 0)
				return n > 0 && err == nil
			})
			if err == nil {
				a.notify()
			}
		}
	}()
	return &watch{close: func() { _ = events.Close() }}, nil
}

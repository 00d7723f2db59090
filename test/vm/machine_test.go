package vm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podd/internal/child"
)

// How long a machine may take, in boots of its own: how fast it is emulated is known
// when it has booted. All takes 20 to 35 of them, the longest check five, and the
// longest wait of a check that fails twelve (within, in guest/run.sh).
const (
	quietBoots = 18 // without a word
	mostBoots  = 60 // for everything
	firstBoot  = 15 * time.Minute
)

// patience is how long a machine may still take.
type patience struct {
	began, heard time.Time
	boot         time.Duration // the slowest so far
}

// left is until the machine is given up, unless it says something.
func (p *patience) left() time.Duration {
	if p.boot == 0 {
		return time.Until(p.began.Add(firstBoot))
	}
	return min(time.Until(p.began.Add(mostBoots*p.boot)), time.Until(p.heard.Add(quietBoots*p.boot)))
}

func (p *patience) String() string {
	return fmt.Sprintf("given up %v after its start and %v after it last said something; its slowest boot took %v",
		time.Since(p.began).Round(time.Second), time.Since(p.heard).Round(time.Second), p.boot)
}

type machine struct {
	image, payload, console string
	name                    string
	kernel                  string // further parameters of the kernel
	memory                  int    // MiB
}

type result struct {
	ok   bool
	text string
}

type results struct {
	of       map[string]result
	finished bool // the guest said that it was through
	reboots  bool // the last that it said is that it boots again
}

// run boots the machine, as often as it says that it boots again, and reads its
// results until it is through.
func (m machine) run(t *testing.T) results {
	t.Helper()
	dir := t.TempDir()
	disk := filepath.Join(dir, "root.img")
	if out, err := exec.CommandContext(t.Context(), "cp", "--sparse=always", m.image+"/root.img", disk).CombinedOutput(); err != nil {
		t.Fatalf("copy the machine's disk: %v\n%s", err, out)
	}
	got := results{of: map[string]result{}, reboots: true}
	p := patience{began: time.Now(), heard: time.Now()}
	for got.reboots && !got.finished {
		got.reboots = false
		if err := m.boot(t, disk, filepath.Join(dir, "monitor"), &got, &p); err != nil {
			t.Errorf("the machine: %v", err)
			break
		}
	}
	return got
}

// boot runs the machine until it is off, resets itself or is through: how it goes off
// then is no check. Each boot is a process of its own: what QEMU has translated of the
// last one makes the next many times slower, since it is dropped page by page.
// Its two processors take turns: where each has a thread, QEMU 7.2 may keep what it
// translated of a page while the other processor wrote to it. Linux, which patches itself
// as it runs, then meets a breakpoint that is no longer there, for ever. Turns cost nothing
// where other tests use the host's processors, too, and up to half of the speed where none do.
// They are of a kind without the extensions that take longest to emulate: programs use AVX
// where there is one, and every change of a process saves its registers. That is a fifth of
// the time.
func (m machine) boot(t *testing.T, disk, monitor string, got *results, p *patience) error {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-no-reboot",
		"-accel", "tcg,thread=single", "-cpu", "Nehalem,+rdrand", "-smp", "2", "-m", fmt.Sprint(m.memory),
		"-nodefaults", "-no-user-config", "-display", "none",
		"-kernel", m.image+"/vmlinuz", "-initrd", m.image+"/initrd.img",
		// The kernel's test of its timer counts the emulated processor's ticks, and
		// gives up the machine where a busy host emulates too few of them. What lies
		// at another address in each process QEMU translates for each anew. All
		// processors have the host's TSC, and an emulated timer costs more; so does memory
		// that the kernel clears whenever it is allocated. Where a
		// processor stands still the console shows what all of them do, at addresses that
		// the kernel's symbols name.
		"-append", "root=/dev/vda rw console=ttyS1 quiet audit=0 mitigations=off panic=1 "+
			"no_timer_check nokaslr norandmaps tsc=reliable init_on_alloc=0 softlockup_all_cpu_backtrace=1 sysrq_always_enabled "+m.kernel,
		"-drive", "file="+disk+",format=raw,if=virtio,cache=unsafe",
		"-drive", "file="+m.payload+",format=raw,if=virtio,readonly=on",
		"-chardev", "socket,id=monitor,server=on,wait=off,path="+monitor, "-mon", "chardev=monitor,mode=readline",
		"-serial", "stdio", "-chardev", "file,id=console,append=on,path="+m.console, "-serial", "chardev:console")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(cmd); err != nil {
		return fmt.Errorf("start qemu (apt-get install qemu-system-x86): %w", err)
	}
	err = got.read(out, p, func(format string, args ...any) { t.Logf(m.name+": "+format, args...) })
	if err != nil {
		if asked := interrogate(monitor, m.console); asked != nil {
			err = errors.Join(err, fmt.Errorf("ask it what it does: %w; the emulator's threads:\n%s", asked, threads(cmd.Process.Pid)))
		}
	}
	ended := got.finished || err != nil
	if ended {
		kill()
	}
	_, _ = io.Copy(io.Discard, out) // which ends with the process
	if waited := cmd.Wait(); waited != nil && !ended {
		err = fmt.Errorf("%w %s", waited, stderr.String())
	}
	return err
}

// interrogate has the kernel of a machine that says nothing write to the console what
// all its tasks do, then which of them are blocked, and what its processors do. Before and
// after that comes what QEMU itself says of the machine: whether it runs, or has stopped
// because the host's disk is full, and where its processors are.
func interrogate(monitor, console string) error {
	c, err := net.Dial("unix", monitor)
	if err != nil {
		return err
	}
	defer c.Close()
	out, err := os.OpenFile(console, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	for _, command := range []string{
		"info status", "info registers -a",
		"sendkey alt-sysrq-7", // how much the console shows
		"sendkey alt-sysrq-t", "sendkey alt-sysrq-w", "sendkey alt-sysrq-l",
		"info registers -a", // whether they are somewhere else by now
	} {
		if _, err := fmt.Fprintln(c, command); err != nil {
			return err
		}
		// Nothing says when the kernel has written all of that.
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		said, err := io.ReadAll(c)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("%s: read QEMU's answer: %w", command, err)
		}
		if len(said) == 0 {
			return fmt.Errorf("%s: QEMU does not answer", command)
		}
		if _, err := out.Write(said); err != nil {
			return err
		}
	}
	return nil
}

// threads are those of a process: name, state, and what they wait for in the kernel.
func threads(pid int) string {
	var b strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		status, _ := os.ReadFile(task + "/status")
		stack, _ := os.ReadFile(task + "/stack") // root's alone
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "Name:") || strings.HasPrefix(line, "State:") {
				b.WriteString(line)
			}
		}
		b.Write(stack)
	}
	return b.String()
}

// read takes the guest's lines: "ok NAME text", "not ok NAME text", "# remark",
// "# boot STAGE, up SECONDSs", "# reboot" and "done". It fails when p is exhausted.
func (got *results) read(r io.Reader, p *patience, logf func(format string, args ...any)) error {
	lines, failed := make(chan string), make(chan error, 1)
	done := make(chan struct{})
	defer close(done)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(r)
		for s.Scan() {
			select {
			case lines <- strings.TrimSpace(s.Text()):
			case <-done:
				return
			}
		}
		failed <- s.Err()
	}()
	timer := time.NewTimer(p.left())
	defer timer.Stop()
	for !got.finished {
		select {
		case line, more := <-lines:
			if !more {
				return <-failed
			}
			p.heard = time.Now()
			logf("%4.0fs %s", time.Since(p.began).Seconds(), line)
			if stage, up, is := strings.Cut(line, ", up "); is && strings.HasPrefix(stage, "# boot ") {
				if d, err := time.ParseDuration(up); err == nil {
					p.boot = max(p.boot, d)
				}
			}
			got.take(line)
			timer.Reset(p.left())
		case <-timer.C:
			return errors.New(p.String())
		}
	}
	return nil
}

func (got *results) take(line string) {
	rest, failed := strings.CutPrefix(line, "not ok ")
	passed := false
	if !failed {
		rest, passed = strings.CutPrefix(line, "ok ")
	}
	got.finished = got.finished || line == "done"
	got.reboots = line == "# reboot" || got.reboots && line == ""
	if !failed && !passed {
		return
	}
	name, text, _ := strings.Cut(rest, " ")
	if old, twice := got.of[name]; twice {
		passed = false
		text = fmt.Sprintf("reported twice: %q and %q", old.text, text)
	}
	got.of[name] = result{ok: passed, text: text}
}

func TestAMissingOrDoubleResultIsAFailure(t *testing.T) {
	got := results{of: map[string]result{}}
	p := patience{began: time.Now()}
	for _, each := range []struct {
		said    string
		boot    time.Duration
		reboots bool
	}{
		{"# hello\n# boot first, up 31.50s\nok a 1s\nok b 1s\r\n# reboot\r\n", 31500 * time.Millisecond, true},
		{"ok b again\n# boot second, up 8s\r\nnot ok c it broke\n", 31500 * time.Millisecond, false},
	} {
		if err := got.read(strings.NewReader(each.said), &p, t.Logf); err != nil {
			t.Error(err)
		}
		if got.reboots != each.reboots || p.boot != each.boot {
			t.Errorf("after %q: reboots is %v, the slowest boot %v", each.said, got.reboots, p.boot)
		}
	}
	if got.finished {
		t.Error("it never said done")
	}
	if !got.of["a"].ok || got.of["b"].ok || got.of["c"].ok || got.of["c"].text != "it broke" || len(got.of) != 3 {
		t.Errorf("got %+v", got.of)
	}
}

// TestAMachineThatStandsStillIsGivenUp within what its own boots allow; the rest is
// not waited for once it is through.
func TestAMachineThatStandsStillIsGivenUp(t *testing.T) {
	const boot = "# boot first, up 10s"
	for _, c := range []struct {
		name  string
		every time.Duration // between two of
		says  []string
		after time.Duration // it is given up
		fails bool
	}{
		{name: "before it has booted", after: firstBoot, fails: true},
		{name: "after it has booted", every: time.Minute, says: []string{boot}, after: time.Minute + quietBoots*10*time.Second, fails: true},
		{name: "in checks", every: 2 * time.Minute, says: slices.Repeat([]string{boot}, 20), after: mostBoots * 10 * time.Second, fails: true},
		{name: "when it goes off", every: time.Minute, says: []string{boot, "done"}, after: 2 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				var guest sync.WaitGroup
				guest.Go(func() {
					for _, line := range c.says {
						time.Sleep(c.every)
						if _, err := fmt.Fprintln(w, line); err != nil {
							return // nobody reads any more
						}
					}
				})
				p := patience{began: time.Now(), heard: time.Now()}
				got := results{of: map[string]result{}}
				err := got.read(r, &p, t.Logf)
				if took := time.Since(p.began); (err != nil) != c.fails || took != c.after {
					t.Errorf("read returned %v after %v, want after %v", err, took, c.after)
				}
				r.Close()
				guest.Wait()
			})
		})
	}
}

// tail is the end of what a file has.
func tail(file string, lines int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.ReplaceAll(string(text), "\r", ""), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

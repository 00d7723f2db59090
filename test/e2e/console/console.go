// Package console is where a person sits who uses a command: what it has written so far, and a
// pseudo terminal.
package console

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Output is what a command has written so far. Many may write and read it at a time.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Terminal is a pseudo terminal with a command in it; as an fmt.Stringer, it is what it has
// shown so far.
type Terminal struct {
	Output
	master, slave *os.File
	before        unix.Termios // settings
	cmd           *exec.Cmd
	copied        chan struct{} // closed when nothing more is shown
}

// Start starts a command in a new terminal, whose session it leads. Close is to be called in
// any case.
func Start(cmd *exec.Cmd, width, height uint16) (*Terminal, error) {
	t := &Terminal{cmd: cmd, copied: make(chan struct{})}
	if err := t.open(); err != nil {
		return nil, errors.Join(err, t.closeFiles())
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = t.slave, t.slave, t.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err := t.Resize(width, height)
	if err == nil {
		t.before, err = t.settings()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, t.closeFiles())
	}
	go func() {
		defer close(t.copied)
		_, _ = io.Copy(&t.Output, t.master) // until Close
	}()
	return t, nil
}

func (t *Terminal) open() (err error) {
	if t.master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return err
	}
	if err = unix.IoctlSetPointerInt(int(t.master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock the terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(int(t.master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return fmt.Errorf("number of the terminal: %w", err)
	}
	t.slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	return err
}

// Resize changes the terminal's size, as when somebody pulls at its window.
func (t *Terminal) Resize(width, height uint16) error {
	return unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
}

// Type types text: "\r" is the Enter key, "\x03" Ctrl-C.
func (t *Terminal) Type(text string) error {
	_, err := io.WriteString(t.master, text)
	return err
}

// AsBefore says whether the command has left the terminal's settings as they were.
func (t *Terminal) AsBefore() error {
	after, err := t.settings()
	if err == nil && after != t.before {
		err = fmt.Errorf("the terminal's settings are %+v, were %+v", after, t.before)
	}
	return err
}

func (t *Terminal) settings() (unix.Termios, error) {
	s, err := unix.IoctlGetTermios(int(t.slave.Fd()), unix.TCGETS)
	if err != nil {
		return unix.Termios{}, err
	}
	return *s, nil
}

// Wait waits until the command has ended, as exec.Cmd's.
func (t *Terminal) Wait() error { return t.cmd.Wait() }

// Close kills the command if it has not ended, and removes the terminal.
func (t *Terminal) Close() error {
	if err := t.cmd.Process.Kill(); err == nil {
		_ = t.cmd.Wait() // it was killed
	}
	err := t.closeFiles()
	<-t.copied
	return err
}

func (t *Terminal) closeFiles() (err error) {
	for _, f := range []*os.File{t.slave, t.master} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

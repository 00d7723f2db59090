package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Program is one of those that a cluster has besides its apiserver. What it writes is in a
// log of its name in Dir. Its methods are not for several goroutines at once.
type Program struct {
	Name, Binary, Dir string
	Args              []string

	cmd  *exec.Cmd
	done chan struct{}
}

func (p *Program) log() string { return filepath.Join(p.Dir, p.Name+".log") }

// Start returns once the process exists.
func (p *Program) Start() error {
	log, err := os.Create(p.log())
	if err != nil {
		return fmt.Errorf("make the log of %s: %w", p.Name, err)
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.Command(p.Binary, p.Args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.Dir, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is the harness's
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.done = make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	return nil
}

func (p *Program) running() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Check returns an error if the process has ended, or was never started.
func (p *Program) Check() error {
	if p.running() {
		return nil
	}
	return fmt.Errorf("%s ended: %s", p.Name, p.LogTail())
}

// Stop ends the process and returns when it is gone, at most 10 s later.
func (p *Program) Stop() error {
	if !p.running() {
		return nil
	}
	err := p.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		err = errors.Join(err, p.cmd.Process.Kill())
		<-p.done
	}
	return err
}

// Kill ends the process as a crash would, and returns when it is gone.
func (p *Program) Kill() error {
	if !p.running() {
		return nil
	}
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

// Pid is 0 when it does not run.
func (p *Program) Pid() int {
	if !p.running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// LogTail is the end of what it wrote.
func (p *Program) LogTail() string {
	text, _ := os.ReadFile(p.log())
	return string(text[max(0, len(text)-3000):])
}

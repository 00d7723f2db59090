package critest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"podd/cri/critest/state"
)

// Script is what a container's process does. The zero Script runs until it is
// stopped, and then exits with 0.
type Script struct {
	// ExitAfter makes the process end by itself that long after its start; 0 means never.
	ExitAfter time.Duration
	// Code is the code of that exit. Reason, if unset, is Completed or Error depending on
	// Code; set it for another (OOMKilled).
	Code   int32
	Reason string
	// IgnoreTERM makes the process live until it is killed (code 137).
	IgnoreTERM bool
	// StopTakes is how long the process takes to end after TERM; TERMCode is its exit code
	// then.
	StopTakes time.Duration
	TERMCode  int32
	// StartError makes StartContainer fail with that text.
	StartError string
	// Log lines are written to stdout at the start.
	Log []string
	// Message is written to the termination log at the end.
	Message string
	// Info is what a verbose status reports under "info", as containerd does, from the
	// start on; empty for nothing.
	Info string
	// TellSpec sets Info to the specification that the configuration asks for.
	TellSpec bool
	// Layer is the number of bytes that the container has written outside of its volumes,
	// as the runtime reports it, on a file system mounted at critest.LayersOn.
	Layer uint64
}

// LayersOn is where the file system with the containers' layers is mounted.
const LayersOn = "/var/lib/critest"

func (sc Script) exit() state.Exit { return exitWith(sc.Code, sc.Reason) }

// exitWith uses the reason that belongs to the code unless another is given.
func exitWith(code int32, reason string) state.Exit {
	e := state.ExitWith(code)
	e.Reason = cmp.Or(reason, e.Reason)
	return e
}

// Script sets what containers of that name do from their next start on.
func (s *Server) Script(containerName string, sc Script) {
	s.ScriptFunc(containerName, func(uint32) Script { return sc })
}

// ScriptFunc is Script by attempt, which counts from 0. It must not call the
// Server.
func (s *Server) ScriptFunc(containerName string, sc func(attempt uint32) Script) {
	s.rt.Lock()
	defer s.rt.Unlock()
	s.scripts[containerName] = sc
}

// Exit ends the running processes of a container, found by ID or name. If several pods have
// a container of that name, all of them end. It fails the test if there is none.
func (s *Server) Exit(idOrName string, code int32) { s.ExitReason(idOrName, code, "") }

// ExitReason is Exit with a reason of the runtime's, such as OOMKilled.
func (s *Server) ExitReason(idOrName string, code int32, reason string) {
	s.t.Helper()
	s.rt.Lock()
	defer s.rt.Unlock()
	found := false
	for _, c := range s.rt.Containers() {
		if c.State == state.Running && (c.ID == idOrName || c.Name == idOrName) {
			found = true
			s.rt.End(c, exitWith(code, reason))
		}
	}
	if !found {
		s.t.Errorf("critest: no running container %q to end", idOrName)
	}
}

// Lose makes the runtime forget what became of the running processes of a container, found
// by ID or name. containerd does so if a shim does not answer after a restart: the state is
// unknown until the container is stopped.
func (s *Server) Lose(idOrName string) {
	s.t.Helper()
	s.rt.Lock()
	defer s.rt.Unlock()
	found := false
	for _, c := range s.rt.Containers() {
		if c.State == state.Running && (c.ID == idOrName || c.Name == idOrName) {
			found = true
			s.rt.Lose(c)
		}
	}
	if !found {
		s.t.Errorf("critest: no running container %q to lose", idOrName)
	}
}

// writeLog writes the scripted lines in CRI's format, if the container has a log path.
func (s *Server) writeLog(c *container) {
	path := logPath(c)
	if path == "" {
		return
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return // as a real runtime would fail; tests that look at logs make the directory
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		s.t.Errorf("critest: %v", err)
		return
	}
	defer f.Close()
	for _, line := range c.Data.script.Log {
		fmt.Fprintf(f, "%s stdout F %s\n", time.Now().Format(time.RFC3339Nano), line)
	}
}

// writeMessage writes the scripted termination message.
func (s *Server) writeMessage(c *container) {
	if c.Data.script.Message == "" {
		return
	}
	path := c.Data.config.Annotations["io.kubernetes.container.terminationMessagePath"]
	for _, m := range c.Data.config.Mounts {
		if m.ContainerPath == path {
			if err := os.WriteFile(m.HostPath, []byte(c.Data.script.Message), 0o666); err != nil {
				s.t.Errorf("critest: %v", err)
			}
		}
	}
}

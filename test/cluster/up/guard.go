package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"podd/test/e2e/testnode"
)

// guardArg is the command line of the process that removes the cluster when this one is
// killed: nobody else would before the next cluster is started.
const guardArg = "-guard"

// watchOver starts the guard. It reads which place is to be swept, and sweeps that when
// the pipe ends, unless release has told it that nothing is left.
func watchOver(place *testnode.Place) (release func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, guardArg)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is not for it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	if err := json.NewEncoder(pipe).Encode(place); err != nil {
		return nil, errors.Join(fmt.Errorf("tell the guard: %w", err), cmd.Process.Kill(), cmd.Wait())
	}
	return func() error {
		return errors.Join(json.NewEncoder(pipe).Encode("done"), pipe.Close(), cmd.Wait())
	}, nil
}

func guard() error {
	var place testnode.Place
	told := json.NewDecoder(os.Stdin)
	if err := told.Decode(&place); err != nil {
		return fmt.Errorf("guard: read what to sweep: %w", err)
	}
	var done string
	if err := told.Decode(&done); err == nil || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	fmt.Fprintln(os.Stderr, "the cluster's process was killed; removing what it left")
	return place.Sweep()
}

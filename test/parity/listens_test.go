package main

import (
	"os"
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"
)

func TestASignalIsHandledOnceItIsCaughtOrIgnored(t *testing.T) {
	read := func() string {
		text, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const blockedOnly = "SigBlk:\t0000000000004000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000200\n"
	if handles(blockedOnly, unix.SIGTERM) {
		t.Error("a signal that is only blocked counts as handled")
	}
	signal.Ignore(unix.SIGTERM)
	if !handles(read(), unix.SIGTERM) {
		t.Error("a signal that is ignored does not count as handled")
	}
	signal.Reset(unix.SIGTERM)
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGTERM)
	defer signal.Stop(caught)
	if !handles(read(), unix.SIGTERM) {
		t.Error("a signal that is caught does not count as handled")
	}
}

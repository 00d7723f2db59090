// Command holder is the first process of containers that must not run twice at
// once. It takes a lock that dies with it, however it ends, makes a file to say
// that it is there, and rests until SIGTERM. Where the lock is held by another
// it makes a second file, which tells the test, and goes on.
//
// usage: holder LOCK MARK TWICE
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	held, err := hold(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	<-term
	_ = held.Close() // until here it must stay open: the lock is the file's
}

func hold(lock, mark, twice string) (*os.File, error) {
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if err := os.WriteFile(twice, nil, 0o666); err != nil {
			return nil, err
		}
	}
	return f, os.WriteFile(mark, nil, 0o666)
}

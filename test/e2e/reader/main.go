// Command reader is the first process of containers that watch a volume with values
// (whole.Watch), until SIGTERM.
//
// usage: reader OUT NAME VOLUME
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"podd/test/e2e/whole"
)

func main() {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	if err := whole.Watch(os.Args[1], os.Args[2], os.Args[3], term); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

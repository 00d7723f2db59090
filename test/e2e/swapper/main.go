// Command swapper is what a hostile container does to lead others out of a volume:
// it exchanges two names for one another, over and over, until SIGTERM. By turns it does
// so as fast as the kernel does that, and with pauses as long as a step of whoever looks
// first and uses then, which leaves others most of the processor.
//
// usage: swapper A B
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// So many exchanges are made without a pause, and then so many with one: some 5 ms and
// 30 ms.
const fast, slow = 2000, 200

func main() {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	for i := 0; len(term) == 0; i++ {
		if err := unix.Renameat2(unix.AT_FDCWD, os.Args[1], unix.AT_FDCWD, os.Args[2], unix.RENAME_EXCHANGE); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if i%(fast+slow) >= fast {
			time.Sleep(rand.N(200 * time.Microsecond))
		}
	}
}

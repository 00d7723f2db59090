// Command swapper is what a hostile container does to lead others out of a volume:
// it exchanges two names for one another, over and over, until SIGTERM. Bursts at full
// speed alternate with exchanges that pause for up to 200 µs, about as long as the gap
// between a check and the mount that follows it. The pauses leave most of the processor to
// the other containers.
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

// A burst is fast exchanges, some 5 ms; slow ones, with pauses, follow for some 30 ms.
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

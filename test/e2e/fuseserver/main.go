// Command fuseserver mounts a file system that a test can let die: a directory with a
// directory "sub" and a file "file". It says "ready" when it is mounted, and serves
// until it is ended, which leaves the mount to whoever made the directory. On SIGUSR1 it
// says "silent" and answers no more: everything that somebody asks of the mount hangs,
// as with a file server that is gone. It never falls silent over a request that it has
// taken: who waits for that one the kernel does not let be killed (request_wait_answer).
// Nor does it let who closes a file for the first time, before it knows that the server wants
// to hear nothing of that (fuse_flush): whoever is to be killed must have closed one before.
//
// With PROGRAM it says "held" at the first request of a process whose name begins with that,
// and answers such processes only after SIGUSR1, which does nothing else then.
//
// usage: fuseserver DIR [PROGRAM]
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
)

// The kernel's protocol: include/uapi/linux/fuse.h.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opOpen        = 14
	opRead        = 15
	opStatfs      = 17
	opRelease     = 18
	opInit        = 26
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opInterrupt   = 36
	opBatchForget = 42

	root, sub, file = 1, 2, 3
	headIn, headOut = 40, 16
	largest         = 1<<20 + 4096
	content         = "served\n"
)

var native = binary.NativeEndian

func main() {
	hold := ""
	if len(os.Args) > 2 {
		hold = os.Args[2]
	}
	if err := serve(os.Args[1], hold); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(dir, hold string) error {
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", device)
	if err := unix.Mount("fuseserver", dir, "fuse.fuseserver", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	told, err := onSignal()
	if err != nil {
		return err
	}
	var held [][]byte // answers
	buffer := make([]byte, largest)
	for first := true; ; {
		ready := []unix.PollFd{{Fd: int32(device), Events: unix.POLLIN}, {Fd: int32(told), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for a request: %w", err)
		}
		if ready[1].Revents != 0 {
			if hold == "" {
				fmt.Println("silent")
				select {}
			}
			for _, each := range held {
				if err := answer(device, each); err != nil {
					return err
				}
			}
			hold, told = "", -1 // poll ignores it
		}
		if ready[0].Revents == 0 {
			continue
		}
		n, err := unix.Read(device, buffer)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENODEV): // unmounted
			return nil
		case err != nil:
			return fmt.Errorf("read a request: %w", err)
		case n < headIn:
			return fmt.Errorf("a request of %d bytes", n)
		}
		say := reply(buffer[:n])
		if hold != "" && say != nil && asks(buffer[:n], hold) {
			if held == nil {
				fmt.Println("held")
			}
			held = append(held, say)
			continue
		}
		if err := answer(device, say); err != nil {
			return err
		}
		if first {
			fmt.Println("ready")
			first = false
		}
	}
}

// answer sends what reply returned.
func answer(device int, reply []byte) error {
	if reply == nil {
		return nil
	}
	if _, err := unix.Write(device, reply); err != nil && !errors.Is(err, unix.ENOENT) { // it was given up
		return fmt.Errorf("answer a request: %w", err)
	}
	return nil
}

// asks reports whether a process whose name begins so wants an answer to a request.
func asks(request []byte, name string) bool {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", native.Uint32(request[32:])))
	return err == nil && strings.HasPrefix(string(comm), name)
}

// onSignal returns a descriptor that can be read from once SIGUSR1 came.
func onSignal() (int, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR1)
	go func() {
		<-signals
		_, _ = unix.Write(ends[1], []byte{0})
	}()
	return ends[0], nil
}

// reply answers a request; nil for those that want no answer.
func reply(request []byte) []byte {
	unique, node := native.Uint64(request[8:]), native.Uint64(request[16:])
	body, errno := []byte{}, unix.Errno(0)
	switch op := native.Uint32(request[4:]); op {
	case opForget, opBatchForget, opInterrupt:
		return nil
	case opInit:
		body = initialized(request[headIn:])
	case opLookup:
		body, errno = lookup(node, request[headIn:])
	case opGetattr:
		body = append(make([]byte, 16), attributes(node)...) // never cached
	case opOpen, opOpendir:
		body = make([]byte, 16)
	case opRead:
		if native.Uint64(request[headIn+8:]) == 0 {
			body = []byte(content)
		}
	case opStatfs:
		body = make([]byte, 80)
		native.PutUint32(body[40:], 4096) // bsize
		native.PutUint32(body[44:], 255)  // namelen
		native.PutUint32(body[48:], 4096) // frsize
	case opReaddir, opRelease, opReleasedir:
	default:
		errno = unix.ENOSYS
	}
	if errno != 0 {
		body = nil
	}
	answer := make([]byte, headOut, headOut+len(body))
	native.PutUint32(answer, uint32(headOut+len(body)))
	native.PutUint32(answer[4:], uint32(-int32(errno)))
	native.PutUint64(answer[8:], unique)
	return append(answer, body...)
}

func initialized(in []byte) []byte {
	out := make([]byte, 64)
	native.PutUint32(out, 7)
	native.PutUint32(out[4:], min(31, native.Uint32(in[4:])))
	native.PutUint32(out[8:], 4096)  // max_readahead
	native.PutUint32(out[20:], 4096) // max_write
	native.PutUint32(out[24:], 1)    // time_gran
	return out
}

func lookup(parent uint64, name []byte) ([]byte, unix.Errno) {
	node := uint64(0)
	switch {
	case parent != root:
	case strings.TrimRight(string(name), "\x00") == "sub":
		node = sub
	case strings.TrimRight(string(name), "\x00") == "file":
		node = file
	}
	if node == 0 {
		return nil, unix.ENOENT
	}
	out := make([]byte, 40)
	native.PutUint64(out, node)
	return append(out, attributes(node)...), 0
}

func attributes(node uint64) []byte {
	mode, links, size := uint32(unix.S_IFDIR|0o755), uint32(2), uint64(0)
	if node == file {
		mode, links, size = unix.S_IFREG|0o644, 1, uint64(len(content))
	}
	out := make([]byte, 88)
	native.PutUint64(out, node)
	native.PutUint64(out[8:], size)
	native.PutUint32(out[60:], mode)
	native.PutUint32(out[64:], links)
	native.PutUint32(out[80:], 4096) // blksize
	return out
}

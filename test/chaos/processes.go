package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is one of the node's. The zero value is none.
type process struct {
	pid  int
	what string
}

func (p process) kill(meanwhile func() error) (string, error) {
	if p.pid == 0 {
		return "(there is none)", meanwhile()
	}
	err := unix.Kill(p.pid, unix.SIGKILL)
	if errors.Is(err, unix.ESRCH) {
		err = nil
	}
	return p.what, errors.Join(err, meanwhile())
}

func pick[T any](rng *rand.Rand, all []T) (one T) {
	n := rng.IntN(1 << 30)
	if len(all) > 0 {
		one = all[n%len(all)]
	}
	return one
}

func (w *world) shims() []process {
	return w.processes(func(_ int, args []string) string {
		if strings.HasSuffix(args[0], "containerd-shim-runc-v2") && strings.Contains(strings.Join(args, " "), w.node.Dir+"/") {
			return "shim"
		}
		return ""
	})
}

// containers are the first processes of containers that this program is.
func (w *world) containers() []process {
	return w.processes(func(pid int, args []string) string {
		if len(args) > 2 && args[1] == "contain" && w.inside(pid) {
			return strings.TrimPrefix(args[2], "-name=")
		}
		return ""
	})
}

func (w *world) pauses() []process {
	return w.processes(func(pid int, args []string) string {
		if strings.HasSuffix(args[0], "pause") && w.inside(pid) {
			return "pause"
		}
		return ""
	})
}

// inside says that a process is in a cgroup of the node.
func (w *world) inside(pid int) bool {
	groups, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	return strings.Contains(string(groups), ":"+w.node.CgroupRoot+"/")
}

func (w *world) processes(what func(pid int, args []string) string) []process {
	entries, _ := os.ReadDir("/proc")
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}
		if name := what(pid, strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")); name != "" {
			all = append(all, process{pid, name})
		}
	}
	// By name first: a replay picks the same one wherever the names tell.
	slices.SortFunc(all, func(a, b process) int {
		if c := strings.Compare(a.what, b.what); c != 0 {
			return c
		}
		return a.pid - b.pid
	})
	return all
}

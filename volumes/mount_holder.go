package volumes

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Limits of the search for the process that holds a mount. It runs only after an unmount
// has failed, at most once per attempt.
const (
	searchTimeout = time.Second
	// longSearchTimeout is for a user who waits for the result.
	longSearchTimeout = 5 * time.Second
)

// findHolder describes a process that uses the mount at path: one that has an open file,
// its working directory or its root there, or else one that has the mount in its own mount
// namespace. holder is empty if none was found; inTime says whether all were checked.
func findHolder(path string, limit time.Duration) (holder string, inTime bool) {
	deadline := time.Now().Add(limit)
	pids := processes()
	for _, pid := range pids {
		if time.Now().After(deadline) {
			return "", false
		}
		if use := describeUse(pid, path); use != "" {
			return fmt.Sprintf("process %d (%s) holds it: %s", pid, commandOf(pid), use), true
		}
	}
	own, _ := os.Readlink("/proc/self/ns/mnt")
	seen := map[string]bool{own: true}
	for _, pid := range pids {
		if time.Now().After(deadline) {
			return "", false
		}
		namespace, err := os.Readlink(procFile(pid, "ns/mnt"))
		if err != nil || seen[namespace] {
			continue
		}
		seen[namespace] = true
		if table, err := os.ReadFile(procFile(pid, "mountinfo")); err == nil && bytes.Contains(table, []byte(" "+path+" ")) {
			return fmt.Sprintf("it is mounted in the mount namespace of process %d (%s) too", pid, commandOf(pid)), true
		}
	}
	return "", true
}

func processes() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func describeUse(pid int, path string) string {
	below := func(link, what string) string {
		to, err := os.Readlink(procFile(pid, link))
		if err == nil && (to == path || strings.HasPrefix(to, path+"/")) {
			return what + " " + to
		}
		return ""
	}
	for link, what := range map[string]string{"cwd": "working in", "root": "with its root at", "exe": "executing"} {
		if use := below(link, what); use != "" {
			return use
		}
	}
	fds, err := os.ReadDir(procFile(pid, "fd"))
	if err != nil {
		return ""
	}
	for _, fd := range fds {
		if use := below("fd/"+fd.Name(), "has open"); use != "" {
			return use
		}
	}
	return ""
}

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

func commandOf(pid int) string {
	name, err := os.ReadFile(procFile(pid, "comm"))
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(name))
}

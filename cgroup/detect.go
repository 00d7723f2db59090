package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Version is how cgroups are mounted.
type Version int

const (
	// V1 has a hierarchy per controller.
	V1 Version = iota + 1
	// Hybrid is V1 with an additional v2 hierarchy that has no controllers.
	Hybrid
	// V2 has a single hierarchy, the default of current distributions.
	V2
)

func (v Version) String() string {
	switch v {
	case V1:
		return "v1"
	case Hybrid:
		return "hybrid"
	case V2:
		return "v2"
	default:
		return fmt.Sprintf("Version(%d)", int(v))
	}
}

// Driver is the cgroup driver; the values are CRI's and the kubelet's.
type Driver string

const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// Facts are what Detect found.
type Facts struct {
	Version Version
	// Driver is what the bundled runtime should use here: systemd if it is PID 1
	// and the version is V2, since it then owns the hierarchy.
	Driver Driver
	// Systemd is true if systemd is PID 1. A runtime may then be configured to use
	// its driver on V1, too.
	Systemd bool
	// Mounts are the mount points of all hierarchies.
	Mounts []string
	// Controllers maps each controller to its mount point: on v1 one of its own,
	// on V2 the single mount, for all controllers that the kernel has.
	Controllers map[string]string
}

// Detect reads the mount table.
func Detect() (Facts, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Facts{}, err
	}
	defer f.Close()
	// The test that systemd documents: sd_booted(3).
	_, err = os.Stat("/run/systemd/system")
	facts, err := detect(f, err == nil)
	if err != nil || facts.Version != V2 {
		return facts, err
	}
	have, err := os.ReadFile(filepath.Join(facts.Mounts[0], "cgroup.controllers"))
	if err != nil {
		return facts, fmt.Errorf("read the kernel's cgroup controllers: %w", err)
	}
	for name := range strings.FieldsSeq(string(have)) {
		facts.Controllers[name] = facts.Mounts[0]
	}
	return facts, nil
}

func detect(mountinfo io.Reader, systemd bool) (Facts, error) {
	facts := Facts{Driver: Cgroupfs, Systemd: systemd, Controllers: map[string]string{}}
	v1, v2 := false, false
	for lines := bufio.NewScanner(mountinfo); lines.Scan(); {
		// ID parent dev root mountpoint options [tags…] - type source superoptions
		head, tail, ok := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(head), strings.Fields(tail)
		if !ok || len(fields) < 5 || len(kind) < 1 {
			continue
		}
		// Only the usual mount points: containers' own mounts of the same
		// hierarchies, further down in the table, do not count.
		if mount := fields[4]; kind[0] == "cgroup" && strings.HasPrefix(mount, "/sys/fs/cgroup/") {
			v1 = true
			facts.Mounts = append(facts.Mounts, mount)
			for name := range strings.SplitSeq(kind[len(kind)-1], ",") {
				facts.Controllers[name] = mount // the options also contain words that are not controllers
			}
		} else if kind[0] == "cgroup2" && (mount == "/sys/fs/cgroup" || strings.HasPrefix(mount, "/sys/fs/cgroup/")) {
			v2 = true
			facts.Mounts = append(facts.Mounts, mount)
		}
	}
	slices.Sort(facts.Mounts)
	facts.Mounts = slices.Compact(facts.Mounts)
	switch {
	case v1 && v2:
		facts.Version = Hybrid
	case v1:
		facts.Version = V1
	case v2:
		facts.Version = V2
		if systemd {
			facts.Driver = Systemd
		}
	default:
		return Facts{}, errors.New("no cgroups are mounted below /sys/fs/cgroup; containers need them (on most systems: mount -t cgroup2 none /sys/fs/cgroup)")
	}
	return facts, nil
}

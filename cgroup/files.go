package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"podd/internal/hugepage"
)

// managed are the controllers for which podd creates cgroups and sets limits. The runtime
// creates those of the others for each container.
var managed = []string{"cpu", "cpuset", "memory", "pids", "hugetlb"}

// reserved marks the limits of huge pages that are mapped but not touched yet:
// with them mmap fails, instead of the process later. Kernels before 5.7 lack
// them.
const reserved = ".rsvd"

// The files of MemoryQoS.
const (
	memoryMin  = "memory.min"
	memoryLow  = "memory.low"
	memoryHigh = "memory.high"
)

// unset has the kernel's defaults of the files of MemoryQoS. A kernel without such a file acts
// as if it had the default (memory.min exists since 4.18).
var unset = map[string]string{memoryMin: "0", memoryLow: "0", memoryHigh: "max"}

// file is one setting of a cgroup.
type file struct{ controller, name, value string }

// files converts limits into settings, in the order in which the kernel accepts
// them.
func (t *Tree) files(l Limits) []file {
	var all []file
	add := func(controller, name, value string) {
		if _, ok := t.facts.Controllers[controller]; ok {
			all = append(all, file{controller, name, value})
		}
	}
	v2 := t.facts.Version == V2
	if t.driver == Systemd {
		l.CPUQuota = systemdQuota(l.CPUQuota, l.CPUPeriod)
	}
	if l.CPUShares > 0 && v2 {
		add("cpu", "cpu.weight", number(weight(l.CPUShares)))
	} else if l.CPUShares > 0 {
		add("cpu", "cpu.shares", number(l.CPUShares))
	}
	if l.CPUQuota != 0 && v2 {
		quota := "max"
		if l.CPUQuota > 0 {
			quota = number(l.CPUQuota)
		}
		add("cpu", "cpu.max", quota+" "+number(l.CPUPeriod))
	} else if l.CPUQuota != 0 {
		add("cpu", "cpu.cfs_period_us", number(l.CPUPeriod))
		add("cpu", "cpu.cfs_quota_us", number(l.CPUQuota))
	}
	if l.Memory > 0 && v2 {
		add("memory", "memory.max", number(l.Memory))
	} else if l.Memory > 0 {
		add("memory", "memory.limit_in_bytes", number(l.Memory))
	}
	if l.SetMemoryQoS && v2 {
		add("memory", memoryMin, number(l.MemoryQoS.Min))
		add("memory", memoryLow, number(l.MemoryQoS.Low))
		switch l.MemoryQoS.High {
		case keepHigh:
		case 0:
			add("memory", memoryHigh, "max")
		default:
			add("memory", memoryHigh, number(l.MemoryQoS.High))
		}
	}
	if l.PIDs > 0 {
		add("pids", "pids.max", number(l.PIDs))
	}
	if l.LimitAllHugePages {
		limit := ".limit_in_bytes"
		if v2 {
			limit = ".max"
		}
		for _, size := range t.pageSizes {
			name := "hugetlb." + hugepage.CgroupName(size)
			add("hugetlb", name+limit, number(l.HugePages[size]))
			add("hugetlb", name+reserved+limit, number(l.HugePages[size]))
		}
	}
	return all
}

// apply writes the settings of to that differ from those of from.
func (t *Tree) apply(rel string, from, to Limits) error {
	written := map[string]string{}
	for _, f := range t.files(from) {
		written[f.name] = f.value
	}
	var errs []error
	for _, f := range t.files(to) {
		if written[f.name] == f.value {
			continue
		}
		path := filepath.Join(t.facts.Controllers[f.controller], rel, f.name)
		err := write(path, f.value)
		if errors.Is(err, fs.ErrNotExist) && (strings.Contains(f.name, reserved) || unset[f.name] == f.value) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("set %s to %s: %w", path, f.value, err))
		}
	}
	return errors.Join(errs...)
}

// write sets one value; it does not create a missing file.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// dirs returns the directories of a cgroup in the hierarchies in which podd
// creates it.
func (t *Tree) dirs(rel string) []string {
	var all []string
	seen := map[string]bool{}
	for _, name := range managed {
		// A new cpuset is empty until its parents are set up: the runtime does
		// that.
		mount, ok := t.facts.Controllers[name]
		if ok && !seen[mount] && (name != "cpuset" || t.facts.Version == V2) {
			seen[mount] = true
			all = append(all, filepath.Join(mount, rel))
		}
	}
	return all
}

// mkdir creates a cgroup, but not its parents. made is true if it was missing
// in one of the hierarchies.
func (t *Tree) mkdir(rel string) (made bool, err error) {
	for _, dir := range t.dirs(rel) {
		switch err := os.Mkdir(dir, 0o755); {
		case err == nil:
			made = true
		case !errors.Is(err, fs.ErrExist):
			return made, err
		}
	}
	return made, nil
}

// exists reports whether a cgroup exists in all hierarchies in which podd
// creates it.
func (t *Tree) exists(rel string) bool {
	for _, dir := range t.dirs(rel) {
		if _, err := os.Lstat(dir); err != nil {
			return false
		}
	}
	return true
}

// delegate enables the controllers for the cgroups below rel: on v2 a
// controller works only where the parent delegates it.
func (t *Tree) delegate(rel string) error {
	if t.facts.Version != V2 {
		return nil
	}
	dir := filepath.Join(t.facts.Mounts[0], rel)
	have, err := words(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	passed, err := words(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range managed {
		if !have[name] || passed[name] {
			continue
		}
		// One by one: a controller that cannot be delegated (cpu, above a
		// realtime process) must not keep back the others.
		if err := write(filepath.Join(dir, "cgroup.subtree_control"), "+"+name); err != nil {
			errs = append(errs, fmt.Errorf("delegate controller %s from %s: %w", name, dir, err))
		}
	}
	return errors.Join(errs...)
}

func words(path string) (map[string]bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for word := range strings.FieldsSeq(string(text)) {
		all[word] = true
	}
	return all, nil
}

// levels returns a cgroup's parents from the top, and itself: /a/b gives /a,
// /a/b.
func levels(rel string) []string {
	var all []string
	at := ""
	for part := range strings.SplitSeq(strings.Trim(rel, "/"), "/") {
		at += "/" + part
		all = append(all, at)
	}
	return all
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// gone reports whether a directory is missing, in either of the kernel's ways
// to report it.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

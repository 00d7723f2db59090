package conformance

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"podd/bundle"
)

// conditions are what an entry of a list may depend on: facts about the machine.
var conditions = map[string]func() (bool, error){
	"cgroup v1":            cgroupV1,
	"no dummy devices":     noDummyDevices,
	"OOM scores only rise": oomScoresOnlyRise,
}

// oomScoresOnlyRise holds without CAP_SYS_RESOURCE: no container's oom_score_adj is below 0 then.
func oomScoresOnlyRise() (bool, error) { return !bundle.MayLowerOOMScore(), nil }

func cgroupV1() (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil {
		return false, fmt.Errorf("find out about cgroups: %w", err)
	}
	return fs.Type != unix.CGROUP2_SUPER_MAGIC, nil
}

// noDummyDevices makes a network device of type dummy, if the kernel can, and removes it.
func noDummyDevices() (bool, error) {
	device := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "podd-dummy"}}
	if netlink.LinkAdd(device) != nil {
		return true, nil
	}
	return false, netlink.LinkDel(device)
}

// readExpected reads lines "NAME # reason" or "NAME # where CONDITION # reason"; empty ones,
// those that begin with #, and those whose condition does not hold are not counted.
func readExpected(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the tests that cannot pass: %w", err)
	}
	expected := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, ok := strings.Cut(line, " # ")
		holds := true
		if condition, rest, where := strings.Cut(reason, " # "); where {
			reason = rest
			if holds, err = holdsHere(condition); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		if !ok || strings.HasPrefix(reason, "where ") {
			return nil, fmt.Errorf("%s: %q has no reason: write it behind \" # \"", path, line)
		}
		if holds {
			expected[strings.TrimSpace(name)] = strings.TrimSpace(reason)
		}
	}
	return expected, nil
}

// holdsHere says whether a condition, "where …", holds on this machine.
func holdsHere(condition string) (bool, error) {
	condition = strings.TrimPrefix(condition, "where ")
	holds := conditions[condition]
	if holds == nil {
		return false, fmt.Errorf("there is no condition %q: the conditions are %s", condition, strings.Join(slices.Sorted(maps.Keys(conditions)), ", "))
	}
	return holds()
}

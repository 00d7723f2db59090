package testnode

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func openNetNS(path string) (*netlink.Handle, error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	return netlink.NewHandleAt(ns)
}

func addrOf(ip net.IP) (netip.Addr, bool) {
	addr, ok := netip.AddrFromSlice(ip)
	return addr.Unmap(), ok
}

// cgroupHierarchies are the mount points of all cgroup file systems: one with
// cgroup v2, one a controller with v1.
func cgroupHierarchies() ([]string, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "cgroup" && m.FSType != "cgroup2", false
	})
	if err != nil {
		return nil, err
	}
	var roots []string
	for _, m := range mounts {
		if strings.HasPrefix(m.Mountpoint, "/sys/fs/cgroup") && !slices.Contains(roots, m.Mountpoint) {
			if _, err := os.Stat(m.Mountpoint); err == nil {
				roots = append(roots, m.Mountpoint)
			}
		}
	}
	return roots, nil
}

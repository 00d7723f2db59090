package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
)

// Collected counts what Collect removed.
type Collected struct {
	// Attachments that the plugins released (DEL).
	Attachments int
	// Leases without an attachment.
	Leases int
	// Namespaces without processes.
	Namespaces int
}

// Any says whether anything was removed.
func (c Collected) Any() bool { return c != Collected{} }

// Collect releases what leaked from sandboxes that the runtime has lost: addresses,
// rules of hostPorts, network namespaces. live are the IDs of all sandboxes that the
// runtime knows, ready or not, podd's or not. Nothing newer than before is touched,
// since a sandbox gets its network before the runtime lists it: pass the start time of
// the runtime process, or a few minutes ago, whichever is later.
//
// An error does not stop the rest; a second call retries what is left. It blocks for
// about 20 ms per attachment, and costs a few directory listings if nothing leaked. It
// must not be called concurrently.
func (n *Network) Collect(ctx context.Context, live []string, before time.Time) (Collected, error) {
	known := make(map[string]struct{}, len(live))
	for _, id := range live {
		known[id] = struct{}{}
	}
	g := &collection{n: n, live: known, before: before}
	attachments, err := n.cni.GetCachedAttachments("")
	if err != nil {
		return Collected{}, fmt.Errorf("list network attachments: %w", err)
	}
	err = errors.Join(g.collectAttachments(ctx, attachments), g.collectLeases(), g.collectNamespaces(attachments))
	return g.done, err
}

// collection is one run of Collect.
type collection struct {
	n      *Network
	live   map[string]struct{}
	before time.Time
	done   Collected
}

// isOrphaned says whether the file of a sandbox is orphaned: the sandbox does not live, and
// the file is old enough.
func (g *collection) isOrphaned(id, file string) bool {
	if _, ok := g.live[id]; ok {
		return false
	}
	info, err := os.Lstat(file)
	return err == nil && info.ModTime().Before(g.before)
}

// collectAttachments has the plugins release lost attachments (DEL), by libcni's cached
// result of their ADD: lease, hostPort rules and the cached result are removed.
func (g *collection) collectAttachments(ctx context.Context, all []*libcni.NetworkAttachment) error {
	var errs []error
	booted := bootTime()
	for _, a := range all {
		if a.Network != g.n.cfg.Bridge {
			continue
		}
		note := filepath.Join(g.n.cfg.CacheDir, "results", a.Network+"-"+a.ContainerID+"-"+a.IfName)
		if !g.isOrphaned(a.ContainerID, note) {
			continue
		}
		info, err := os.Stat(note)
		if err == nil && info.ModTime().Before(booted) && !fileExists(a.NetNS) {
			// A reboot has removed everything but the cached result, so that the
			// plugins, a process each, need not be called. If the namespace exists,
			// there was no reboot: the clock was set.
			err = os.Remove(note)
		} else {
			err = g.release(ctx, a)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("undo network of lost sandbox %s: %w", a.ContainerID, err))
			continue
		}
		g.done.Attachments++
	}
	return errors.Join(errs...)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (g *collection) release(ctx context.Context, a *libcni.NetworkAttachment) error {
	list, err := libcni.ConfListFromBytes(a.Config)
	if err != nil {
		return err
	}
	netns := a.NetNS
	if !fileExists(netns) {
		netns = "" // the plugins then do what can be done without
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return g.n.cni.DelNetworkList(ctx, list, &libcni.RuntimeConf{
		ContainerID: a.ContainerID, NetNS: netns, IfName: a.IfName, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs,
	})
}

// collectLeases removes the leases of lost sandboxes without an attachment, under
// host-local's own lock.
func (g *collection) collectLeases() error {
	dir := filepath.Join(g.n.cfg.LeaseDir, g.n.cfg.Bridge)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list address leases: %w", err)
	}
	var lost []string
	for _, e := range entries {
		if file := filepath.Join(dir, e.Name()); g.isOrphanedLease(file) {
			lost = append(lost, file)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	unlock, err := flock(filepath.Join(dir, "lock"))
	if err != nil {
		return fmt.Errorf("lock address leases: %w", err)
	}
	defer unlock()
	var errs []error
	for _, file := range lost {
		if !g.isOrphanedLease(file) { // given to another meanwhile
			continue
		}
		if err := os.Remove(file); err != nil {
			errs = append(errs, fmt.Errorf("release address: %w", err))
			continue
		}
		g.done.Leases++
	}
	return errors.Join(errs...)
}

// isOrphanedLease reads a lease: named by its address, "ID\r\ninterface" inside.
func (g *collection) isOrphanedLease(file string) bool {
	name := filepath.Base(file)
	if name == "lock" || strings.HasPrefix(name, "last_reserved_ip") {
		return false
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	id, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\r\n")
	return id != "" && g.isOrphaned(id, file)
}

// collectNamespaces unmounts network namespaces without processes that belong to no
// attachment of a known sandbox; their veths are removed with them.
func (g *collection) collectNamespaces(attachments []*libcni.NetworkAttachment) error {
	if g.n.cfg.NetNSDir == "" {
		return nil
	}
	entries, err := os.ReadDir(g.n.cfg.NetNSDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list network namespaces: %w", err)
	}
	held := map[string]struct{}{}
	for _, a := range attachments {
		if _, ok := g.live[a.ContainerID]; ok {
			held[a.NetNS] = struct{}{}
		}
	}
	var errs []error
	var inUse map[uint64]struct{} // read once, and only if there is something to ask
	for _, e := range entries {
		path := filepath.Join(g.n.cfg.NetNSDir, e.Name())
		if _, ok := held[path]; ok || !strings.HasPrefix(e.Name(), g.n.cfg.NetNSPrefix) {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || !time.Unix(st.Mtim.Unix()).Before(g.before) {
			continue
		}
		if inUse == nil {
			if inUse, err = namespacesInUse(g.n.proc); err != nil {
				return err
			}
		}
		if _, ok := inUse[st.Ino]; ok {
			continue
		}
		if err := removeNamespace(path); err != nil {
			errs = append(errs, err)
			continue
		}
		g.done.Namespaces++
	}
	return errors.Join(errs...)
}

// namespacesInUse are the inodes of all processes' network namespaces.
func namespacesInUse(proc string) (map[uint64]struct{}, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	inodes := map[uint64]struct{}{}
	for _, e := range entries {
		if name := e.Name(); name[0] < '0' || name[0] > '9' {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(filepath.Join(proc, e.Name(), "ns/net"), &st) == nil {
			inodes[st.Ino] = struct{}{}
		}
	}
	return inodes, nil
}

// removeNamespace unmounts a namespace and removes its mount point.
func removeNamespace(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return &fs.PathError{Op: "unmount network namespace", Path: path, Err: err}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// flock takes the lock that host-local takes.
func flock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// bootTime is when this machine booted; zero if unknown.
func bootTime() time.Time {
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}

package testnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// aPlace claims a place in a directory of the test's own.
func aPlace(t *testing.T) *Place {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making namespaces, mounts and cgroups needs root")
	}
	place, err := Claim(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = place.Release() })
	if err := place.Sweep(); err != nil { // what a run that was killed left
		t.Fatal(err)
	}
	if err := os.MkdirAll(place.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return place
}

// TestWhoTakesAPlaceEndsWhatItsKilledHolderLeft: it had its directory elsewhere.
func TestWhoTakesAPlaceEndsWhatItsKilledHolderLeft(t *testing.T) {
	place := aPlace(t)
	cmd := exec.Command("/bin/sh", "-c", "echo up; read line; :", place.Dir+"/run")
	cmd.Args[0] = "podd"
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil { // which stays open
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Its command line, by which it is found, comes a little after Start returns.
	if _, err := io.ReadFull(out, make([]byte, len("up\n"))); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	next := *place // with the same lock, as after a kill
	next.Dir = filepath.Join(t.TempDir(), "0")
	if err := next.succeed(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || cmd.ProcessState.Success() {
		t.Errorf("the process of the last holder ended with %v, want it killed", err)
	}
	if _, err := os.Stat(place.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the last holder's directory: %v, want it gone", err)
	}
}

// TestALeakOfEachKindIsFound makes one thing of each kind that a pod might
// leave behind and asserts that exactly this is reported, and nothing once it
// is gone: a checker that sees nothing would pass every other test.
func TestALeakOfEachKindIsFound(t *testing.T) {
	place := aPlace(t)
	scope := Scope{Place: place, LeaseDir: filepath.Join(place.Dir, "leases"), Paths: []string{filepath.Join(place.Dir, "pods")}, Mine: []int{os.Getpid()}}
	scope.LogRemovals, scope.Logs = filepath.Join(place.Dir, "log-removals"), filepath.Join(place.Dir, "logs")
	var err error
	if scope.Ports, err = watchPorts(t.Context(), place.Bridge); err != nil {
		t.Fatal(err)
	}
	for _, leak := range []struct {
		kind, want string
		make       func(t *testing.T) (undo func())
	}{
		{KindNetNS, "netns/cni-1", func(t *testing.T) func() { return leakNetNS(t, place) }},
		{KindLink, "veth " + place.Bridge + "v", func(t *testing.T) func() { return leakVeth(t, place) }},
		{KindLink, place.Bridge + "f, which was on bridge " + place.Bridge + " and is on none", func(t *testing.T) func() { return leakFallenVeth(t, scope) }},
		{KindLease, "given to 0123456789ab", func(t *testing.T) func() {
			return leakFile(t, filepath.Join(scope.LeaseDir, place.Bridge, "10.0.0.7"), "0123456789abcdef\neth0")
		}},
		{KindMount, "tmpfs on " + place.Dir + "/root", func(t *testing.T) func() { return leakMount(t, place) }},
		{KindCgroup, place.CgroupRoot + "/kubepods/besteffort/pod-7/ctr", func(t *testing.T) func() { return leakCgroup(t, place) }},
		{KindRule, "nat chain CNI-DN-0123", func(t *testing.T) func() { return leakChain(t, place) }},
		{KindRule, "nft table inet leak chain c", func(t *testing.T) func() { return leakNFT(t, place) }},
		{KindProcess, "containerd-shim", func(t *testing.T) func() { return leakShim(t, place) }},
		{KindProcess, "sleep 4713", leakChild},
		{KindPath, "/pods/uid-7", func(t *testing.T) func() {
			return leakFile(t, filepath.Join(place.Dir, "pods", "uid-7", "etc-hosts"), "")
		}},
		{KindPath, "/log-removals/uid-7.json, due", func(t *testing.T) func() {
			return leakFile(t, filepath.Join(scope.LogRemovals, "uid-7.json"), aLogRemoval(-time.Second))
		}},
		{KindPath, "/log-removals/uid-8.json, due", func(t *testing.T) func() {
			return leakFile(t, filepath.Join(scope.LogRemovals, "uid-8.json"), aLogRemoval(time.Hour))
		}},
		{KindPath, "/log-removals/uid-9.json", func(t *testing.T) func() {
			return leakFile(t, filepath.Join(scope.LogRemovals, "uid-9.json"), "{")
		}},
		{KindPath, "logs that nobody is to remove: " + filepath.Join(place.Dir, "logs", "default_a_uid-10"), func(t *testing.T) func() {
			return leakFile(t, filepath.Join(scope.Logs, "default_a_uid-10", "0.log"), "")
		}},
	} {
		t.Run(leak.kind, func(t *testing.T) {
			before := take(t, scope)
			undo := leak.make(t)
			left := Left(before, take(t, scope))
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			awaited := scope.AwaitNothingLeft(short, before, 10*time.Millisecond)
			cancel()
			undo()
			if awaited == nil || !strings.Contains(awaited.Error(), leak.want) {
				t.Errorf("waiting until nothing is left: got %v, want an error with %q", awaited, leak.want)
			}
			for _, line := range left {
				if !strings.HasPrefix(line, leak.kind+": ") {
					t.Errorf("a leaked %s was also reported as %q", leak.kind, line)
				}
			}
			if !slices.ContainsFunc(left, func(line string) bool { return strings.Contains(line, leak.want) }) {
				t.Errorf("got %q, want a line with %q", left, leak.want)
			}
			if rest := Left(before, take(t, scope)); len(rest) != 0 {
				t.Errorf("after it was undone: got %q, want nothing", rest)
			}
			if err := scope.AwaitNothingLeft(t.Context(), before, 10*time.Millisecond); err != nil {
				t.Errorf("after it was undone: %v", err)
			}
		})
	}
}

// TestLogsThatStayForShippersAreNoLeak: podd keeps those of a gone pod for a minute.
func TestLogsThatStayForShippersAreNoLeak(t *testing.T) {
	place := aPlace(t)
	scope := Scope{Place: place, LeaseDir: filepath.Join(place.Dir, "leases"), LogRemovals: filepath.Join(place.Dir, "log-removals"), Logs: filepath.Join(place.Dir, "logs")}
	before := take(t, scope)
	leakFile(t, filepath.Join(scope.LogRemovals, "uid-7.json"), aLogRemoval(logsStay/2))
	leakFile(t, filepath.Join(scope.Logs, "default_a_uid-7", "app", "0.log"), "")
	if left := Left(before, take(t, scope)); len(left) != 0 {
		t.Errorf("got %q, want nothing", left)
	}
}

// aLogRemoval is podd's checkpoint of logs that are to be removed after so long.
func aLogRemoval(after time.Duration) string {
	return fmt.Sprintf(`{"namespace":"default","name":"a","uid":"uid-7","due":%q}`, time.Now().Add(after).Format(time.RFC3339Nano))
}

// TestAMountOnAMountIsFound: the one below hides it from whoever asks by name only.
func TestAMountOnAMountIsFound(t *testing.T) {
	place := aPlace(t)
	scope := Scope{Place: place, LeaseDir: filepath.Join(place.Dir, "leases")}
	defer leakMount(t, place)()
	before := take(t, scope)
	undo := leakMount(t, place)
	left := Left(before, take(t, scope))
	undo()
	if len(left) != 1 || !strings.Contains(left[0], "tmpfs on "+place.Dir+"/root") {
		t.Errorf("got %q, want the second mount", left)
	}
	if rest := Left(before, take(t, scope)); len(rest) != 0 {
		t.Errorf("after it was undone: got %q, want nothing", rest)
	}
}

// TestANeighboursThingsAreNoLeak: two nodes on one machine do not see each other.
func TestANeighboursThingsAreNoLeak(t *testing.T) {
	place, neighbour := aPlace(t), aPlace(t)
	scope := Scope{Place: place, LeaseDir: filepath.Join(place.Dir, "leases")}
	before := take(t, scope)
	for _, undo := range []func(){
		leakNetNS(t, neighbour), leakVeth(t, neighbour), leakMount(t, neighbour),
		leakCgroup(t, neighbour), leakChain(t, neighbour), leakNFT(t, neighbour), leakShim(t, neighbour),
	} {
		defer undo()
	}
	if left := Left(before, take(t, scope)); len(left) != 0 {
		t.Errorf("got %q, want nothing", left)
	}
}

func take(t *testing.T, scope Scope) Snapshot {
	t.Helper()
	snap, err := scope.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

func run(t *testing.T, command ...string) {
	t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", command, err, out)
	}
}

func leakNetNS(t *testing.T, place *Place) func() {
	t.Helper()
	path := filepath.Join(place.Dir, "netns", "cni-1")
	leakFile(t, path, "")
	done := make(chan error)
	go func() {
		// The thread ends with this goroutine: it is locked and never unlocked.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// Somebody who looks through all of the machine may have it open just now.
	return func() { run(t, "umount", "--lazy", path) }
}

func leakVeth(t *testing.T, place *Place) func() {
	t.Helper()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: place.Bridge}}
	if err := netlink.LinkAdd(bridge); err != nil {
		t.Fatal(err)
	}
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: place.Bridge + "v", MasterIndex: bridge.Index},
		PeerName:  place.Bridge + "w",
	}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	return func() { _, _ = netlink.LinkDel(veth), netlink.LinkDel(bridge) }
}

// leakFallenVeth is what is left where the bridge was removed under it.
func leakFallenVeth(t *testing.T, scope Scope) func() {
	t.Helper()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: scope.Place.Bridge}}
	if err := netlink.LinkAdd(bridge); err != nil {
		t.Fatal(err)
	}
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: scope.Place.Bridge + "f", MasterIndex: bridge.Index}, PeerName: scope.Place.Bridge + "g",
	}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	err := Poll(t.Context(), time.Millisecond, func() error {
		scope.Ports.mu.Lock()
		defer scope.Ports.mu.Unlock()
		if scope.Ports.known[veth.Index] != veth.Name {
			return errors.New("it was not noted")
		}
		return scope.Ports.err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(bridge); err != nil {
		t.Fatal(err)
	}
	return func() { _ = netlink.LinkDel(veth) }
}

// leakChild begins a process in no cgroup of pods and with no path of the place in
// its command line.
func leakChild(t *testing.T) func() {
	t.Helper()
	cmd := exec.Command("sleep", "4713")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() { _, _ = cmd.Process.Kill(), cmd.Wait() }
}

func leakFile(t *testing.T, path, text string) func() {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return func() { _ = os.RemoveAll(filepath.Dir(path)) }
}

func leakMount(t *testing.T, place *Place) func() {
	t.Helper()
	dir := filepath.Join(place.Dir, "root", "volume")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "-t", "tmpfs", "-o", "size=64k", "leak", dir)
	return func() { run(t, "umount", dir) }
}

func leakCgroup(t *testing.T, place *Place) func() {
	t.Helper()
	roots, err := cgroupHierarchies()
	if err != nil || len(roots) == 0 {
		t.Fatalf("no cgroup hierarchy: %v", err)
	}
	root := roots[0]
	if i := slices.Index(roots, "/sys/fs/cgroup/pids"); i >= 0 {
		root = roots[i]
	}
	path := filepath.Join(root, place.CgroupRoot, "kubepods/besteffort/pod-7/ctr")
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return func() {
		for ; path != root; path = filepath.Dir(path) {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		}
	}
}

func leakChain(t *testing.T, place *Place) func() {
	t.Helper()
	chain := "CNI-DN-0123" + strings.ToUpper(place.Bridge)
	run(t, "iptables", "-w", "-t", "nat", "-N", chain)
	run(t, "iptables", "-w", "-t", "nat", "-A", chain, "-s", place.Subnet.String(), "-j", "ACCEPT")
	return func() {
		run(t, "iptables", "-w", "-t", "nat", "-F", chain)
		run(t, "iptables", "-w", "-t", "nat", "-X", chain)
	}
}

func leakNFT(t *testing.T, place *Place) func() {
	t.Helper()
	table := "leak"
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft on this machine")
	}
	run(t, "nft", "add", "table", "inet", table)
	run(t, "nft", "add", "chain", "inet", table, "c")
	run(t, "nft", "add", "rule", "inet", table, "c", "ip", "saddr", place.Subnet.String(), "counter", "accept")
	return func() { run(t, "nft", "delete", "table", "inet", table) }
}

func leakShim(t *testing.T, place *Place) func() {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "echo ready; read x", "containerd-shim-runc-v2", "-address", place.Dir+"/c/containerd.sock")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Until the shell speaks its command line may still be empty.
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	return func() { _, _ = in.Close(), cmd.Wait() }
}

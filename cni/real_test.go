package cni

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
)

// The whole network with the real plugins, in network namespaces of its own: a
// node, a machine outside, and two pods, one of which the runtime "forgets".

// inNetNS runs f on a thread in the network namespace that path is of; processes
// that f starts are in it too. The thread ends with f.
func inNetNS(t *testing.T, path string, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is not to be used again
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			defer unix.Close(fd)
			err = unix.Setns(fd, unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// newNetNS makes a namespace and holds it by a mount, as the runtime does.
func newNetNS(t *testing.T, path string) {
	t.Helper()
	write(t, path, "")
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("unshare: %w", err)
			return
		}
		done <- unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, "")
	}()
	if err := <-done; err != nil {
		t.Skipf("cannot make network namespaces here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
			t.Errorf("unmount %s: %v", path, err)
		}
	})
	inNetNS(t, path, func() error { return sh("ip link set lo up") })
}

func sh(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("sh", "-ec", line).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}

func output(line string) string {
	out, _ := exec.Command("sh", "-c", line).CombinedOutput()
	return string(out)
}

// answer listens and tells each caller the address it came from.
func answer(t *testing.T, netns, address string) {
	t.Helper()
	inNetNS(t, netns, func() error {
		l, err := net.Listen("tcp4", address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(c, c.RemoteAddr().(*net.TCPAddr).IP)
				c.Close()
			}
		}()
		return nil
	})
}

// call returns what answer says to a caller in netns.
func call(t *testing.T, netns, address string) (said string) {
	t.Helper()
	inNetNS(t, netns, func() error {
		c, err := net.DialTimeout("tcp4", address, 5*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		b, err := io.ReadAll(c)
		said = string(b)
		return err
	})
	return said
}

func bundleDir(t *testing.T) string {
	dir := os.Getenv("PODD_RUNTIME_DIR")
	if dir == "" {
		dir, _ = filepath.Abs("../build/runtime/bin")
	}
	if _, err := os.Stat(filepath.Join(dir, "bridge")); err != nil {
		t.Skip("needs the CNI plugins: make runtime")
	}
	return dir
}

func TestRealNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making networks needs root")
	}
	dir := t.TempDir()
	node, outside := filepath.Join(dir, "node"), filepath.Join(dir, "outside")
	newNetNS(t, node)
	newNetNS(t, outside)
	// A wire between the node (192.0.2.1) and a machine that knows no pod CIDR.
	connect(t, node, outside)

	n, err := New(Config{
		Bridge: "poddt1", PodCIDR: netip.MustParsePrefix("10.203.0.0/24"), BinDirs: []string{bundleDir(t)},
		ConfDir: filepath.Join(dir, "net.d"), LeaseDir: filepath.Join(dir, "leases"),
		CacheDir: filepath.Join(dir, "cache"), NetNSDir: filepath.Join(dir, "netns"), NetNSPrefix: "cni-",
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	inNetNS(t, node, func() error { return n.SetUp(t.Context()) })
	inNetNS(t, node, func() error { return n.SetUp(t.Context()) }) // idempotent
	if rules := nodeSees(t, node, "nft list table ip podd_poddt1"); strings.Count(rules, "masquerade") != 1 {
		t.Errorf("want one masquerade rule for all pods, got\n%s", rules)
	}
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}

	alive := addPod(t, n, node, "alive", 0)
	dead := addPod(t, n, node, "dead", 18080)
	answer(t, filepath.Join(n.cfg.NetNSDir, "cni-dead"), ":8080")
	answer(t, outside, "192.0.2.2:9090")

	if said := call(t, filepath.Join(n.cfg.NetNSDir, "cni-alive"), dead+":8080"); said != alive {
		t.Errorf("pod to pod: the other saw %q, want %s", said, alive)
	}
	if said := call(t, outside, "192.0.2.1:18080"); said != "192.0.2.2" {
		t.Errorf("hostPort from outside: the pod saw %q, want the caller 192.0.2.2", said)
	}
	call(t, node, "127.0.0.1:18080")
	if said := call(t, filepath.Join(n.cfg.NetNSDir, "cni-alive"), "192.0.2.2:9090"); said != "192.0.2.1" {
		t.Errorf("pod to outside: it saw %q, want the node 192.0.2.1", said)
	}

	// The runtime forgets "dead": everything of it goes, nothing of "alive".
	inNetNS(t, node, func() error {
		got, err := n.Collect(t.Context(), []string{"alive"}, time.Now().Add(time.Second))
		if want := (Collected{Attachments: 1, Namespaces: 1}); err == nil && got != want {
			err = fmt.Errorf("collected %+v, want %+v", got, want)
		}
		return err
	})
	if rules := nodeSees(t, node, "nft list ruleset"); strings.Contains(rules, "18080") {
		t.Errorf("the hostPort of the lost pod still leads somewhere:\n%s", rules)
	}
	if leases, _ := filepath.Glob(filepath.Join(n.cfg.LeaseDir, "poddt1/10.*")); len(leases) != 1 {
		t.Errorf("leases: got %v, want the one of the pod that lives", leases)
	}
	if links := nodeSees(t, node, "ip -o link show master poddt1"); strings.Count(links, "\n") != 1 {
		t.Errorf("on the bridge: got\n%s\nwant the veth of the pod that lives", links)
	}

	inNetNS(t, node, func() error {
		if _, err := n.Collect(t.Context(), nil, time.Now().Add(time.Second)); err != nil {
			return err
		}
		_, err := n.TearDown(context.WithoutCancel(t.Context()))
		return err
	})
	if left := nodeSees(t, node, "nft list ruleset; ip -o link show type bridge; ls "+n.cfg.NetNSDir); strings.TrimSpace(left) != "" {
		t.Errorf("after TearDown there is left:\n%s", left)
	}
}

func nodeSees(t *testing.T, node, line string) (out string) {
	t.Helper()
	inNetNS(t, node, func() error { out = output(line); return nil })
	return out
}

// connect lays a wire between two namespaces.
func connect(t *testing.T, node, outside string) {
	t.Helper()
	holder := exec.Command("sleep", "60")
	inNetNS(t, outside, holder.Start)
	defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
	inNetNS(t, node, func() error {
		return sh("ip link add wire0 type veth peer name wire1", fmt.Sprintf("ip link set wire1 netns %d", holder.Process.Pid),
			"ip addr add 192.0.2.1/24 dev wire0", "ip link set wire0 up")
	})
	inNetNS(t, outside, func() error { return sh("ip addr add 192.0.2.2/24 dev wire1", "ip link set wire1 up") })
}

// addPod gives a namespace its network through libcni and returns its address.
func addPod(t *testing.T, n *Network, node, id string, hostPort int) string {
	t.Helper()
	netns := filepath.Join(n.cfg.NetNSDir, "cni-"+id)
	newNetNS(t, netns)
	rt := &libcni.RuntimeConf{ContainerID: id, NetNS: netns, IfName: "eth0"}
	if hostPort != 0 {
		rt.CapabilityArgs = map[string]any{"portMappings": []map[string]any{{"hostPort": hostPort, "containerPort": 8080, "protocol": "tcp"}}}
	}
	list, _, err := n.load()
	if err != nil {
		t.Fatal(err)
	}
	inNetNS(t, node, func() error {
		began := time.Now()
		_, err := n.cni.AddNetworkList(t.Context(), list, rt)
		t.Logf("ADD %s: %v", id, time.Since(began).Round(100*time.Microsecond))
		return err
	})
	var address string
	inNetNS(t, netns, func() error {
		address = strings.TrimSpace(output("ip -4 -o addr show dev eth0 | awk '{print $4}' | cut -d/ -f1"))
		return nil
	})
	return address
}

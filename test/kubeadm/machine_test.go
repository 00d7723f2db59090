package kubeadm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podd/internal/child"
	"podd/test/e2e/testnode"
)

//go:embed machine.sh
var machineScript string

// patience is for a machine that does much else; alone none of this takes ten seconds.
const patience = 3 * time.Minute

// machine is what a node is to kubeadm: namespaces of its own for mounts, processes, network
// and host name. Everything in it ends with its first process, and with the test.
type machine struct {
	*testing.T
	name, address, dir string
	// cgroups is --cgroup-root: cgroups are in no namespace here.
	cgroups string
	init    *exec.Cmd
	env     []string
}

// newMachine starts one that has nothing but files of this machine.
func newMachine(t *testing.T, dir, name, address string, env []string) *machine {
	t.Helper()
	m := &machine{T: t, name: name, address: address, dir: filepath.Join(dir, name), cgroups: fmt.Sprintf("/podd-kubeadm-%d-%s", os.Getpid(), name), env: env}
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(m.dir, "machine.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	m.init = exec.Command("bash", "-c", machineScript, "machine", m.dir, name)
	m.init.Dir, m.init.Stdout, m.init.Stderr = "/", log, log
	m.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS, Setsid: true,
	}
	if err := child.Start(m.init); err != nil {
		t.Fatalf("start machine %s: %v", name, err)
	}
	t.Cleanup(m.end)
	m.eventually("machine "+name+" is up", func(context.Context) error {
		_, err := os.Stat(filepath.Join(m.dir, "up"))
		return err
	})
	return m
}

// end kills everything in it, and removes the cgroups that were left.
func (m *machine) end() {
	if m.Failed() {
		logs, _ := filepath.Glob(filepath.Join(m.dir, "*.log"))
		for _, log := range logs {
			m.Logf("the end of %s's %s:\n%s", m.name, filepath.Base(log), tail(log))
		}
	}
	if err := m.init.Process.Kill(); err != nil {
		m.Error(err)
	}
	_ = m.init.Wait() // it was killed
	err := testnode.Poll(context.Background(), 10*time.Millisecond, func() error { return errors.Join(m.removeCgroups()...) })
	if err != nil {
		m.Errorf("cgroups of %s: %v", m.name, err)
	}
}

// cgroupRoots are the cgroups of its pods, one for each hierarchy.
func (m *machine) cgroupRoots() []string {
	v1, _ := filepath.Glob("/sys/fs/cgroup/*" + m.cgroups)
	v2, _ := filepath.Glob("/sys/fs/cgroup" + m.cgroups)
	return append(v1, v2...)
}

func (m *machine) removeCgroups() (errs []error) {
	for _, root := range m.cgroupRoots() {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := unix.Rmdir(dirs[i]); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("%s: %w", dirs[i], err))
			}
		}
	}
	return errs
}

// command is one in the machine.
func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(m.init.Process.Pid), "-m", "-n", "-u", "-p", "--", "env"}, append(m.env, args...)...)...)
	cmd.Dir = "/"
	return cmd
}

// try runs a command in the machine, and returns what it has written.
func (m *machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(m.Context(), patience)
	defer cancel()
	out, err := m.command(ctx, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s on %s: %w: %s", strings.Join(args, " "), m.name, err, out)
	}
	return string(out), err
}

// run is try, and fails the test.
func (m *machine) run(args ...string) string {
	m.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.Fatal(err)
	}
	return out
}

// begin runs a shell script in the machine until it ends or the machine does, with a log and
// a file of its process ID there.
func (m *machine) begin(name, script string, args ...string) {
	m.Helper()
	log, err := os.OpenFile(filepath.Join(m.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		m.Fatal(err)
	}
	defer log.Close()
	cmd := m.command(context.Background(), append([]string{"sh", "-c", "echo $$ >/run/" + name + ".pid; " + script, "sh"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		m.Fatalf("start %s on %s: %v", name, m.name, err)
	}
	go func() { _ = cmd.Wait() }()
}

// kill ends what begin has begun, and waits for it.
func (m *machine) kill(name, signal string) {
	m.Helper()
	m.run("sh", "-c", "p=$(cat /run/"+name+".pid); kill -"+signal+" $p; while kill -0 $p 2>/dev/null; do sleep 0.05; done")
}

// has says whether a file of the machine is there, and not empty.
func (m *machine) has(path string) error {
	info, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", m.init.Process.Pid, path))
	if err == nil && info.Size() == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	return err
}

// processes are those of the machine but the first two, which make it one.
func (m *machine) processes() string {
	m.Helper()
	return m.run("sh", "-c", `ps -e -o pid=,args= | awk '$1 != 1 && $0 !~ /sleep 1000$|ps -e|awk |sh -c ps/'`)
}

func (m *machine) eventually(what string, f func(ctx context.Context) error) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), patience)
	defer cancel()
	if err := testnode.Poll(ctx, 100*time.Millisecond, func() error { return f(ctx) }); err != nil {
		m.Fatalf("wait until %s: %v", what, err)
	}
}

func tail(path string) string {
	text, _ := os.ReadFile(path)
	return string(text[max(0, len(text)-6000):])
}

// connect lays a cable between two machines, the network that both have.
func connect(a, b *machine) {
	a.Helper()
	out, err := exec.Command("ip", "link", "add", "eth0", "netns", strconv.Itoa(a.init.Process.Pid), "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(b.init.Process.Pid)).CombinedOutput()
	if err != nil {
		a.Fatalf("connect %s and %s: %v: %s", a.name, b.name, err, out)
	}
	for _, m := range []*machine{a, b} {
		other := a
		if m == a {
			other = b
		}
		m.run("sh", "-ec", fmt.Sprintf(`ip address add %[1]s/24 dev eth0; ip link set eth0 up
ip route add default via %[2]s
printf '%[1]s %[3]s\n%[2]s %[4]s\n' >>/etc/hosts
echo nameserver %[2]s >/etc/resolv.conf`, m.address, other.address, m.name, other.name))
	}
}

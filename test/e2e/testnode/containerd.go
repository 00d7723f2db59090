package testnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
)

// containerdConfig is what the bundle's own configuration comes down to, in a
// place of its own: quiet collectors, no NRI, nothing below the machine's
// shared directories.
var containerdConfig = template.Must(template.New("containerd").Parse(`version = 3
root = "{{.Dir}}/c/root"
state = "{{.Dir}}/c/state"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[plugins.'io.containerd.server.v1.grpc']
  address = "{{.Dir}}/c/containerd.sock"
[plugins.'io.containerd.server.v1.ttrpc']
  address = "{{.Dir}}/c/containerd.sock.ttrpc"
[plugins.'io.containerd.internal.v1.opt']
  path = "{{.Dir}}/c/opt"
[plugins.'io.containerd.shim.v1.manager']
  socket_dir = "{{.Dir}}/c/s"
[plugins.'io.containerd.cri.v1.images']
  stats_collect_period = 600
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{{.Pause}}"
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = "{{.Dir}}/c/certs.d"
[plugins.'io.containerd.cri.v1.runtime']
  stats_collect_period = "10m"
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  tolerate_missing_hugetlb_controller = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{{.Bin}}"]
    conf_dir = "{{.Dir}}/c/net.d"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "{{.Bin}}/containerd-shim-runc-v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "{{.Bin}}/runc"
      SystemdCgroup = false
`))

// cniConfig is the default network of the bundle in the place's subnet.
const cniConfig = `{
  "cniVersion": "1.1.0",
  "name": %q,
  "plugins": [
    {"type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": false, "hairpinMode": true,
     "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// Containerd is a containerd process in a place.
type Containerd struct {
	place  *Place
	bundle Bundle

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// NewContainerd writes the configuration and the CNI network; it starts nothing.
func NewContainerd(place *Place, bundle Bundle) (*Containerd, error) {
	c := &Containerd{place: place, bundle: bundle}
	for _, dir := range []string{"c/root", "c/state", "c/opt", "c/s", "c/net.d", "c/certs.d"} {
		if err := os.MkdirAll(filepath.Join(place.Dir, dir), 0o711); err != nil {
			return nil, fmt.Errorf("make containerd's directories: %w", err)
		}
	}
	var text strings.Builder
	err := containerdConfig.Execute(&text, map[string]any{
		"Dir": place.Dir, "Bin": bundle.Bin, "Pause": ImagePause, "RestrictOOM": !mayLowerOOMScore(),
	})
	if err != nil {
		return nil, fmt.Errorf("write containerd's configuration: %w", err)
	}
	if err := os.WriteFile(c.configPath(), []byte(text.String()), 0o600); err != nil {
		return nil, fmt.Errorf("write containerd's configuration: %w", err)
	}
	return c, c.WriteNetwork()
}

func (c *Containerd) configPath() string { return filepath.Join(c.place.Dir, "c", "config.toml") }

// NetworkDir is the directory of CNI configurations.
func (c *Containerd) NetworkDir() string { return filepath.Join(c.place.Dir, "c", "net.d") }

// LeaseDir is where host-local keeps the addresses it gave away.
func (c *Containerd) LeaseDir() string { return filepath.Join(c.place.Dir, "c", "leases") }

// Socket is the path of the CRI socket; Endpoint the same as a URL.
func (c *Containerd) Socket() string   { return filepath.Join(c.place.Dir, "c", "containerd.sock") }
func (c *Containerd) Endpoint() string { return "unix://" + c.Socket() }

// WriteNetwork (re)writes the CNI network of the place.
func (c *Containerd) WriteNetwork() error {
	text := fmt.Sprintf(cniConfig, c.place.Network, c.place.Bridge, c.LeaseDir(), c.place.Subnet)
	if err := os.WriteFile(filepath.Join(c.NetworkDir(), "10-podd.conflist"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the CNI network: %w", err)
	}
	return nil
}

// Start runs containerd and returns when its CRI answers.
func (c *Containerd) Start(ctx context.Context) error {
	log, err := os.OpenFile(c.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open containerd's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	cmd := exec.Command(filepath.Join(c.bundle.Bin, "containerd"), "--config", c.configPath())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "PATH="+c.bundle.Bin+":"+os.Getenv("PATH"))
	// A group of its own: Ctrl-C at a terminal must reach the harness only,
	// which still needs the runtime to clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	c.mu.Lock()
	c.cmd, c.done = cmd, done
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	cri, err := DialCRI(c.Endpoint())
	if err != nil {
		return err
	}
	defer func() { _ = cri.Close() }()
	err = Poll(ctx, 20*time.Millisecond, func() error {
		select {
		case <-done:
			return Stop(fmt.Errorf("containerd ended at once: %s", c.logTail()))
		default:
		}
		return cri.Ready(ctx)
	})
	if err != nil {
		return fmt.Errorf("wait for containerd: %w", err)
	}
	return nil
}

// LogPath is containerd's log.
func (c *Containerd) LogPath() string { return filepath.Join(c.place.Dir, "c", "containerd.log") }

func (c *Containerd) logTail() string {
	text, _ := os.ReadFile(c.LogPath())
	return string(text[max(0, len(text)-2000):])
}

// Pid is the process ID of the running containerd, 0 if there is none.
func (c *Containerd) Pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return 0
	}
	select {
	case <-c.done:
		return 0
	default:
		return c.cmd.Process.Pid
	}
}

// Signal sends a signal to the running containerd and, for SIGKILL and
// SIGTERM, waits until it is gone. No pod ends with it.
func (c *Containerd) Signal(sig syscall.Signal) error {
	pid := c.Pid()
	if pid == 0 {
		return nil
	}
	if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to containerd: %w", sig, err)
	}
	if sig != unix.SIGKILL && sig != unix.SIGTERM {
		return nil
	}
	c.mu.Lock()
	done := c.done
	c.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-time.After(20 * time.Second):
		return fmt.Errorf("containerd (%d) did not end within 20 s of %v", pid, sig)
	}
}

// Import loads an OCI or docker archive into the CRI's image store.
func (c *Containerd) Import(ctx context.Context, archive string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bundle.Bin, "ctr"),
		"--address", c.Socket(), "--namespace", "k8s.io", "images", "import", "--local", archive)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("import %s: %w: %s", archive, err, out)
	}
	return nil
}

// ImportAll loads every archive of the bundle.
func (c *Containerd) ImportAll(ctx context.Context) error {
	archives, err := filepath.Glob(filepath.Join(c.bundle.Images, "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := c.Import(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

// mayLowerOOMScore tries whether a child of ours may be given a negative
// oom_score_adj, which containers of guaranteed pods want and which needs
// CAP_SYS_RESOURCE.
func mayLowerOOMScore() bool {
	cmd := exec.Command("/bin/sh", "-c", "echo -998 > /proc/self/oom_score_adj")
	return cmd.Run() == nil
}

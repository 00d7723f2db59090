package testnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"podd/bundle"
	"podd/cni"
	"podd/internal/instance"
)

// Containerd is the bundled containerd of a place, with the configuration and
// the default network that podd ships: what `podd runtime` would run there.
//
// Whoever started the process, the harness or podd's own supervisor, it is
// found and signalled by its configuration file.
type Containerd struct {
	place    *Place
	bundle   Bundle
	settings bundle.Settings
	network  *cni.Network
}

// NewContainerd writes the configuration and the network; it starts nothing.
func NewContainerd(ctx context.Context, place *Place, b Bundle) (*Containerd, error) {
	c := &Containerd{place: place, bundle: b}
	c.settings = bundle.Settings{
		BinDir: b.Bin, RootDir: place.Root(), StateDir: place.State(), ConfigDir: place.ConfigDir(),
		CNIConfDir: c.NetworkDir(), SandboxImage: ImagePause, LogLevel: "info",
		// cgroupfs everywhere: the place's cgroup root is a path, no slice.
		SystemdCgroup: false, LowerOOMScore: bundle.MayLowerOOMScore(),
	}
	if _, _, err := c.settings.WriteConfig(); err != nil {
		return nil, err
	}
	if b.CollectUsage {
		if err := c.collectUsage(); err != nil {
			return nil, err
		}
	}
	dirs, err := instance.Resolve(place.Root(), place.State())
	if err != nil {
		return nil, err
	}
	c.network, err = cni.New(cni.Config{
		Bridge: place.Bridge, Owner: dirs.Root, PodCIDR: place.Subnet, BinDirs: []string{b.Bin}, ConfDir: c.NetworkDir(),
		LeaseDir: c.LeaseDir(), NetNSDir: bundle.NetNSDir(place.State()),
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return c, c.WriteNetwork(ctx)
}

// collectUsage removes podd's collection periods from the configuration, so that containerd's
// defaults apply.
func (c *Containerd) collectUsage() error {
	text, err := os.ReadFile(c.configFile())
	if err != nil {
		return fmt.Errorf("change containerd's configuration: %w", err)
	}
	const period = "stats_collect_period"
	if !strings.Contains(string(text), period) {
		return fmt.Errorf("change containerd's configuration: it sets no %s", period)
	}
	var kept []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(strings.TrimSpace(line), period) {
			kept = append(kept, line)
		}
	}
	if err := os.WriteFile(c.configFile(), []byte(strings.Join(kept, "")), 0o600); err != nil {
		return fmt.Errorf("change containerd's configuration: %w", err)
	}
	return nil
}

// NetworkDir is the directory of CNI configurations.
func (c *Containerd) NetworkDir() string { return filepath.Join(c.place.Root(), "cni/net.d") }

// LeaseDir is where host-local keeps the addresses it gave away.
func (c *Containerd) LeaseDir() string { return filepath.Join(c.place.State(), "cni/leases") }

// Socket is the path of the CRI socket; Endpoint the same as a URL.
func (c *Containerd) Socket() string   { return bundle.Socket(c.place.State()) }
func (c *Containerd) Endpoint() string { return "unix://" + c.Socket() }

// LogPath is containerd's log.
func (c *Containerd) LogPath() string { return bundle.LogFile(c.place.State()) }

// WriteNetwork (re)writes the CNI network of the place and its rules.
func (c *Containerd) WriteNetwork(ctx context.Context) error { return c.network.SetUp(ctx) }

func (c *Containerd) configFile() string { return filepath.Join(c.place.State(), "containerd.toml") }

// Start runs containerd and returns when its CRI answers and the network is ready.
func (c *Containerd) Start(ctx context.Context) error {
	log, err := os.OpenFile(c.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open containerd's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	cmd := exec.Command(filepath.Join(c.bundle.Bin, "containerd"), "--config", c.configFile())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = c.settings.Env(os.Environ())
	// A session of its own: Ctrl-C at a terminal must reach the harness only,
	// which still needs the runtime to clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // no zombie may stay
	return c.WaitReady(ctx, ended)
}

// WaitReady returns when CRI answers, at most a minute later. ended, which may
// be nil, is closed when there is no more process to wait for.
func (c *Containerd) WaitReady(ctx context.Context, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cri, err := DialCRI(c.Endpoint())
	if err != nil {
		return err
	}
	defer func() { _ = cri.Close() }()
	err = Poll(ctx, 20*time.Millisecond, func() error {
		select {
		case <-ended:
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

func (c *Containerd) logTail() string { return tail(c.LogPath(), 2000) }

// Pid is the process ID of the running containerd, 0 if there is none.
func (c *Containerd) Pid() int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		args := strings.Split(string(cmdline), "\x00")
		if len(args) > 2 && filepath.Base(args[0]) == "containerd" && args[2] == c.configFile() {
			return pid
		}
	}
	return 0
}

// Signal sends a signal to the running containerd and, for SIGKILL and
// SIGTERM, waits until that process is gone. No pod ends with it.
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
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return Poll(ctx, 5*time.Millisecond, func() error {
		if c.Pid() == pid {
			return fmt.Errorf("containerd (%d) does not end after %v", pid, sig)
		}
		return nil
	})
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

package testnode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"podd/bundle"
)

// Podd is a `podd run` process in a place.
type Podd struct {
	Place  *Place
	Binary string
	// Dir holds what is this podd's alone: configuration, manifests, logs. Its
	// root and state directories are the place's, where the runtime is found.
	Dir string
	// Root and State, if set, are its own instead of the place's: a podd beside
	// the one whose runtime it uses.
	Root, State string
	// Config is laid over the KubeletConfiguration; nil removes a field.
	Config map[string]any
	// Bare starts podd without a configuration file: only flags say what is the
	// place's own. Its pods' logs are in the default directory then.
	Bare bool
	// AsKubelet starts podd under the kubelet's name, as kubeadm and its unit do.
	AsKubelet bool
	// Args are added to the command line, Env to the environment.
	Args, Env []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{}
	client *http.Client
}

// NewPodd makes the directories of a podd below dir; it starts nothing.
func NewPodd(place *Place, b Bundle, dir string) (*Podd, error) {
	p := &Podd{Place: place, Dir: dir, Config: map[string]any{}}
	p.Take(b)
	for _, d := range []string{place.Root(), place.State(), p.Manifests(), p.Images(), p.PodLogs()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("make podd's directories: %w", err)
		}
	}
	p.client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", p.Socket())
		},
	}}
	return p, nil
}

// Take makes the next Start run the podd and the runtime of a bundle.
func (p *Podd) Take(b Bundle) {
	p.Binary, p.Env = b.Podd, []string{bundle.EnvDir + "=" + b.Bin}
}

// Manifests is --pod-manifest-path; Images is the image directory.
func (p *Podd) Manifests() string { return filepath.Join(p.Dir, "manifests") }
func (p *Podd) Images() string    { return filepath.Join(p.Place.Root(), "images") }

// ContainerLogs is --container-logs-dir, with links to the containers' logs.
func (p *Podd) ContainerLogs() string { return filepath.Join(p.Dir, "containerlogs") }

// PodLogs is podLogsDir; LogFile is what podd itself writes.
func (p *Podd) PodLogs() string { return filepath.Join(p.Dir, "podlogs") }
func (p *Podd) LogFile() string { return filepath.Join(p.Dir, "podd.log") }

// Socket is podd's own.
func (p *Podd) Socket() string { return filepath.Join(p.stateDir(), "podd.sock") }

func (p *Podd) stateDir() string { return cmp.Or(p.State, p.Place.State()) }

// NodeName is unique to the place, so that two places give the same manifest
// two UIDs.
func (p *Podd) NodeName() string { return fmt.Sprintf("node%d", p.Place.Number) }

// HealthPort and ReadOnlyPort are on loopback.
func (p *Podd) HealthPort() int   { return p.Place.Port }
func (p *Podd) ReadOnlyPort() int { return p.Place.Port + 1 }

func (p *Podd) config() map[string]any {
	config := map[string]any{
		"apiVersion":    "kubelet.config.k8s.io/v1beta1",
		"kind":          "KubeletConfiguration",
		"failCgroupV1":  false,
		"cgroupDriver":  "cgroupfs",
		"cgroupRoot":    p.Place.CgroupRoot,
		"healthzPort":   p.HealthPort(),
		"readOnlyPort":  p.ReadOnlyPort(),
		"address":       "127.0.0.1",
		"podLogsDir":    p.PodLogs(),
		"podCIDR":       p.Place.Subnet.String(),
		"staticPodPath": p.Manifests(),
		"evictionHard":  NoEviction(),
	}
	for k, v := range p.Config {
		if v == nil {
			delete(config, k)
		} else {
			config[k] = v
		}
	}
	return config
}

// args are the command line, and write the configuration file that it names.
func (p *Podd) args() ([]string, error) {
	args := []string{
		"--root-dir", cmp.Or(p.Root, p.Place.Root()), "--state-dir", p.stateDir(),
		"--hostname-override", p.NodeName(), "--bridge", p.Place.Bridge,
		"--container-logs-dir", p.ContainerLogs(),
	}
	if p.Bare {
		return append(args, "--pod-manifest-path", p.Manifests(), "--pod-cidr", p.Place.Subnet.String(),
			"--cgroup-root", p.Place.CgroupRoot, "--healthz-port", strconv.Itoa(p.HealthPort()),
			"--read-only-port", strconv.Itoa(p.ReadOnlyPort()), "--eviction-hard", noEvictionFlag()), nil
	}
	text, err := yaml.Marshal(p.config())
	if err != nil {
		return nil, fmt.Errorf("write podd's configuration: %w", err)
	}
	configPath := filepath.Join(p.Dir, "config.yaml")
	if err := os.WriteFile(configPath, text, 0o600); err != nil {
		return nil, fmt.Errorf("write podd's configuration: %w", err)
	}
	return append(args, "--config", configPath), nil
}

// Start runs podd and returns once the process exists; WaitReady
// tells when it answers.
func (p *Podd) Start() error {
	args, err := p.args()
	if err != nil {
		return err
	}
	name := []string{"podd", "run"}
	if p.AsKubelet {
		name = []string{"kubelet"}
	}
	cmd := exec.Command(p.Binary)
	cmd.Args = slices.Concat(name, args, p.Args)
	cmd.Env = append(os.Environ(), p.Env...)
	log, err := os.OpenFile(p.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open podd's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start podd: %w", err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()
	return nil
}

// Pid is 0 when podd does not run.
func (p *Podd) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	select {
	case <-p.done:
		return 0
	default:
		return p.cmd.Process.Pid
	}
}

// Ended says whether podd was started and is gone, and how it ended.
func (p *Podd) Ended() (bool, string) {
	if p.cmd == nil || p.Pid() != 0 {
		return false, ""
	}
	return true, p.cmd.ProcessState.String()
}

// Signal sends a signal and, unless it is one that only stops or continues the
// process, waits for its end.
func (p *Podd) Signal(sig syscall.Signal) error {
	pid := p.Pid()
	if pid == 0 {
		return nil
	}
	if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to podd: %w", sig, err)
	}
	if sig == unix.SIGSTOP || sig == unix.SIGCONT || sig == unix.SIGHUP {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(20 * time.Second):
		return fmt.Errorf("podd (%d) did not end within 20 s of %v", pid, sig)
	}
}

// Get asks podd's socket; the body is returned with status 200 only.
func (p *Podd) Get(ctx context.Context, path string) ([]byte, error) {
	return get(ctx, p.client, "http://podd"+path)
}

// GetLoopback asks a port on 127.0.0.1.
func GetLoopback(ctx context.Context, port int, path string) ([]byte, error) {
	return get(ctx, http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
}

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return body, fmt.Errorf("%s: %s: %.200s", url, resp.Status, body)
	}
	return body, nil
}

// Pods is GET /pods.
func (p *Podd) Pods(ctx context.Context) ([]v1.Pod, error) {
	body, err := p.Get(ctx, "/pods")
	if err != nil {
		return nil, err
	}
	return DecodePods(body)
}

// DecodePods reads the kubelet's answer to GET /pods.
func DecodePods(body []byte) ([]v1.Pod, error) {
	var list v1.PodList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode the pod list: %w", err)
	}
	return list.Items, nil
}

// WaitReady returns when podd's socket answers.
func (p *Podd) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return Poll(ctx, 5*time.Millisecond, func() error {
		if ended, how := p.Ended(); ended {
			return Stop(fmt.Errorf("podd ended (%s):\n%s", how, p.LogTail(3000)))
		}
		_, err := p.Pods(ctx)
		return err
	})
}

// Apply puts a manifest into place by rename and returns when it did.
func (p *Podd) Apply(file, text string) (time.Time, error) {
	return rename(p.Dir, p.Manifests(), file, text)
}

func rename(tmp, dir, file, text string) (time.Time, error) {
	from := filepath.Join(tmp, ".new-"+file)
	if err := os.WriteFile(from, []byte(text), 0o644); err != nil {
		return time.Time{}, fmt.Errorf("write manifest %s: %w", file, err)
	}
	at := time.Now()
	if err := os.Rename(from, filepath.Join(dir, file)); err != nil {
		return time.Time{}, fmt.Errorf("put manifest %s into place: %w", file, err)
	}
	return at, nil
}

// Delete removes a manifest.
func (p *Podd) Delete(files ...string) (time.Time, error) {
	at := time.Now()
	for _, file := range files {
		if err := os.RemoveAll(filepath.Join(p.Manifests(), file)); err != nil {
			return at, fmt.Errorf("remove manifest %s: %w", file, err)
		}
	}
	return at, nil
}

// DeleteAll empties the manifest directory.
func (p *Podd) DeleteAll() error {
	entries, err := os.ReadDir(p.Manifests())
	if err != nil {
		return ignoreGone(err)
	}
	for _, e := range entries {
		if _, err := p.Delete(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// LogTail is the end of what podd wrote, at most n bytes.
func (p *Podd) LogTail(n int) string { return tail(p.LogFile(), n) }

func tail(path string, n int) string {
	text, _ := os.ReadFile(path)
	return strings.TrimSpace(string(text[max(0, len(text)-n):]))
}

package bundle

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"

	"podd/internal/atomicfile"
	"podd/internal/pod"
)

// PauseImage is the sandbox image that "make runtime" builds. It is imported
// from the image directory like any other and never pulled.
const PauseImage = "localhost/podd/pause:1"

// Settings say how to run the bundled containerd. All paths are absolute.
type Settings struct {
	// BinDir holds the binaries; see Find.
	BinDir string
	// RootDir (default /var/lib/podd) holds data that survives a boot: images, snapshots
	// and containerd's database, in RootDir/containerd.
	RootDir string
	// StateDir (default /run/podd) holds data that a boot may lose: sockets, the shims'
	// state, network namespaces, the generated configuration, the log.
	StateDir string
	// ConfigDir (default /etc/podd) is the administrator's. containerd.d/*.toml is merged
	// over the generated configuration; certs.d has the settings of registries. Neither
	// needs to exist. Empty for none.
	ConfigDir string
	// CNIConfDir is where containerd looks for the pod network. If there are several files,
	// the first by name counts.
	CNIConfDir string
	// SandboxImage is PauseImage unless an administrator wants another.
	SandboxImage string
	// SystemdCgroup says that runc makes cgroups through systemd, not by itself.
	SystemdCgroup bool
	// BoundHugePages says that the kernel has the hugetlb controller. containerd does not
	// use it by itself.
	BoundHugePages bool
	// LowerOOMScore says that containers may be given a negative oom_score_adj.
	LowerOOMScore bool
	// LogLevel is containerd's: debug, info, warn, error.
	LogLevel string
}

// Socket returns where containerd with that state directory serves CRI.
func Socket(stateDir string) string { return filepath.Join(stateDir, "containerd.sock") }

// NetNSDir returns where containerd with that state directory mounts the network namespaces
// of pods.
func NetNSDir(stateDir string) string {
	return filepath.Join(stateDir, "containerd/io.containerd.grpc.v1.cri/netns")
}

// LogFile returns where the Supervisor keeps the output of a containerd that it starts.
func LogFile(stateDir string) string { return filepath.Join(stateDir, "containerd.log") }

// StateFiles returns everything that a runtime with that state directory, its shims and the
// Supervisor make in it, or elsewhere because of it.
func StateFiles(stateDir string) []string {
	s := Settings{StateDir: stateDir}
	all := []string{s.shimDir(), notifySocket(Socket(stateDir))}
	for _, name := range []string{"containerd", "containerd.lock", "containerd.log", "containerd.log.1", "containerd.sock", "containerd.sock.ttrpc",
		"containerd.toml", "containerd.toml.new", "pause-seccomp.json", "pause-seccomp.json.new", "runc", "s", "tmp"} {
		all = append(all, filepath.Join(stateDir, name))
	}
	return all
}

func (s *Settings) configFile() string { return filepath.Join(s.StateDir, "containerd.toml") }

const (
	// maxSocketPath is the limit of sockaddr_un, without the final zero.
	maxSocketPath = 107
	// maxShimDir is containerd's limit, because containerd appends a hash.
	maxShimDir = 42
)

// shimDir returns the directory of the shims' sockets. A long state directory gets a short
// folder of its own under /run, named by a hash of it.
func (s *Settings) shimDir() string {
	if dir := filepath.Join(s.StateDir, "s"); len(dir) <= maxShimDir {
		return dir
	}
	sum := sha256.Sum256([]byte(s.StateDir))
	return "/run/podd-s/" + hex.EncodeToString(sum[:8])
}

// check finds settings that would make containerd fail in a way that is hard to read.
func (s *Settings) check() error {
	var errs []error
	for what, dir := range map[string]string{"--root-dir": s.RootDir, "--state-dir": s.StateDir, "--runtime-dir": s.BinDir, "CNI directory": s.CNIConfDir} {
		if !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("%s must be an absolute path, not %q", what, dir))
		}
	}
	// containerd adds .ttrpc for a second socket.
	if sock := Socket(s.StateDir) + ".ttrpc"; len(sock) > maxSocketPath {
		errs = append(errs, fmt.Errorf("--state-dir %s is too long: a socket's path ends after %d characters and %s has %d; choose a shorter directory",
			s.StateDir, maxSocketPath, sock, len(sock)))
	}
	return errors.Join(errs...)
}

//go:embed containerd.toml.tmpl
var configText string

// configTemplate quotes with JSON's rules, which are within TOML's.
var configTemplate = template.Must(template.New("containerd.toml").Funcs(template.FuncMap{
	"q": func(v any) (string, error) {
		b, err := json.Marshal(v)
		return string(b), err
	},
}).Parse(configText))

// render makes containerd's configuration. It does not read anything from the machine.
func (s *Settings) render(snapshotter string) ([]byte, error) {
	var out bytes.Buffer
	err := configTemplate.Execute(&out, struct {
		*Settings
		Root, State, Socket, ShimDir, Snapshotter string
		Imports                                   []string
		CertsDir, Platform                        string
		MaxMessage                                int
	}{
		Settings:    s,
		Root:        filepath.Join(s.RootDir, "containerd"),
		State:       filepath.Join(s.StateDir, "containerd"),
		Socket:      Socket(s.StateDir),
		ShimDir:     s.shimDir(),
		Snapshotter: snapshotter,
		Imports:     s.inConfigDir("containerd.d/*.toml"),
		CertsDir:    strings.Join(s.inConfigDir("certs.d"), ""),
		Platform:    "linux/" + runtime.GOARCH,
		MaxMessage:  pod.MaxRuntimeMessage,
	})
	if err != nil {
		return nil, fmt.Errorf("make containerd's configuration: %w", err)
	}
	return out.Bytes(), nil
}

func (s *Settings) inConfigDir(path string) []string {
	if s.ConfigDir == "" {
		return []string{}
	}
	return []string{filepath.Join(s.ConfigDir, path)}
}

// MakeDirs makes the directories.
func (s *Settings) MakeDirs() error {
	if err := s.check(); err != nil {
		return err
	}
	// 0711: a container's processes must pass, nobody needs to look. Parents come
	// first: one that is made on the way to its child gets the child's mode.
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{
		{s.RootDir, 0o711}, {s.StateDir, 0o711}, {filepath.Join(s.RootDir, "containerd"), 0o711},
		{filepath.Join(s.StateDir, "containerd"), 0o711}, {s.CNIConfDir, 0o755}, {s.shimDir(), 0o700}, {tempDir(s.StateDir), 0o700},
	} {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return fmt.Errorf("make directory for the container runtime: %w", err)
		}
	}
	return nil
}

// WriteConfig makes the directories and writes containerd's configuration below the state
// directory; path is its file. remark, if not empty, is a sentence for the log that says
// what works less well on this machine, and why.
func (s *Settings) WriteConfig() (path, remark string, err error) {
	if err := s.MakeDirs(); err != nil {
		return "", "", err
	}
	snapshotter, why := snapshotterFor(s.RootDir)
	if why != "" {
		remark = "images are copied for every container, which is slow: " + why
	}
	text, err := s.render(snapshotter)
	if err != nil {
		return "", "", err
	}
	if err := atomicfile.Write(s.configFile(), text, 0o600); err != nil {
		return "", "", fmt.Errorf("write containerd's configuration: %w", err)
	}
	return s.configFile(), remark, nil
}

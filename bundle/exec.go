package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Exec replaces this process by containerd with the configuration that WriteConfig wrote,
// and returns only on error. containerd takes over the locks that this process holds (POSIX
// record locks).
func (s *Settings) Exec() error {
	if os.Geteuid() != 0 {
		return errors.New("the container runtime needs root: run it with sudo, or as a systemd service")
	}
	path := filepath.Join(s.BinDir, "containerd")
	if lacks := describeMissing(s.BinDir); lacks != "" {
		return &MissingError{Looked: []string{s.BinDir + " (" + lacks + ")"}}
	}
	env := s.Env(os.Environ())
	if notify := os.Getenv(notifyVariable); notify != "" {
		env = append(env, notifyVariable+"="+notify)
	}
	err := syscall.Exec(path, []string{"containerd", "--config", s.configFile()}, env)
	return fmt.Errorf("exec %s: %w", path, err)
}

// notifyVariable says where a service reports that it is ready, to systemd or to podd.
const notifyVariable = "NOTIFY_SOCKET"

// passedEnv are the variables of whoever started podd that the runtime and its plugins get: how
// they reach registries, and whom they trust. docs/configuration.md names them. No other
// reaches them: what a shell happens to have set would change how pods run.
var passedEnv = []string{
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
}

// Env returns the environment of the runtime, made from podd's own.
func (s *Settings) Env(own []string) []string {
	var all []string
	path := ""
	for _, kv := range own {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case name == "PATH" && path == "":
			path = value
		case slices.Contains(passedEnv, name):
			all = append(all, kv)
		}
	}
	return append(all, "PATH="+searchPath(s.BinDir, path), "TMPDIR="+tempDir(s.StateDir))
}

// searchPath puts the bundle first. It puts last the directories that a service's or cron's
// PATH lacks: containerd and the plugins call iptables, nft and mount.
func searchPath(binDir, path string) string {
	dirs := append([]string{binDir}, filepath.SplitList(path)...)
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if !strings.Contains(":"+path+":", ":"+dir+":") {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

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

// Exec replaces this process by containerd with the configuration that
// WriteConfig wrote, and returns only on error. Locks that this process holds
// (POSIX record locks) are containerd's then.
func (s *Settings) Exec() error {
	if os.Geteuid() != 0 {
		return errors.New("the container runtime needs root: run it with sudo, or as a systemd service")
	}
	path := filepath.Join(s.BinDir, "containerd")
	if lacks := lacking(s.BinDir); lacks != "" {
		return &MissingError{Looked: []string{s.BinDir + " (" + lacks + ")"}}
	}
	// The first of two values would win, so the old one goes.
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PATH=") })
	env = append(env, "PATH="+searchPath(s.BinDir, os.Getenv("PATH")))
	err := syscall.Exec(path, []string{"containerd", "--config", s.configFile()}, env)
	return fmt.Errorf("exec %s: %w", path, err)
}

// searchPath puts the bundle first and the directories last that a service's or
// cron's PATH lacks: containerd and the plugins call iptables, nft and mount.
func searchPath(binDir, path string) string {
	dirs := append([]string{binDir}, filepath.SplitList(path)...)
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if !strings.Contains(":"+path+":", ":"+dir+":") {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

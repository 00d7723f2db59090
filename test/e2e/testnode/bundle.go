package testnode

import (
	"fmt"
	"os"
	"path/filepath"
)

// Bundle says where the built things are.
type Bundle struct {
	// Bin holds containerd, containerd-shim-runc-v2, ctr, runc and the CNI plugins.
	Bin string
	// Images holds OCI archives: pause, web and busybox among them.
	Images string
	// Podd is the binary under test.
	Podd string
	// CollectUsage has containerd measure writable layers and containers every ten seconds, as it
	// does by default: the kubelet knows of both through containerd alone. podd measures itself.
	CollectUsage bool
}

// Names of the images that the build makes.
const (
	ImagePause   = "localhost/podd/pause:1"
	ImageBusybox = "localhost/podd/busybox:1"
	ImageWeb     = "localhost/podd/web:1"
)

var bundled = []string{
	"containerd", "containerd-shim-runc-v2", "ctr", "runc",
	"bridge", "host-local", "loopback", "portmap",
}

// Check returns an error that names what is missing and how to make it.
func (b Bundle) Check() error {
	for _, name := range bundled {
		if _, err := os.Stat(filepath.Join(b.Bin, name)); err != nil {
			return fmt.Errorf("the runtime bundle has no %s (run `make runtime` first): %w", name, err)
		}
	}
	tars, err := filepath.Glob(filepath.Join(b.Images, "*.tar"))
	if err != nil {
		return err
	}
	if len(tars) == 0 {
		return fmt.Errorf("no image archive in %s (run `make runtime` first)", b.Images)
	}
	return nil
}

// RepoRoot finds the directory of go.mod, from the working directory upwards.
func RepoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == "/" {
			return "", fmt.Errorf("find podd's source tree: no go.mod above the working directory")
		}
	}
}

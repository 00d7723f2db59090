package volumes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// runProgram runs a program of the node and returns its output. When ctx ends, the program and its
// children are killed, except those in an uninterruptible sleep. If the program fails, the
// error wraps *exec.ExitError and includes its output.
func runProgram(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // a child may keep its output open
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(bytes.ToValidUTF8(out, nil)))
	const most = 1000
	if len(text) > most {
		text = text[:most]
	}
	if ctx.Err() != nil {
		return text, context.Cause(ctx)
	}
	if err != nil && text != "" {
		return text, fmt.Errorf("%w: %s", err, text)
	}
	return text, err
}

// helperDirs are where mount(8) looks for mount.TYPE.
var helperDirs = []string{"/sbin", "/usr/sbin", "/sbin/fs.d", "/sbin/fs"}

// hasMountHelper says whether mount(8) finds the program that mounts a type.
func hasMountHelper(program string) bool {
	if slices.ContainsFunc(helperDirs, func(dir string) bool { return exists(filepath.Join(dir, program)) }) {
		return true
	}
	_, err := exec.LookPath(program)
	return err == nil
}

// runMount mounts with mount(8), which knows the options of every type. After an error,
// it unmounts anything that may have been mounted.
func runMount(ctx context.Context, source, dir, fsType string, options []string) error {
	args := []string{}
	if fsType != "" {
		args = append(args, "-t", fsType)
	}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	_, err := runProgram(ctx, "mount", append(args, "--", source, dir)...)
	if err == nil {
		return nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		err = errors.New("the program mount is missing: install the package mount or util-linux")
	}
	if mounted, _ := mountedAt(dir); mounted {
		err = errors.Join(err, unix.Unmount(dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH))
	}
	return err
}

// mountedAt says whether something is mounted at dir. It reads the mount table only,
// since the mount's server may be dead.
func mountedAt(dir string) (bool, error) {
	infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(dir))
	return len(infos) > 0, err
}

// makeMountPoint creates a volume's directory, unless something is already mounted
// there.
func makeMountPoint(dir string) (mounted bool, err error) {
	if mounted, err = mountedAt(dir); mounted || err != nil {
		return mounted, err
	}
	return false, os.MkdirAll(dir, 0o750)
}

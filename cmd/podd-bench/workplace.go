package main

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podd/test/e2e/testnode"
)

// diskSize is that of the benchmark's own file system. A kubelet wants more than a tenth of
// it to be free.
const diskSize = 8 << 30

func defaultDir() string { return filepath.Join(os.TempDir(), "podd-bench") }

// diskImage is the file that has it: in memory, where the machine has a place for that.
func diskImage() string {
	const memory = "/dev/shm"
	if unix.Access(memory, unix.W_OK) == nil {
		return filepath.Join(memory, "podd-bench.ext4")
	}
	return defaultDir() + ".ext4"
}

// workplace returns the directory for everything that is measured, and what leaves it as it
// was. Without one that was asked for it is on an ext4 of its own in memory: what the machine's
// disk does meanwhile is not to be in one column more than in another. In an ext4 without a
// journal, for example, a file takes the longer to be created the more were deleted in the
// last minutes, up to a millisecond, which the later rows would pay for the earlier ones.
func workplace(asked string, say func(string, ...any)) (dir string, leave func() error, err error) {
	if asked != "" {
		dir, err = filepath.Abs(asked)
		return dir, func() error { return removeIfEmpty(dir) }, err
	}
	dir = defaultDir()
	mounted, err := isMountPoint(dir)
	if err != nil {
		return "", nil, err
	}
	disk := testnode.MountedDisk(dir, diskImage()) // one that was killed has left it, or one is running
	if !mounted {
		if disk, err = testnode.NewDisk(dir, diskImage(), diskSize); err != nil {
			say("measuring on this machine's own file system: %v", err)
			return dir, func() error { return removeIfEmpty(dir) }, nil
		}
	}
	return dir, func() error {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 1 { // a second benchmark is there beside lost+found
			return err
		}
		return errors.Join(disk.Close(), removeIfEmpty(dir))
	}, nil
}

func isMountPoint(dir string) (bool, error) {
	var at, above unix.Stat_t
	if err := unix.Stat(dir, &at); errors.Is(err, os.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	err := unix.Stat(filepath.Dir(dir), &above)
	return at.Dev != above.Dev, err
}

// removeIfEmpty leaves the directory to a second benchmark that uses it.
func removeIfEmpty(dir string) error {
	err := os.Remove(dir)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

package usage

import (
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// fileSystem is the size of a file system and how much of it is free, in bytes and
// inodes.
type fileSystem struct {
	capacity, free, available int64
	inodes, inodesFree        int64
}

// statfs queries the file system at path; it hangs if the file system does.
func statfs(path string) (fileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fileSystem{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	size := st.Bsize
	return fileSystem{
		capacity: int64(st.Blocks) * size, free: int64(st.Bfree) * size, available: int64(st.Bavail) * size,
		inodes: int64(st.Files), inodesFree: int64(st.Ffree),
	}, nil
}

// used returns the total usage of the file system.
func (f fileSystem) used() Amount { return Amount{f.capacity - f.free, f.inodes - f.inodesFree} }

// toFsStats returns the API's form of the file system, with the given usage.
func (f fileSystem) toFsStats(used Amount, at metav1.Time) stats.FsStats {
	return stats.FsStats{
		Time: at, AvailableBytes: number(f.available), CapacityBytes: number(f.capacity), UsedBytes: number(used.Bytes),
		InodesFree: number(f.inodesFree), Inodes: number(f.inodes), InodesUsed: number(used.Inodes),
	}
}

func number(n int64) *uint64 {
	u := uint64(max(0, n))
	return &u
}

// sameDevice says whether two paths are on one file system; true if that is unknown.
func sameDevice(a, b string) bool {
	one, oneErr := deviceOf(a)
	other, otherErr := deviceOf(b)
	return oneErr != nil || otherErr != nil || one == other
}

func deviceOf(path string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return st.Dev, err
}

// isMount says whether another file system is mounted at path.
func isMount(path string) bool { return !sameDevice(path, filepath.Dir(path)) }

// deviceSize returns the size of the block device at path, in bytes; device is false for
// anything else.
func deviceSize(path string) (size int64, device bool) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, false
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, true
	}
	defer f.Close()
	if size, err = f.Seek(0, io.SeekEnd); err != nil {
		return 0, true
	}
	return size, true
}

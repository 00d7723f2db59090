package quota

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/fs.h and linux/quota.h; package unix lacks them. The ioctl numbers are those
// of architectures with asm-generic/ioctl.h, which covers all that podd is built for.
const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	projInherit   = 0x200      // FS_XFLAG_PROJINHERIT

	getProjectQuota = 0x800007<<8 | 2 // QCMD(Q_GETQUOTA, PRJQUOTA), also for xfs
)

// fsxattr is struct fsxattr.
type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

// dqblk is struct if_dqblk. curSpace is in bytes.
type dqblk struct {
	hardBlocks, softBlocks, curSpace  uint64
	hardInodes, softInodes, curInodes uint64
	blockTime, inodeTime              uint64
	valid                             uint32
	_                                 [4]byte
}

// linux is the running kernel. It queries quotas through an open file (quotactl_fd, since
// Linux 5.14), so that the block device need not be found.
type linux struct{}

func (linux) attributes(dir *os.File) (attributes, error) {
	var x fsxattr
	if err := ioctlAttributes(dir, getAttributes, &x); err != nil {
		return attributes{}, err
	}
	return attributes{project: x.projid, inherits: x.xflags&projInherit != 0}, nil
}

func (linux) setProject(dir *os.File, id uint32) error {
	var x fsxattr
	if err := ioctlAttributes(dir, getAttributes, &x); err != nil {
		return err
	}
	x.projid, x.xflags = id, x.xflags|projInherit
	return ioctlAttributes(dir, setAttributes, &x)
}

func (linux) usage(dir *os.File, id uint32) (projectUsage, error) {
	var q dqblk
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, dir.Fd(), getProjectQuota, uintptr(id), uintptr(unsafe.Pointer(&q)), 0, 0)
	switch errno {
	case 0:
		return projectUsage{int64(q.curSpace), int64(q.curInodes), q.hardBlocks|q.softBlocks|q.hardInodes|q.softInodes != 0}, nil
	case unix.ENOENT: // xfs: nothing has that project ID
		return projectUsage{}, nil
	}
	return projectUsage{}, callError(dir, "quotactl", errno)
}

func ioctlAttributes(dir *os.File, request uintptr, x *fsxattr) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), request, uintptr(unsafe.Pointer(x)))
	if errno == 0 {
		return nil
	}
	return callError(dir, "ioctl", errno)
}

// callError returns errUnsupported for a kernel or file system without project quotas, or
// with quotas turned off (ESRCH), and the failure otherwise.
func callError(dir *os.File, call string, errno unix.Errno) error {
	for _, unsupported := range []unix.Errno{unix.ENOSYS, unix.ENOTTY, unix.EOPNOTSUPP, unix.EINVAL, unix.ESRCH} {
		if errors.Is(errno, unsupported) {
			return errUnsupported
		}
	}
	return &os.PathError{Op: call, Path: dir.Name(), Err: errno}
}

package spec

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"podd/internal/hugepage"
	"podd/internal/pod"
	"podd/podfs"
)

// Options are the node's facts and settings that end in the configurations of sandboxes and
// containers. The zero value of each field is usable.
type Options struct {
	// Instance is the identity of this podd, which it writes on everything that it makes;
	// it leaves alone what carries another's. "" means that the runtime is podd's alone. It
	// is from InstanceFile.
	Instance, InstanceFile string
	// Dirs is where pods' logs and files are.
	Dirs podfs.Dirs

	// CgroupV2 says that the node has the unified hierarchy.
	CgroupV2 bool
	// SingleProcessOOMKill, as in KubeletConfiguration: nil means false on
	// cgroup v2 (the whole container is killed) and true on v1.
	SingleProcessOOMKill *bool
	// NoCPUCFSQuota leaves CPU limits unenforced (cpuCFSQuota: false).
	NoCPUCFSQuota bool
	// CPUCFSQuotaPeriod; 0 is 100 ms.
	CPUCFSQuotaPeriod time.Duration
	// HugePageSizes of the node as runc names them ("2MB", "1GB"). Each gets a limit; nil
	// asks the kernel.
	HugePageSizes []string
	// SwapControl says that the kernel can bound a container's swap; nil asks it.
	SwapControl *bool
	// SELinux says that the node enforces SELinux or logs by it, so that the files that
	// podd makes for a container need its label; nil asks the kernel.
	SELinux *bool
	// DefaultSysctls are set for each pod that does not set them and that does not share their
	// namespace with the host (defaultPodSysctls). Their names have dots, never slashes.
	DefaultSysctls map[string]string
	// MemoryCapacity of the node in bytes, for OOM scores; 0 counts as unknown:
	// Burstable containers then get 999.
	MemoryCapacity int64
	// LimitedSwap gives containers of Burstable pods their share of SwapCapacity,
	// in bytes (memorySwap.swapBehavior); otherwise nobody gets any.
	LimitedSwap  bool
	SwapCapacity int64
	// MemoryQoS protects and throttles the memory of containers, on cgroup v2 only.
	MemoryQoS pod.MemoryQoSRules
	// AllowNegativeOOMScore says that podd and the runtime may lower
	// oom_score_adj (CAP_SYS_RESOURCE). Without it no score is below 0.
	AllowNegativeOOMScore bool

	// PauseProfile is the seccomp profile, a file, of sandboxes of the default handler. ""
	// means the runtime's own default, which sandboxes of other handlers always have.
	PauseProfile string
	// SeccompDefault makes RuntimeDefault the profile of containers that name none.
	SeccompDefault bool
	// SeccompRoot holds Localhost profiles; "" is <Dirs.Root>/seccomp.
	SeccompRoot string
}

// WithDefaults fills in the unset options, asking the kernel where it knows.
func (o Options) WithDefaults() Options {
	o.Dirs = o.Dirs.WithDefaults()
	if o.CPUCFSQuotaPeriod == 0 {
		o.CPUCFSQuotaPeriod = 100 * time.Millisecond
	}
	if o.HugePageSizes == nil {
		o.HugePageSizes = hugePageSizes()
	}
	if o.SwapControl == nil {
		o.SwapControl = fileExists(swapControl(o.CgroupV2))
	}
	if o.SELinux == nil {
		o.SELinux = fileExists("/sys/fs/selinux/enforce")
	}
	if o.SeccompRoot == "" {
		o.SeccompRoot = filepath.Join(o.Dirs.Root, "seccomp")
	}
	return o
}

func fileExists(file string) *bool {
	_, err := os.Stat(file)
	there := err == nil
	return &there
}

// swapControl returns a file that exists if the kernel bounds swap by cgroup. The root of
// cgroup v2 never has it, so podd's own cgroup answers for all.
func swapControl(v2 bool) string {
	if !v2 {
		return "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"
	}
	own, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(own)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return filepath.Join("/sys/fs/cgroup", path, "memory.swap.max")
		}
	}
	return ""
}

// hugePageSizes returns the kernel's huge page sizes; empty if it has none.
func hugePageSizes() []string {
	sizes := []string{}
	for _, size := range slices.Sorted(maps.Keys(hugepage.Reserved(hugepage.Dir))) {
		sizes = append(sizes, hugepage.CgroupName(size))
	}
	return sizes
}

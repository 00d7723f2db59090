package cri

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/hugepage"
	"podd/internal/pod"
)

// Recorder takes events about pods (the consumer's side of podd's event ring).
type Recorder interface {
	Event(p *v1.Pod, eventType, reason, message string)
}

// Options are the node's facts and settings that end in sandboxes' and
// containers' configurations. The zero value of each field is usable.
type Options struct {
	// RequestTimeout bounds most calls; 0 is 2 minutes (runtimeRequestTimeout).
	RequestTimeout time.Duration
	// CreateTimeout bounds RunPodSandbox and CreateContainer; 0 is 10 minutes.
	CreateTimeout time.Duration

	// Instance is the identity of this podd, which is written on all that it makes;
	// what carries another's is left alone. "" is for a runtime of one's own.
	Instance string
	// Unsigned says whether a pod that an older podd made, which wrote no identity,
	// is this one's; nil for all.
	Unsigned func(uid pod.UID) bool

	// NodeName is spec.nodeName for pods that do not carry it.
	NodeName string
	// NodeIPs, primary first, answer status.hostIP and status.hostIPs.
	NodeIPs []string

	// RootDir holds <RootDir>/pods/<uid>/…; "" is /var/lib/podd.
	RootDir string
	// PodLogsDir; "" is /var/log/pods.
	PodLogsDir string
	// ContainerLogsDir holds the links for log shippers; "" is /var/log/containers.
	ContainerLogsDir string

	// CgroupParent names a pod's cgroup, in the form of the runtime's driver;
	// nil leaves the choice to the runtime.
	CgroupParent func(*v1.Pod) string
	// CgroupV2 says that the node has the unified hierarchy.
	CgroupV2 bool
	// SingleProcessOOMKill, as in KubeletConfiguration: nil means false on
	// cgroup v2 (the whole container is killed) and true on v1.
	SingleProcessOOMKill *bool
	// NoCPUCFSQuota leaves CPU limits unenforced (cpuCFSQuota: false).
	NoCPUCFSQuota bool
	// CPUCFSQuotaPeriod; 0 is 100 ms.
	CPUCFSQuotaPeriod time.Duration
	// HugePageSizes of the node as runc names them ("2MB", "1GB"), each of which
	// gets a limit; nil asks the kernel.
	HugePageSizes []string
	// SwapControl says that the kernel can bound a container's swap; nil asks it.
	SwapControl *bool
	// SELinux says that the node enforces or logs by it, so that the files that
	// podd makes for a container need its label; nil asks the kernel.
	SELinux *bool
	// MemoryCapacity of the node in bytes, for OOM scores; 0 counts as unknown:
	// Burstable containers then get 999.
	MemoryCapacity int64
	// LimitedSwap gives containers of Burstable pods their share of SwapCapacity,
	// in bytes (memorySwap.swapBehavior); otherwise nobody gets any.
	LimitedSwap  bool
	SwapCapacity int64
	// Allocatable answers resourceFieldRef for limits that are not set.
	Allocatable v1.ResourceList
	// AllowNegativeOOMScore says that podd and the runtime may lower
	// oom_score_adj (CAP_SYS_RESOURCE). Without it no score is below 0.
	AllowNegativeOOMScore bool

	// ClusterDNS servers and ClusterDomain for dnsPolicy ClusterFirst.
	ClusterDNS    []string
	ClusterDomain string
	// ResolvConf is the node's resolver configuration, for dnsPolicy Default:
	// nil is /etc/resolv.conf, or systemd-resolved's real file when that one
	// only names its stub; "" is no resolver at all, as in the kubelet.
	ResolvConf *string

	// SeccompDefault makes RuntimeDefault the profile of containers that name none.
	SeccompDefault bool
	// SeccompRoot holds Localhost profiles; "" is <RootDir>/seccomp.
	SeccompRoot string
	// UserNamespace gives a pod with hostUsers: false its range of the node's IDs:
	// the first, and how many. nil refuses such pods.
	UserNamespace func(uid pod.UID) (first, length uint32, err error)
	// VolumePath is where a volume of the pod is on the node, for variables out of
	// files in it (fileKeyRef). nil refuses these.
	VolumePath func(p *v1.Pod, volume string) (string, error)

	// Recorder takes events about DNS limits and the like; nil drops them.
	Recorder Recorder
}

func (o Options) withDefaults() Options {
	if o.RequestTimeout == 0 {
		o.RequestTimeout = requestTimeout
	}
	if o.CreateTimeout == 0 {
		o.CreateTimeout = createTimeout
	}
	if o.RootDir == "" {
		o.RootDir = "/var/lib/podd"
	}
	if o.PodLogsDir == "" {
		o.PodLogsDir = "/var/log/pods"
	}
	if o.ContainerLogsDir == "" {
		o.ContainerLogsDir = "/var/log/containers"
	}
	if o.CPUCFSQuotaPeriod == 0 {
		o.CPUCFSQuotaPeriod = 100 * time.Millisecond
	}
	if o.HugePageSizes == nil {
		o.HugePageSizes = hugePageSizes()
	}
	if o.SwapControl == nil {
		o.SwapControl = found(swapControl(o.CgroupV2))
	}
	if o.SELinux == nil {
		o.SELinux = found("/sys/fs/selinux/enforce")
	}
	if o.SeccompRoot == "" {
		o.SeccompRoot = o.RootDir + "/seccomp"
	}
	return o
}

func found(file string) *bool {
	_, err := os.Stat(file)
	there := err == nil
	return &there
}

// swapControl is a file that is there when the kernel bounds swap by cgroup.
// The root of cgroup v2 never has it: podd's own cgroup answers for all.
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

// hugePageSizes are the kernel's; none where it has no huge pages.
func hugePageSizes() []string {
	sizes := []string{}
	for _, size := range slices.Sorted(maps.Keys(hugepage.OfKernel(hugepage.Dir))) {
		sizes = append(sizes, hugepage.Name(size))
	}
	return sizes
}

func (o Options) event(p *v1.Pod, eventType, reason, message string) {
	if o.Recorder != nil {
		o.Recorder.Event(p, eventType, reason, message)
	}
}

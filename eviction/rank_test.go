package eviction

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/eviction/threshold"
	"podd/internal/pod"
)

// tried is a pod with what it uses; nil for unknown.
type tried struct {
	pod  *v1.Pod
	used *stats.PodStats
}

type option func(*tried)

func aPod(name string, options ...option) tried {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = name, "default", pod.UID(name)
	p.Spec.Containers = []v1.Container{{Name: "main"}}
	p.Spec.Volumes = []v1.Volume{
		{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "tmpfs", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/x"}}},
		{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
	}
	t := tried{p, &stats.PodStats{Containers: []stats.ContainerStats{{Name: "main"}}}}
	for _, o := range options {
		o(&t)
	}
	return t
}

func asking(name v1.ResourceName, amount string) option {
	return func(t *tried) {
		t.pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{name: resource.MustParse(amount)}
	}
}
func overhead(amount string) option {
	return func(t *tried) { t.pod.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse(amount)} }
}
func prior(n int32) option { return func(t *tried) { t.pod.Spec.Priority = &n } }
func unmeasured() option   { return func(t *tried) { t.used = nil } }
func memory(n uint64) option {
	return func(t *tried) {
		t.used.Memory = &stats.MemoryStats{WorkingSetBytes: &n}
		t.used.Containers[0].Memory = t.used.Memory
	}
}
func tasks(n uint64) option {
	return func(t *tried) { t.used.ProcessStats = &stats.ProcessStats{ProcessCount: &n} }
}
func fs(bytes, inodes uint64) *stats.FsStats {
	return &stats.FsStats{UsedBytes: &bytes, InodesUsed: &inodes}
}
func layer(bytes, inodes uint64) option {
	return func(t *tried) { t.used.Containers[0].Rootfs = fs(bytes, inodes) }
}
func logged(bytes, inodes uint64) option {
	return func(t *tried) { t.used.Containers[0].Logs = fs(bytes, inodes) }
}
func volume(name string, bytes, inodes uint64) option {
	return func(t *tried) {
		t.used.VolumeStats = append(t.used.VolumeStats, stats.VolumeStats{Name: name, FsStats: *fs(bytes, inodes)})
	}
}

const mib = 1 << 20

func TestWhichPodIsEvictedFirst(t *testing.T) {
	for _, tc := range []struct {
		name     string
		signal   threshold.Signal
		separate bool
		pods     []tried
		want     string
	}{
		{"memory: over its request, before who keeps to it", threshold.MemoryAvailable, false, []tried{
			aPod("within", asking("memory", "100Mi"), memory(90*mib)), aPod("over", asking("memory", "10Mi"), memory(11*mib)),
		}, "over within"},
		{"memory: equal to the request is within", threshold.MemoryAvailable, false, []tried{
			aPod("equal", prior(-5), asking("memory", "10Mi"), memory(10*mib)), aPod("over", memory(1)),
		}, "over equal"},
		{"memory: of those over theirs, low priority first", threshold.MemoryAvailable, false, []tried{
			aPod("high", prior(100), memory(900*mib)), aPod("none", memory(200*mib)), aPod("low", prior(-5), memory(1*mib)),
		}, "low none high"},
		{"memory: a high priority does not help over one that keeps to its request", threshold.MemoryAvailable, false, []tried{
			aPod("low-within", prior(-5), asking("memory", "10Mi"), memory(1*mib)), aPod("high-over", prior(100), memory(1*mib)),
		}, "high-over low-within"},
		{"memory: most above the request", threshold.AllocatableMemoryAvailable, false, []tried{
			aPod("big", asking("memory", "100Mi"), memory(110*mib)), aPod("excessive", asking("memory", "1Mi"), memory(50*mib)), aPod("small", memory(5*mib)),
		}, "excessive big small"},
		{"memory: overhead is requested, too, but by nobody who requests nothing", threshold.MemoryAvailable, false, []tried{
			aPod("helped", prior(-5), asking("memory", "10Mi"), overhead("5Mi"), memory(14*mib)), aPod("nothing", overhead("5Mi"), memory(1*mib)),
		}, "nothing helped"},
		{"memory: overhead counts in the excess", threshold.MemoryAvailable, false, []tried{
			aPod("helped", asking("memory", "10Mi"), overhead("50Mi"), memory(70*mib)), aPod("plain", asking("memory", "10Mi"), memory(30*mib)),
		}, "plain helped"},
		{"processes: unknown ones first of a priority", threshold.PIDAvailable, false, []tried{
			aPod("many", tasks(300)), aPod("unknown", unmeasured()),
		}, "unknown many"},
		{"inodes: upstream subtracts the bytes that are requested", threshold.NodeFSInodesFree, false, []tried{
			aPod("asks", asking("ephemeral-storage", "1k"), layer(1, 5000)), aPod("less", layer(1, 4500)),
		}, "less asks"},
		{"memory: who cannot be measured", threshold.MemoryAvailable, false, []tried{
			aPod("over", memory(900*mib)), aPod("unknown", prior(1000), unmeasured()),
		}, "unknown over"},
		{"processes: priority alone, then their number", threshold.PIDAvailable, false, []tried{
			aPod("few", tasks(3)), aPod("many", tasks(300)), aPod("bomb", prior(7), tasks(30000)), aPod("unknown", prior(8), unmeasured()),
		}, "many few bomb unknown"},
		{"disk: all of a pod's storage on one disk", threshold.NodeFSAvailable, false, []tried{
			aPod("volume", volume("scratch", 30*mib, 1)), aPod("layer", layer(20*mib, 1)), aPod("logs", logged(10*mib, 1)), aPod("host", volume("host", 40*mib, 1)),
			aPod("elsewhere", volume("claim", 900*mib, 9), volume("tmpfs", 900*mib, 9)),
		}, "host volume layer logs elsewhere"},
		{"disk: the nodes' with images elsewhere", threshold.NodeFSAvailable, true, []tried{
			aPod("layer", layer(900*mib, 1)), aPod("logs", logged(10*mib, 1)), aPod("volume", volume("scratch", 30*mib, 1)),
		}, "volume logs layer"},
		{"disk: the images' own", threshold.ImageFSAvailable, true, []tried{
			aPod("elsewhere", logged(900*mib, 1), volume("scratch", 900*mib, 1)), aPod("layer", layer(1*mib, 1)),
		}, "layer elsewhere"},
		{"disk: requests of ephemeral storage", threshold.ImageFSAvailable, false, []tried{
			aPod("within", asking("ephemeral-storage", "1Gi"), layer(900*mib, 1)), aPod("over", layer(1*mib, 1)),
		}, "over within"},
		{"inodes are counted, not bytes", threshold.NodeFSInodesFree, false, []tried{
			aPod("bytes", layer(900*mib, 2)), aPod("inodes", volume("scratch", 1, 100000)),
		}, "inodes bytes"},
	} {
		for range 2 { // in both orders
			slices.Reverse(tc.pods)
			var pods []*v1.Pod
			used := Usage{}
			for _, t := range tc.pods {
				pods = append(pods, t.pod)
				if t.used != nil {
					used[t.pod.UID] = t.used
				}
			}
			rank(pods, tc.signal, tc.separate, used)
			var names []string
			for _, p := range pods {
				names = append(names, p.Name)
			}
			if got := strings.Join(names, " "); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
			}
		}
	}
}

func TestWhyAPodIsEvictedIsSaidInTheKubeletsWords(t *testing.T) {
	half := func(s threshold.Signal) *threshold.Threshold {
		return &threshold.Threshold{Signal: s, Value: threshold.Value{Percentage: 0.5}}
	}
	amount := resource.MustParse("100Mi")
	pods := resource.MustParse("32Mi")
	ofPod := aPod("web", memory(40*mib))
	ofPod.pod.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{"memory": pods}}
	twice := aPod("web", memory(40*mib))
	twice.pod.Spec.InitContainers = []v1.Container{{Name: "side"}}
	n := uint64(7)
	twice.used.Containers = append(twice.used.Containers, stats.ContainerStats{Name: "side", Memory: &stats.MemoryStats{WorkingSetBytes: &n}},
		stats.ContainerStats{Name: "debugger", Memory: &stats.MemoryStats{WorkingSetBytes: &n}})
	for _, tc := range []struct {
		t    *threshold.Threshold
		have int64
		of   int64
		pod  tried
		want string
	}{
		{&threshold.Threshold{Signal: threshold.MemoryAvailable, Value: threshold.Value{Quantity: &amount}}, 52428 << 10, 1 << 30, aPod("web", asking("memory", "10Mi"), memory(40*mib)),
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 52428Ki. Container main was using 40Mi, request is 10Mi, has larger consumption of memory. "},
		{half(threshold.MemoryAvailable), mib, 64 * mib, aPod("web", asking("memory", "40Mi"), memory(40*mib)),
			"The node was low on resource: memory. Threshold quantity: 32Mi, available: 1Mi. "},
		{half(threshold.MemoryAvailable), mib, 64 * mib, aPod("web", layer(2*mib, 3), logged(mib, 1)),
			"The node was low on resource: memory. Threshold quantity: 32Mi, available: 1Mi. "},
		{half(threshold.AllocatableMemoryAvailable), mib, 64 * mib, aPod("web", asking("memory", "50Mi"), memory(40*mib)),
			"The node was low on resource: memory. Threshold quantity: 32Mi, available: 1Mi. "},
		{half(threshold.MemoryAvailable), mib, 64 * mib, ofPod,
			"The node was low on resource: memory. Threshold quantity: 32Mi, available: 1Mi. Pod web was using 40Mi, request is 32Mi, has larger consumption of memory. " +
				"Container main was using 40Mi, request is 0, has larger consumption of memory. "},
		{half(threshold.MemoryAvailable), mib, 64 * mib, twice,
			"The node was low on resource: memory. Threshold quantity: 32Mi, available: 1Mi. Container main was using 40Mi, request is 0, has larger consumption of memory. " +
				"Container side was using 7, request is 0, has larger consumption of memory. "},
		{half(threshold.NodeFSAvailable), mib, 64 * mib, aPod("web", layer(2*mib, 3), logged(mib, 1), volume("scratch", 99*mib, 4)),
			"The node was low on resource: ephemeral-storage. Threshold quantity: 32Mi, available: 1Mi. Container main was using 3Mi, request is 0, has larger consumption of ephemeral-storage. "},
		{half(threshold.NodeFSInodesFree), 7, 2048, aPod("web", layer(2*mib, 3), logged(mib, 1)), "The node was low on resource: inodes. Threshold quantity: 1Ki, available: 7. "},
		{half(threshold.PIDAvailable), 1000, 2000, aPod("web", unmeasured()), "The node was low on resource: pids. Threshold quantity: 1k, available: 1k. "},
	} {
		if got := evictionMessage(tc.pod.pod, tc.pod.used, tc.t, Observation{Available: tc.have, Capacity: tc.of}); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

package config

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/eviction/threshold"
)

// Words of enforceNodeAllocatable and memorySwap.
const (
	enforcePods = "pods"
	enforceNone = "none"
	limitedSwap = "LimitedSwap"
	noSwap      = "NoSwap"
)

// defaultEvictionHard is the kubelet's (pkg/kubelet/eviction/defaults_linux.go).
var defaultEvictionHard = map[string]string{
	"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
	"imagefs.available": "15%", "imagefs.inodesFree": "5%",
}

func setResourceDefaults(kc *kubeletv1beta1.KubeletConfiguration) {
	defaultPointer(&kc.CPUCFSQuota, true)
	defaultPointer(&kc.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	defaultPointer(&kc.PodPidsLimit, -1)
	defaultPointer(&kc.CgroupsPerQOS, true)
	defaultValue(&kc.MaxPods, 110)
	if kc.EnforceNodeAllocatable == nil {
		kc.EnforceNodeAllocatable = []string{enforcePods}
	}
	defaultValue(&kc.MemorySwap.SwapBehavior, noSwap)
	defaultValue(&kc.MemoryReservationPolicy, kubeletv1beta1.NoneMemoryReservationPolicy)
	defaultValue(&kc.EvictionPressureTransitionPeriod.Duration, 5*time.Minute)
	setEvictionHard(kc)
}

func setEvictionHard(kc *kubeletv1beta1.KubeletConfiguration) {
	switch {
	case kc.EvictionHard == nil:
		kc.EvictionHard = maps.Clone(defaultEvictionHard)
	case kc.MergeDefaultEvictionSettings != nil && *kc.MergeDefaultEvictionSettings:
		given := kc.EvictionHard
		kc.EvictionHard = maps.Clone(defaultEvictionHard)
		maps.Copy(kc.EvictionHard, given)
	}
}

// resources judges what bounds pods.
func (c *checker) resources(kc *kubeletv1beta1.KubeletConfiguration) {
	if d := kc.CPUCFSQuotaPeriod.Duration; d < time.Millisecond || d > time.Second {
		c.fail("cpuCFSQuotaPeriod", "%s is out of range: give 1ms to 1s", d)
	}
	if kc.MaxPods < 1 {
		c.fail("maxPods", "%d is not positive", kc.MaxPods)
	}
	if kc.PodsPerCore < 0 {
		c.fail("podsPerCore", "%d is negative: give 0 for no such limit", kc.PodsPerCore)
	}
	if !*kc.CgroupsPerQOS {
		c.fail("cgroupsPerQOS", "false is not supported: pods always get cgroups by QoS class; leave it out")
	}
	if s := kc.MemorySwap.SwapBehavior; s != noSwap && s != limitedSwap {
		c.fail("memorySwap.swapBehavior", "%q is not known: give NoSwap or LimitedSwap", s)
	}
	c.memoryQoS(kc)
	for i, word := range kc.EnforceNodeAllocatable {
		if word == enforceNone && len(kc.EnforceNodeAllocatable) > 1 {
			c.fail("enforceNodeAllocatable", "none cannot be combined with others: give none alone, or leave it out")
		}
		if word != "" && word != enforcePods && word != enforceNone && !reservedKey(word) {
			c.fail(fmt.Sprintf("enforceNodeAllocatable[%d]", i), "%q is not known: give pods or none", word)
		}
	}
	c.reserved("kubeReserved", kc.KubeReserved)
	c.reserved("systemReserved", kc.SystemReserved)
	_, mistakes := threshold.Parse(evictionSettings(kc))
	for _, m := range mistakes {
		c.fail(m.Field, "%s", m.Message)
	}
	if kc.EvictionPressureTransitionPeriod.Duration < 0 {
		c.fail("evictionPressureTransitionPeriod", "%s is negative", kc.EvictionPressureTransitionPeriod.Duration)
	}
}

// reservedKey are the words of enforceNodeAllocatable that bound cgroups which
// are not podd's: see enforceWarning.
func reservedKey(word string) bool {
	switch word {
	case "system-reserved", "kube-reserved", "system-reserved-compressible", "kube-reserved-compressible":
		return true
	}
	return false
}

// enforceWarning says which words of enforceNodeAllocatable have no effect.
func enforceWarning(words []string) string {
	for _, word := range words {
		if reservedKey(word) {
			return word + " is not supported: podd limits no cgroup but its pods'"
		}
	}
	return ""
}

func (c *checker) reserved(field string, given map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch v1.ResourceName(name) {
		case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, "pid":
		default:
			c.fail(field, "%s cannot be reserved: give cpu, memory, ephemeral-storage or pid", name)
			continue
		}
		if q, err := resource.ParseQuantity(given[name]); err != nil || q.Sign() < 0 {
			c.fail(field, "%s: %q is not an amount: give one such as 500m or 1Gi", name, given[name])
		}
	}
}

// evictionSettings are the fields about node-pressure eviction.
func evictionSettings(kc *kubeletv1beta1.KubeletConfiguration) threshold.Settings {
	return threshold.Settings{
		Hard: kc.EvictionHard, Soft: kc.EvictionSoft, SoftGrace: kc.EvictionSoftGracePeriod, MinReclaim: kc.EvictionMinimumReclaim,
		EnforcePodAllocatable: slices.Contains(kc.EnforceNodeAllocatable, enforcePods),
	}
}

// evictionWarnings say which thresholds count for nothing.
func evictionWarnings(kc *kubeletv1beta1.KubeletConfiguration, lines map[string]Problem) []string {
	var all []string
	for _, f := range []struct {
		field string
		given map[string]string
	}{{"evictionHard", kc.EvictionHard}, {"evictionSoft", kc.EvictionSoft}} {
		for _, signal := range slices.Sorted(maps.Keys(f.given)) {
			if threshold.Signal(signal).Ignored() {
				p := positionOf(lines, f.field)
				p.Message = signal + " has no effect: writable layers are on the images' file system, whose threshold is imagefs'"
				all = append(all, p.String())
			}
		}
	}
	return all
}

// fillResources translates what was checked.
func (c *Config) fillResources(kc *kubeletv1beta1.KubeletConfiguration) {
	c.CPUQuota, c.CPUQuotaPeriod = *kc.CPUCFSQuota, kc.CPUCFSQuotaPeriod.Duration
	c.PodPIDsLimit = max(*kc.PodPidsLimit, 0)
	c.LimitedSwap = kc.MemorySwap.SwapBehavior == limitedSwap
	c.fillMemoryQoS(kc)
	c.fillShutdown(kc)
	c.SingleProcessOOMKill = kc.SingleProcessOOMKill
	c.MaxPods, c.PodsPerCore = int(kc.MaxPods), int(kc.PodsPerCore)
	c.Eviction.Thresholds, _ = threshold.Parse(evictionSettings(kc)) // was checked
	c.Eviction.Transition = kc.EvictionPressureTransitionPeriod.Duration
	c.Eviction.MaxGrace = time.Duration(kc.EvictionMaxPodGracePeriod) * time.Second
	c.Eviction.Alarm = kc.KernelMemcgNotification
	c.EnforcePods = slices.Contains(kc.EnforceNodeAllocatable, enforcePods)
	c.UnsafeSysctls = kc.AllowedUnsafeSysctls
	c.Reserved = v1.ResourceList{}
	for _, given := range []map[string]string{kc.KubeReserved, kc.SystemReserved} {
		for name, amount := range given {
			sum := c.Reserved[v1.ResourceName(name)]
			sum.Add(resource.MustParse(amount)) // was checked
			c.Reserved[v1.ResourceName(name)] = sum
		}
	}
}

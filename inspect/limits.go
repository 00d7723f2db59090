package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

// compareLimits compares the cgroup and its limits.
func (x *comparison) compareLimits() {
	uid := string(x.Pod.UID)
	path := x.linux.CgroupsPath
	// The systemd driver writes the UID with other separators.
	inPod := strings.Contains(path, uid) || strings.Contains(path, strings.ReplaceAll(uid, "-", "_"))
	x.row("path", "of the pod, "+string(pod.QOSClass(x.Pod)), path, !inPod)
	x.compareCPU()
	x.compareMemory()
	if score := x.process.OOMScoreAdj; score != nil {
		x.row("oomScoreAdj", "", strconv.Itoa(*score), false)
	}
	if p := x.resources.Pids; p != nil && p.Limit != nil {
		x.row("pids", "", strconv.FormatInt(*p.Limit, 10), false)
	}
	for _, h := range x.resources.HugepageLimits {
		if h.Limit > 0 {
			x.row("hugepages "+h.Pagesize, "", formatBytes(int64(h.Limit)), false)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(x.resources.Unified)) {
		x.row(key, "", x.resources.Unified[key], false)
	}
}

// limit returns the container's limit, or the pod's own if it has none.
func (x *comparison) limit(name v1.ResourceName) resource.Quantity {
	if q, ok := x.Container.Resources.Limits[name]; ok && !q.IsZero() {
		return q
	}
	if x.Pod.Spec.Resources != nil {
		return x.Pod.Spec.Resources.Limits[name]
	}
	return resource.Quantity{}
}

func (x *comparison) compareCPU() {
	limit := x.limit(v1.ResourceCPU)
	request, requested := x.Container.Resources.Requests[v1.ResourceCPU]
	if !requested {
		request = limit
	}
	var shares, quota, period int64
	if c := x.resources.CPU; c != nil {
		if c.Shares != nil {
			shares = int64(*c.Shares)
		}
		if c.Quota != nil {
			quota = *c.Quota
		}
		if c.Period != nil {
			period = int64(*c.Period)
		}
		x.row("cpus", "", c.Cpus, false)
		x.row("memory nodes", "", c.Mems, false)
	}
	wanted := pod.CPUShares(request.MilliValue())
	x.row("requests.cpu", formatQuantity(request), fmt.Sprintf("shares %d", shares), shares != 0 && shares != wanted)
	given, held := "no quota", false
	if quota > 0 && period > 0 {
		given = fmt.Sprintf("%d µs of %d µs (%dm)", quota, period, quota*1000/period)
		held = quota == pod.CPUQuota(limit.MilliValue(), time.Duration(period)*time.Microsecond)
	}
	x.row("limits.cpu", formatQuantity(limit), given, !limit.IsZero() != (quota > 0) || quota > 0 && !held)
	if request := formatQuantity(x.Container.Resources.Requests[v1.ResourceMemory]); request != "" {
		x.row("requests.memory", request, "(part of oomScoreAdj)", false)
	}
}

func (x *comparison) compareMemory() {
	limit := x.limit(v1.ResourceMemory)
	given, most := "no limit", int64(0)
	if m := x.resources.Memory; m != nil && m.Limit != nil && *m.Limit > 0 {
		most = *m.Limit
		given = formatBytes(most)
	}
	x.row("limits.memory", formatQuantity(limit), given, most != limit.Value())
}

// formatQuantity formats a quantity as it was written; "" if it is not set.
func formatQuantity(q resource.Quantity) string {
	if q.IsZero() {
		return ""
	}
	return q.String()
}

func formatBytes(n int64) string {
	text := strconv.FormatInt(n, 10)
	if short := resource.NewQuantity(n, resource.BinarySI).String(); short != text {
		text += " (" + short + ")"
	}
	return text
}

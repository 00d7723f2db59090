package admission

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"

	"podd/internal/pod"
)

// need is what must become free of one resource.
type need struct {
	name   v1.ResourceName
	amount int64
}

type needs []need

// preempt chooses the pods that must end so that a critical one fits, as few and
// as small as possible and of the lowest class (pkg/kubelet/preemption).
func preempt(p *v1.Pod, others []*v1.Pod, short []shortage) pod.Verdict {
	var want needs
	for _, s := range short {
		want = append(want, need{s.name, s.requested - (s.capacity - s.used)})
	}
	victims, missing := selectVictims(p, others, want)
	if len(missing) > 0 {
		return reject(ReasonUnexpected, "Unexpected error while attempting to recover from admission failure: "+
			"preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: %v%s", missing, describeShortages(short))
	}
	v := pod.Verdict{Message: "Waits for pods of lower priority to terminate", PreemptFor: resourceLabel(short[0].name)}
	for _, victim := range victims {
		v.Preempt = append(v.Preempt, victim.UID)
	}
	return v
}

// describeShortages returns, for people, what upstream's sentence does not say: what the
// pod asks for, and what the node has.
func describeShortages(short []shortage) string {
	var b strings.Builder
	for i, s := range short {
		b.WriteString(map[bool]string{true: ": ", false: "; "}[i == 0])
		if s.name == v1.ResourcePods {
			fmt.Fprintf(&b, "the node runs %d of at most %d pods", s.used, s.capacity)
			continue
		}
		fmt.Fprintf(&b, "the pod requests %s of %s, and %s of the node's %s are free",
			s.amount(s.requested), s.name, s.amount(max(s.capacity-s.used, 0)), s.amount(s.capacity))
	}
	return b.String()
}

// amount is n of the resource as people write it.
func (s shortage) amount(n int64) string {
	switch name := s.name; {
	case name == v1.ResourceCPU:
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case name == v1.ResourceMemory, name == v1.ResourceEphemeralStorage, strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix):
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return strconv.FormatInt(n, 10)
}

// selectVictims returns the victims, or what even all of them could not free.
func selectVictims(p *v1.Pod, others []*v1.Pod, want needs) (victims []*v1.Pod, missing needs) {
	classes := map[v1.PodQOSClass][]*v1.Pod{}
	var all []*v1.Pod
	for _, other := range others {
		if preemptable(p, other) {
			class := pod.QOSClass(other)
			classes[class] = append(classes[class], other)
			all = append(all, other)
		}
	}
	if missing := want.without(all...); len(missing) > 0 {
		return nil, missing
	}
	bestEffort, burstable, guaranteed := classes[v1.PodQOSBestEffort], classes[v1.PodQOSBurstable], classes[v1.PodQOSGuaranteed]
	// Of each class only what all of the lower classes together do not free.
	third := want.without(bestEffort...).without(burstable...).nearest(guaranteed)
	second := want.without(bestEffort...).without(third...).nearest(burstable)
	first := want.without(second...).without(third...).nearest(bestEffort)
	return append(append(first, second...), third...), nil
}

// preemptable is the kubelet's Preemptable.
func preemptable(by, p *v1.Pod) bool {
	if pod.IsCritical(by) && !pod.IsCritical(p) {
		return true
	}
	return by.Spec.Priority != nil && p.Spec.Priority != nil && *by.Spec.Priority > *p.Spec.Priority
}

// nearest picks pods until the needs are met, each time the one that brings
// them nearest to it, and of two the smaller.
func (n needs) nearest(from []*v1.Pod) []*v1.Pod {
	left := append([]*v1.Pod(nil), from...)
	var picked []*v1.Pod
	for len(n) > 0 && len(left) > 0 {
		best, bestDistance := 0, math.Inf(1)
		for i, p := range left {
			d := n.distance(p)
			if d < bestDistance || d == bestDistance && smaller(p, left[best]) {
				best, bestDistance = i, d
			}
		}
		n = n.without(left[best])
		picked = append(picked, left[best])
		left[best] = left[len(left)-1]
		left = left[:len(left)-1]
	}
	return picked
}

// distance is how far the needs are from being met once p is gone: each counts
// by its fraction, whatever its unit.
func (n needs) distance(p *v1.Pod) float64 {
	sum := 0.0
	for _, each := range n {
		if rest := float64(each.amount - freed(p, each.name)); rest > 0 {
			sum += math.Pow(rest/float64(each.amount), 2)
		}
	}
	return sum
}

// without is what remains of the needs once the pods are gone.
func (n needs) without(pods ...*v1.Pod) needs {
	var rest needs
	for _, each := range n {
		for _, p := range pods {
			each.amount -= freed(p, each.name)
		}
		if each.amount > 0 {
			rest = append(rest, each)
		}
	}
	return rest
}

func (n needs) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for _, each := range n {
		fmt.Fprintf(&b, "(res: %v, q: %d), ", each.name, each.amount)
	}
	b.WriteByte(']')
	return b.String()
}

// freed is what the end of a pod counts for, as upstream counts it here
// (pkg/api/v1/resource). If a pod names resources of its own, only those count. Overhead
// counts only for resources that are also requested.
func freed(p *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	sum := helper.PodRequests(p, helper.PodResourcesOptions{
		SkipContainerLevelResources: helper.IsPodLevelResourcesSet(p), ExcludeOverhead: true,
	})
	total := sum[name]
	if !total.IsZero() {
		total.Add(p.Spec.Overhead[name])
	}
	return amount(v1.ResourceList{name: total}, name)
}

// smaller says that p requests less memory, then less CPU, than q, or the same.
func smaller(p, q *v1.Pod) bool {
	for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		if a, b := freed(p, name), freed(q, name); a != b {
			return a < b
		}
	}
	return true
}

package threshold

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func text(all []Threshold) string {
	var out []string
	for _, t := range all {
		value := t.Value.QuantityOf(1000)
		s := fmt.Sprintf("%s<%s", t.Signal, value.String())
		if t.GracePeriod > 0 {
			s += fmt.Sprintf(" for %s", t.GracePeriod)
		}
		if t.MinReclaim != nil {
			more := t.MinReclaim.QuantityOf(1000)
			s += " +" + more.String()
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

type pairs = map[string]string

func TestThresholdsAreReadAsTheKubeletReadsThem(t *testing.T) {
	for _, tc := range []struct {
		name     string
		settings Settings
		want     string
	}{
		{"none", Settings{}, ""},
		{"the kubelet's defaults", Settings{Hard: pairs{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%",
		}}, "memory.available<100Mi; nodefs.available<100; imagefs.available<150; nodefs.inodesFree<50; imagefs.inodesFree<50"},
		{"memory of the pods, too, where they are held to theirs", Settings{Hard: pairs{"memory.available": "100Mi"}, MinReclaim: pairs{"memory.available": "1Mi"}, EnforcePodAllocatable: true},
			"memory.available<100Mi +1Mi; allocatableMemory.available<100Mi +1Mi"},
		{"but a soft one counts for the machine", Settings{Soft: pairs{"memory.available": "100Mi"}, SoftGrace: pairs{"memory.available": "1m"}, EnforcePodAllocatable: true},
			"memory.available<100Mi for 1m0s"},
		{"one of their own", Settings{Hard: pairs{"memory.available": "100Mi", "allocatableMemory.available": "7Mi"}, EnforcePodAllocatable: true},
			"memory.available<100Mi; allocatableMemory.available<7Mi"},
		{"a reclaim of its own", Settings{Hard: pairs{"memory.available": "100Mi"}, MinReclaim: pairs{"memory.available": "1Mi", "allocatableMemory.available": "2Mi", "pid.available": "5"}, EnforcePodAllocatable: true},
			"memory.available<100Mi +1Mi; allocatableMemory.available<100Mi +2Mi"},
		{"none that is ever met, and no grace period", Settings{Hard: pairs{"pid.available": "0"}, Soft: pairs{"nodefs.available": "1"}, SoftGrace: pairs{"nodefs.available": "0s"}}, "pid.available<0; nodefs.available<1"},
		{"all or nothing switches one off", Settings{Hard: pairs{"memory.available": "0%", "nodefs.available": "100%", "pid.available": "0%"}, EnforcePodAllocatable: true}, ""},
		{"hard before soft", Settings{Hard: pairs{"pid.available": "10"}, Soft: pairs{"pid.available": "20"}, SoftGrace: pairs{"pid.available": "30s"}, MinReclaim: pairs{"pid.available": "5%"}},
			"pid.available<10 +50; pid.available<20 for 30s +50"},
		{"the containers' file system is ignored", Settings{Hard: pairs{"containerfs.available": "10%", "containerfs.inodesFree": "10%"}}, ""},
	} {
		got, mistakes := Parse(tc.settings)
		if mistakes != nil || text(got) != tc.want {
			t.Errorf("%s: got %s %v, want %s", tc.name, text(got), mistakes, tc.want)
		}
	}
}

func TestBadThresholdsAreNamed(t *testing.T) {
	for want, s := range map[string]Settings{
		`evictionHard memory.free: is not a signal: give one of memory.available`:                         {Hard: pairs{"memory.free": "1Gi"}},
		`evictionHard memory.available: "lots" is not an amount or a part: give one such as 100Mi or 10%`: {Hard: pairs{"memory.available": "lots"}},
		`evictionHard memory.available: "-1Mi" is not`:                                                    {Hard: pairs{"memory.available": "-1Mi"}},
		`evictionHard memory.available: "101%" is not`:                                                    {Hard: pairs{"memory.available": "101%"}},
		`evictionHard memory.available: "NaN%" is not`:                                                    {Hard: pairs{"memory.available": "NaN%"}},
		`evictionHard memory.available: "%" is not`:                                                       {Hard: pairs{"memory.available": "%"}},
		`evictionSoft memory.available: has no grace period: give it one in evictionSoftGracePeriod`:      {Soft: pairs{"memory.available": "1Gi"}},
		`evictionSoftGracePeriod memory.available: "soon" is not a time: give one such as 1m30s`:          {SoftGrace: pairs{"memory.available": "soon"}},
		`evictionSoftGracePeriod memory.available: "-1s" is not a time`:                                   {SoftGrace: pairs{"memory.available": "-1s"}},
		`evictionSoftGracePeriod x: is not a signal`:                                                      {SoftGrace: pairs{"x": "1s"}},
		`evictionMinimumReclaim nodefs.available: "" is not an amount`:                                    {MinReclaim: pairs{"nodefs.available": ""}},
	} {
		got, mistakes := Parse(s)
		if got != nil || len(mistakes) != 1 || !strings.HasPrefix(mistakes[0].Field+" "+mistakes[0].Message, want) {
			t.Errorf("got %v and %q, want %q", got, mistakes, want)
		}
	}
}

func TestWhenAThresholdIsMet(t *testing.T) {
	all, _ := Parse(Settings{Hard: pairs{"nodefs.available": "10%"}, MinReclaim: pairs{"nodefs.available": "5%"}})
	for _, tc := range []struct {
		available       int64
		met, reclaiming bool
	}{{99, true, true}, {100, false, true}, {149, false, true}, {150, false, false}} {
		if met, reclaiming := all[0].Met(tc.available, 1000, false), all[0].Met(tc.available, 1000, true); met != tc.met || reclaiming != tc.reclaiming {
			t.Errorf("%d of 1000: got %v and %v", tc.available, met, reclaiming)
		}
	}
}

func TestEverySignalHasAResourceAConditionAndAnOrder(t *testing.T) {
	seen := map[v1.NodeConditionType]int{}
	for _, s := range Signals {
		seen[s.Condition()]++
		if !s.Ignored() && s.urgency() < 0 {
			t.Errorf("%s has no place in the order: add it to urgency", s)
		}
	}
	if seen[v1.NodeMemoryPressure] != 2 || seen[v1.NodeDiskPressure] != 6 || seen[v1.NodePIDPressure] != 1 {
		t.Errorf("signals by condition: got %v; a new signal needs its Condition, and its number here", seen)
	}
	if !slices.IsSortedFunc([]Signal{MemoryAvailable, AllocatableMemoryAvailable, PIDAvailable}, func(a, b Signal) int { return a.urgency() - b.urgency() }) {
		t.Error("memory is not first")
	}
	if (&Threshold{GracePeriod: time.Second}).Hard() {
		t.Error("a grace period is not soft")
	}
}

func TestAllMistakesAreNamedInOrder(t *testing.T) {
	_, mistakes := Parse(Settings{
		Hard: pairs{"x": "1", "pid.available": "?"}, Soft: pairs{"nodefs.available": "1"},
		SoftGrace: pairs{"y": "1s", "pid.available": "?"}, MinReclaim: pairs{"pid.available": "-1"},
	})
	var got []string
	for _, m := range mistakes {
		signal, _, _ := strings.Cut(m.Message, ":")
		got = append(got, m.Field+" "+signal)
	}
	want := []string{
		"evictionHard pid.available", "evictionHard x", "evictionMinimumReclaim pid.available", "evictionSoft nodefs.available",
		"evictionSoftGracePeriod pid.available", "evictionSoftGracePeriod y",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

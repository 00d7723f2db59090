package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(kv ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[v1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

func with(requests, limits v1.ResourceList) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: requests, Limits: limits}
}

func aPod(rs ...v1.ResourceRequirements) *v1.Pod {
	p := &v1.Pod{}
	for _, r := range rs {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: r})
	}
	return p
}

func TestQOSClass(t *testing.T) {
	full := list("cpu", "1", "memory", "64Mi")
	none := v1.ResourceRequirements{}
	withInit := aPod(with(full, full))
	withInit.Spec.InitContainers = []v1.Container{{}}
	podLevel := aPod(none, none)
	podLevel.Spec.Resources = &v1.ResourceRequirements{Requests: full, Limits: full}
	podLevelBurst := aPod(with(full, full))
	podLevelBurst.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", "1")}
	podLevelNothing := aPod(with(full, full))
	podLevelNothing.Spec.Resources = &v1.ResourceRequirements{}
	kept := aPod(none)
	kept.Status.QOSClass = v1.PodQOSGuaranteed
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want v1.PodQOSClass
	}{
		"nothing named":               {aPod(none, none), v1.PodQOSBestEffort},
		"only another resource":       {aPod(with(list("ephemeral-storage", "1Gi"), nil)), v1.PodQOSBestEffort},
		"zero counts as nothing":      {aPod(with(list("cpu", "0"), list("memory", "0"))), v1.PodQOSBestEffort},
		"all limited, equal":          {aPod(with(full, full), with(full, full)), v1.PodQOSGuaranteed},
		"equal in other units":        {aPod(with(list("cpu", "1000m", "memory", "65536Ki"), full)), v1.PodQOSGuaranteed},
		"one container without":       {aPod(with(full, full), none), v1.PodQOSBurstable},
		"requests below limits":       {aPod(with(list("cpu", "1", "memory", "1Mi"), full)), v1.PodQOSBurstable},
		"memory alone":                {aPod(with(list("memory", "1Mi"), list("memory", "1Mi"))), v1.PodQOSBurstable},
		"limits without requests":     {aPod(with(nil, full)), v1.PodQOSBurstable},
		"a bare init container":       {withInit, v1.PodQOSBurstable},
		"pod level alone decides":     {podLevel, v1.PodQOSGuaranteed},
		"pod level decides, downhill": {podLevelBurst, v1.PodQOSBurstable},
		"pod level with nothing":      {podLevelNothing, v1.PodQOSGuaranteed}, // its containers decide
		"the status' own":             {kept, v1.PodQOSGuaranteed},
	} {
		if got := QOSClass(c.pod); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

package devices

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

const gpu = "example.com/gpu"

func stockOf(ids string) deviceView {
	r := &resource{everRegistered: true, devices: map[string]device{}}
	for _, id := range strings.Fields(ids) {
		id, sick := strings.CutSuffix(id, "!")
		r.devices[id] = device{healthy: !sick}
	}
	return deviceView{resources: map[string]*resource{gpu: r}, used: map[string]map[string]bool{}, granted: map[string]map[string]*grant{}}
}

func (s deviceView) using(ids ...string) deviceView {
	for _, id := range ids {
		addID(s.used, gpu, id)
	}
	return s
}

func (s deviceView) with(container string, confirmed bool, ids ...string) deviceView {
	s.granted[container] = map[string]*grant{gpu: {ids: ids, seenHealthy: confirmed}}
	return s.using(ids...)
}

func TestAssign(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	// Containers by name: i… are init containers, s… sidecars; the digit is how many they want.
	pod := func(containers ...string) *v1.Pod {
		p := &v1.Pod{}
		for _, name := range containers {
			c := withLimits(name, gpu, name[1:2])
			switch name[0] {
			case 's':
				c.RestartPolicy = &always
				fallthrough
			case 'i':
				p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			default:
				p.Spec.Containers = append(p.Spec.Containers, c)
			}
		}
		return p
	}
	for name, tc := range map[string]struct {
		pod   *v1.Pod
		stock deviceView
		only  string
		want  string // or the error
	}{
		"the first that are free":     {pod: pod("c2"), stock: stockOf("a b c").using("a"), want: "c2=b,c"},
		"in the order of their IDs":   {pod: pod("c1"), stock: stockOf("h g f e d c b a"), want: "c1=a"},
		"in that order with others":   {pod: pod("i1", "c2"), stock: stockOf("a b").with("i1", true, "b"), want: "c2=a,b"},
		"none of zero":                {pod: pod("c0"), stock: stockOf("a")},
		"none that is unhealthy":      {pod: pod("c1"), stock: stockOf("a! b"), want: "c1=b"},
		"each container its own":      {pod: pod("c1", "d1"), stock: stockOf("a b"), want: "c1=a d1=b"},
		"init containers before it":   {pod: pod("i2", "c1"), stock: stockOf("a b"), want: "i2=a,b c1=a"},
		"and more than they had":      {pod: pod("i1", "c2"), stock: stockOf("a b"), want: "i1=a c2=a,b"},
		"two of these":                {pod: pod("i1", "i1b", "c1"), stock: stockOf("a b"), want: "i1=a i1b=a c1=a"},
		"reused once":                 {pod: pod("i2", "c1", "d1"), stock: stockOf("a b"), want: "i2=a,b c1=a d1=b"},
		"not twice":                   {pod: pod("i1", "c1", "d1"), stock: stockOf("a"), want: "requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0"},
		"a sidecar keeps its own":     {pod: pod("s1", "c1"), stock: stockOf("a"), want: "requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0"},
		"a sidecar after an init one": {pod: pod("i1", "s1", "c1"), stock: stockOf("a b"), want: "i1=a s1=a c1=b"},
		"too many":                    {pod: pod("c3"), stock: stockOf("a b c!"), want: "requested number of devices unavailable for example.com/gpu. Requested: 3, Available: 2"},
		"nothing healthy":             {pod: pod("c1"), stock: stockOf("a!"), want: "no healthy devices present; cannot allocate unhealthy devices example.com/gpu"},
		"no plugin":                   {pod: pod("c1"), stock: deviceView{resources: map[string]*resource{}}, want: "cannot allocate unregistered device example.com/gpu"},
		"what it has":                 {pod: pod("c1", "d1"), stock: stockOf("a b").with("c1", true, "a"), want: "d1=b"},
		"what it has, though sick":    {pod: pod("c1"), stock: stockOf("a! b").with("c1", true, "a")},
		"from before, healthy":        {pod: pod("c1"), stock: stockOf("a b").with("c1", false, "a")},
		"from before, sick":           {pod: pod("c1"), stock: stockOf("a! b").with("c1", false, "a"), want: "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/gpu"},
		"from before, not listed":     {pod: pod("c1"), stock: stockOf("b").with("c1", false, "a"), want: "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/gpu"},
		"another number":              {pod: pod("c2"), stock: stockOf("a b").with("c2", true, "a"), want: `container "c2" changed request for resource "example.com/gpu" from 1 to 2`},
		"one container alone":         {pod: pod("i2", "c1"), stock: stockOf("a b").with("i2", true, "a", "b"), only: "c1", want: "c1=a"},
		"others do not stop it":       {pod: pod("c2", "d1"), stock: stockOf("a b!").with("c2", false, "b"), only: "d1", want: "d1=a"},
	} {
		t.Run(name, func(t *testing.T) {
			items, err := assign(tc.stock, requestsOf(tc.pod, isExtendedResource), tc.only)
			var got []string
			for _, one := range items {
				got = append(got, one.container+"="+strings.Join(one.ids, ","))
			}
			text := strings.Join(got, " ")
			if err != nil {
				text = err.Error()
			}
			// The order is that in which containers start: init containers first.
			if a, b := strings.Fields(text), strings.Fields(tc.want); err != nil && text != tc.want || err == nil && !slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))) {
				t.Errorf("got %q, want %q", text, tc.want)
			}
		})
	}
}

func TestPrefer(t *testing.T) {
	items := func() []reservation {
		return []reservation{
			{request: request{container: "i", resource: gpu}, ids: []string{"a", "b"}},
			{request: request{container: "c", resource: gpu}, ids: []string{"b", "c"}, reused: []string{"b"}},
			{request: request{container: "c", resource: "example.com/other"}, ids: []string{"b"}},
		}
	}
	free := map[string]bool{"d": true, "e": true}
	for name, tc := range map[string]struct {
		at        int
		preferred []string
		want      string
	}{
		"nothing":                     {0, nil, "[a b] [b c] [b]"},
		"free ones":                   {0, []string{"d", "e"}, "[d e] [c e] [b]"},
		"one, and what it has":        {0, []string{"d"}, "[a d] [c d] [b]"},
		"used ones are none":          {0, []string{"x", "c"}, "[a b] [b c] [b]"},
		"more than it wants":          {0, []string{"b", "d", "e", "a"}, "[b d] [b c] [b]"},
		"twice the same":              {0, []string{"d", "d"}, "[a d] [c d] [b]"},
		"what must be reused remains": {1, []string{"d", "e"}, "[a b] [b d] [b]"},
	} {
		all := items()
		applyPreference(all, tc.at, tc.preferred, free)
		if got := fmt.Sprint(all[0].ids, all[1].ids, all[2].ids); got != "["+strings.Trim(tc.want, "[]")+"]" {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
		for _, id := range all[1].reused {
			if !slices.Contains(all[1].ids, id) || !slices.Contains(all[0].ids, id) {
				t.Errorf("%s: %s is reused, of %v in %v", name, id, all[0].ids, all[1].ids)
			}
		}
	}
}

// Devices are not given to a container that is added to a running pod: there is no admission.
func TestAnEphemeralContainerHasNoDevices(t *testing.T) {
	p := aPod("web", gpu, "1")
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon(withLimits("debug", gpu, "1"))}}
	if got := requestsOf(p, isExtendedResource); len(got) != 1 || got[0].container != "c" {
		t.Errorf("got %v, want one request of c", got)
	}
}

// What a ResourceClaim stands for is its driver's to give (KEP-5004).
func TestAClaimedResourceIsNotOfDevicePlugins(t *testing.T) {
	p := aPod("web", gpu, "1", "example.com/other", "1")
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: gpu}}}
	if got := requestsOf(p, isExtendedResource); len(got) != 1 || got[0].resource != "example.com/other" {
		t.Errorf("got %v", got)
	}
}

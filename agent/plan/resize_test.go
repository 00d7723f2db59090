package plan_test

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/agent/plan"
	"podd/internal/pod"
)

// has gives a container CPU and memory, as "request/limit" each; "" for none.
func has(cpu, memory string) func(*v1.Container) {
	return func(c *v1.Container) { c.Resources = resources(cpu, memory) }
}

func resources(cpu, memory string) v1.ResourceRequirements {
	r := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	for name, text := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
		request, limit, _ := strings.Cut(text, "/")
		if request != "" {
			r.Requests[name] = resource.MustParse(request)
		}
		if limit != "" {
			r.Limits[name] = resource.MustParse(limit)
		}
	}
	return r
}

func restartFor(name v1.ResourceName) func(*v1.Container) {
	return func(c *v1.Container) {
		c.ResizePolicy = append(c.ResizePolicy, v1.ContainerResizePolicy{ResourceName: name, RestartPolicy: v1.RestartContainer})
	}
}

func ofThePod(cpu, memory string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Resources = ptr(resources(cpu, memory)) }
}

func TestResize(t *testing.T) {
	two := func(web, side func(*v1.Container), more ...func(*v1.Pod)) *v1.Pod {
		return aPod(append([]func(*v1.Pod){containers("web", "side"), with("web", web), with("side", side)}, more...)...)
	}
	small, big := has("100m/200m", "1Mi/10Mi"), has("200m/400m", "2Mi/20Mi")
	both := look(ready(0), ctr("web", "running", 0, 0), ctr("side", "running", 0, 0))
	for name, c := range map[string]struct {
		from, to *v1.Pod
		seen     pod.Observed
		resize   []string // "" is the pod alone
		stop     string
	}{
		"nothing changed":                        {two(small, small), two(small, small), both, nil, ""},
		"up":                                     {two(small, small), two(big, small), both, []string{"web"}, ""},
		"who gets less comes first":              {two(small, big), two(big, small), both, []string{"side", "web"}, ""},
		"a request alone":                        {two(small, small), two(has("150m/200m", "1Mi/10Mi"), small), both, []string{"web"}, ""},
		"another resource is none of ours":       {two(small, small), two(small, func(c *v1.Container) { small(c); c.Resources.Requests["ephemeral-storage"] = resource.MustParse("1Gi") }), both, nil, ""},
		"restart for memory, memory changed":     {two(small, small), aPod(containers("web", "side"), with("web", big, restartFor("memory")), with("side", small)), both, []string{""}, "web"},
		"restart for memory, CPU changed":        {two(small, small), aPod(containers("web", "side"), with("web", has("200m/400m", "1Mi/10Mi"), restartFor("memory")), with("side", small)), both, []string{"web"}, ""},
		"one that does not run is made anew":     {two(small, small), two(big, small), look(ready(0), ctr("web", "exited 1", 0, 0), ctr("side", "running", 0, 0)), []string{""}, ""},
		"the pod's own limit is its containers'": {two(has("", ""), small, ofThePod("1/1", "")), two(has("", ""), small, ofThePod("1/2", "")), both, []string{"web"}, ""},
		"the pod's own request is the pod's":     {two(small, small, ofThePod("1/2", "")), two(small, small, ofThePod("1500m/2", "")), both, []string{""}, ""},
		"a sidecar": {aPod(inits("mesh!"), with("mesh", small)), aPod(inits("mesh!"), with("mesh", big)),
			look(ready(0), ctr("web", "running", 0, 0), ctr("mesh", "running", 0, 0)), []string{"mesh"}, ""},
		"no init container that ends": {aPod(inits("once"), with("once", small)), aPod(inits("once"), with("once", big)), look(ready(0), ctr("once", "running", 0, 0)), []string{""}, ""},
	} {
		in := input(c.from, c.seen)
		in.Memory = plan.Next(in).Memory
		in.Desired = &pod.Desired{Pod: c.to}
		step := plan.Next(in)
		var got []string
		for _, r := range step.Resize {
			if r.Container == nil {
				got = append(got, "")
			} else {
				got = append(got, r.Container.Name)
			}
		}
		stop := ""
		for _, s := range step.Stop {
			stop += s.Name
			if s.Message != "Container "+s.Name+" resize requires restart" {
				t.Errorf("%s: message %q", name, s.Message)
			}
		}
		if !slices.Equal(got, c.resize) || stop != c.stop {
			t.Errorf("%s: got resizes %q and stop %q, want %q and %q", name, got, stop, c.resize, c.stop)
		}
		// What was done is not asked for again.
		in.Memory = step.Memory
		for _, r := range step.Resize {
			in.Memory = in.Memory.Resized(r.ID, c.to, r.Container)
		}
		in.Memory = in.Memory.Resized("", c.to, nil)
		if again := plan.Next(in); len(again.Resize) > 0 {
			t.Errorf("%s: it is asked for again: %v", name, again.Resize)
		}
	}
}

// TestAResizeThatRestartsIsNotHeldBack: whatever the policy and the exit code.
func TestAResizeThatRestartsIsNotHeldBack(t *testing.T) {
	from := aPod(policy(v1.RestartPolicyOnFailure), with("web", has("100m/", ""), restartFor("cpu")))
	to := aPod(policy(v1.RestartPolicyOnFailure), with("web", has("200m/", ""), restartFor("cpu")))
	in := input(from, look(ready(0), web("running", 0, 3)))
	in.Memory = plan.Next(in).Memory
	in.Desired = &pod.Desired{Pod: to}
	in.Memory = plan.Next(in).Memory
	in.Observed = look(ready(0), web("exited 0", 0, 3))
	step := plan.Next(in)
	if len(step.Start) != 1 || step.Start[0].RestartCount != 4 {
		t.Errorf("got starts %v, waiting %v; want web again at once", step.Start, step.Waiting)
	}
}

// TestAPoddThatCameInBetweenFinishesAResize: the runtime says that it was not
// told of the new resources.
func TestAPoddThatCameInBetweenFinishesAResize(t *testing.T) {
	c := web("running", 0, 0)
	c.Resources = &pod.ContainerResources{CPUShares: 102, MemoryLimitInBytes: 10 << 20}
	for memory, want := range map[string]int{"1Mi/10Mi": 0, "1Mi/20Mi": 1} {
		in := input(aPod(with("web", has("100m/200m", memory))), look(ready(0), c))
		step := plan.Next(in)
		if len(step.Resize) != want {
			t.Errorf("%s: got %v, want %d", memory, step.Resize, want)
		}
		in.Memory = step.Memory.Resized(c.ID, in.Desired.Pod, &in.Desired.Pod.Spec.Containers[0])
		if step := plan.Next(in); len(step.Resize) > 0 {
			t.Errorf("%s: it is told again and again", memory)
		}
	}
}

package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

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
	both := observed(ready(0), ctr("web", "running", 0, 0), ctr("side", "running", 0, 0))
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
		"one that does not run is made anew":     {two(small, small), two(big, small), observed(ready(0), ctr("web", "exited 1", 0, 0), ctr("side", "running", 0, 0)), []string{""}, ""},
		"the pod's own limit is its containers'": {two(has("", ""), small, ofThePod("1/1", "")), two(has("", ""), small, ofThePod("1/2", "")), both, []string{"web"}, ""},
		"the pod's own request is the pod's":     {two(small, small, ofThePod("1/2", "")), two(small, small, ofThePod("1500m/2", "")), both, []string{""}, ""},
		"a sidecar": {aPod(inits("mesh!"), with("mesh", small)), aPod(inits("mesh!"), with("mesh", big)),
			observed(ready(0), ctr("web", "running", 0, 0), ctr("mesh", "running", 0, 0)), []string{"mesh"}, ""},
		"an init container that runs": {aPod(inits("once"), with("once", small)), aPod(inits("once"), with("once", big)), observed(ready(0), ctr("once", "running", 0, 0)), []string{"once"}, ""},
		"one that has completed": {aPod(inits("once"), with("once", small)), aPod(inits("once"), with("once", big)),
			observed(ready(0), ctr("once", "exited 0", 0, 0), ctr("web", "running", 0, 0)), []string{""}, ""},
		"one whose turn has not come": {aPod(inits("once", "then"), with("then", small)), aPod(inits("once", "then"), with("then", big)),
			observed(ready(0), ctr("once", "running", 0, 0)), []string{""}, ""},
		"the first of two, less": {aPod(inits("once", "then"), with("once", big), with("then", big)), aPod(inits("once", "then"), with("once", small), with("then", big)),
			observed(ready(0), ctr("once", "running", 0, 0)), []string{"once"}, ""},
		"it never begins anew": {aPod(inits("once"), with("once", has("", "")), ofThePod("1/1", "")), aPod(inits("once"), with("once", has("", ""), restartFor("cpu")), ofThePod("1/2", "")),
			observed(ready(0), ctr("once", "running", 0, 0)), []string{"once"}, ""},
	} {
		in := input(c.from, c.seen)
		in.Memory = plan.Next(in).Memory
		in.Granted = &pod.Desired{Pod: c.to}
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
	in := input(from, observed(ready(0), web("running", 0, 3)))
	in.Memory = plan.Next(in).Memory
	in.Granted = &pod.Desired{Pod: to}
	in.Memory = plan.Next(in).Memory
	in.Observed = observed(ready(0), web("exited 0", 0, 3))
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
		in := input(aPod(with("web", has("100m/200m", memory))), observed(ready(0), c))
		step := plan.Next(in)
		if len(step.Resize) != want {
			t.Errorf("%s: got %v, want %d", memory, step.Resize, want)
		}
		in.Memory = step.Memory.Resized(c.ID, in.Granted.Pod, &in.Granted.Pod.Spec.Containers[0])
		if step := plan.Next(in); len(step.Resize) > 0 {
			t.Errorf("%s: it is told again and again", memory)
		}
	}
}

// TestAResizeThatWentWrongIsHeldBack, whatever wakes the pod meanwhile, and holds
// up nothing else.
func TestAResizeThatWentWrongIsHeldBack(t *testing.T) {
	in := input(aPod(with("web", has("100m/200m", "1Mi/10Mi"))), observed(ready(0), web("running", 0, 0)))
	in.Memory = plan.Next(in).Memory
	in.Granted = &pod.Desired{Pod: aPod(with("web", has("200m/400m", "1Mi/10Mi")))}
	in.Memory = plan.Next(in).Memory.ResizeFailed(noon)
	for name, c := range map[string]struct {
		after        time.Duration
		anew         bool
		resizes      int
		held         bool
		wake         string
		stillToBeMet bool
	}{
		"a moment later":       {9 * time.Second, false, 0, true, "wake 10s", true},
		"after ten seconds":    {10 * time.Second, false, 1, false, "-", true},
		"another was granted":  {0, true, 1, false, "-", true},
		"nothing is different": {-1, false, 0, false, "-", false},
	} {
		in := in
		if in.Now = noon.Add(c.after); c.after < 0 {
			in.Now, in.Granted = noon, &pod.Desired{Pod: aPod(with("web", has("100m/200m", "1Mi/10Mi")))}
		}
		if c.anew {
			in.Memory = in.Memory.ResizeBackOffReset()
		}
		step := plan.Next(in)
		if got := describe(step); len(step.Resize) != c.resizes || step.ResizeHeld != c.held || got != c.wake || step.Resizing() != c.stillToBeMet {
			t.Errorf("%s: got %v, held %v, %s, resizing %v", name, step.Resize, step.ResizeHeld, got, step.Resizing())
		}
	}
}

// TestTheNodeIsAskedAgainInTime: a deferred resize wakes its pod, unless the pod
// ends.
func TestTheNodeIsAskedAgainInTime(t *testing.T) {
	in := input(aPod(), observed(ready(0), web("running", 0, 0)))
	in.AdmitResizeAt = noon.Add(30 * time.Second)
	if got := describe(plan.Next(in)); got != "wake 30s" {
		t.Errorf("got %s", got)
	}
	in.End = &pod.Termination{Reason: pod.ReasonDeadlineExceeded}
	if got := describe(plan.Next(in)); got != "stop web-0, stop-sandbox s0" {
		t.Errorf("as it ends: got %s", got)
	}
}

// TestMemoryInUseIsNotTakenAway: only limits that get lower are looked at.
func TestMemoryInUseIsNotTakenAway(t *testing.T) {
	const mi = 1 << 20
	for name, c := range map[string]struct {
		from, to  string // memory of web
		now, next int64  // the pod's limits
		use       map[string]int64
		want      string
	}{
		"up":                      {"1Mi/10Mi", "1Mi/20Mi", 10 * mi, 20 * mi, map[string]int64{"web-0": 15 * mi, "": 15 * mi}, ""},
		"down, and little in use": {"1Mi/20Mi", "1Mi/10Mi", 20 * mi, 10 * mi, map[string]int64{"web-0": 10*mi - 1, "": 10*mi - 1}, ""},
		"down, as much in use": {"1Mi/20Mi", "1Mi/10Mi", 20 * mi, 20 * mi, map[string]int64{"web-0": 10 * mi, "": 0},
			`cannot decrease memory limits: attempting to set container "web" memory limit (10485760) below current usage (10485760)`},
		"a limit where was none": {"1Mi/", "1Mi/10Mi", 0, 10 * mi, map[string]int64{"web-0": 11 * mi, "": 12 * mi},
			`cannot decrease memory limits: [attempting to set pod memory limit (10485760) below current usage (12582912), ` +
				`attempting to set container "web" memory limit (10485760) below current usage (11534336)]`},
		"none where was a limit": {"1Mi/10Mi", "1Mi/", 10 * mi, 0, nil, ""},
		"nobody knows": {"1Mi/20Mi", "1Mi/10Mi", 20 * mi, 10 * mi, nil,
			`cannot decrease memory limits: [missing pod memory usage, missing container "web" memory usage]`},
		"a request alone": {"2Mi/10Mi", "1Mi/10Mi", 10 * mi, 10 * mi, nil, ""},
	} {
		in := input(aPod(with("web", has("", c.from))), observed(ready(0), web("running", 0, 0)))
		in.Memory = plan.Next(in).Memory
		in.Granted = &pod.Desired{Pod: aPod(with("web", has("", c.to)))}
		step := plan.Next(in)
		err := plan.MayShrink(step.Shrinks(c.now, c.next), func(id string) (int64, error) {
			if used, known := c.use[id]; known {
				return used, nil
			}
			return 0, errors.New("no such cgroup")
		})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want || len(step.Resize) != 1 {
			t.Errorf("%s: got %q, want %q (resizes %v)", name, got, c.want, step.Resize)
		}
	}
}

// TestAContainerOfAnEarlierPoddIsBroughtToWhatIsGrantedNow: it was made with what
// was granted then, whatever the runtime does not tell of it.
func TestAContainerOfAnEarlierPoddIsBroughtToWhatIsGrantedNow(t *testing.T) {
	before, now := aPod(with("web", has("100m/", ""))), aPod(with("web", has("200m/", "")))
	told := web("running", 0, 0)
	told.Resources = &pod.ContainerResources{CPUShares: 102}
	other := told
	other.Resources = &pod.ContainerResources{CPUShares: 512}
	for name, c := range map[string]struct {
		before *v1.Pod
		seen   pod.Container
		want   int
	}{
		"nobody knows what was before":  {nil, web("running", 0, 0), 0},
		"the same was before":           {now, web("running", 0, 0), 0},
		"less was before":               {before, web("running", 0, 0), 1},
		"and the runtime says so":       {before, told, 1},
		"or says something else":        {before, other, 1},
		"a container that was not then": {aPod(containers("other")), web("running", 0, 0), 1}, // the pod's own limits
	} {
		in := input(now, observed(ready(0), c.seen))
		in.Memory.AdoptedPod = c.before
		step := plan.Next(in)
		if len(step.Resize) != c.want {
			t.Errorf("%s: got %v, want %d", name, step.Resize, c.want)
		}
		in.Memory = step.Memory.Resized(c.seen.ID, now, &now.Spec.Containers[0]).Resized("", now, nil)
		if again := plan.Next(in); len(again.Resize) > 0 {
			t.Errorf("%s: it is told again and again", name)
		}
	}
}

// TestAnAdoptedContainerGetsTheNodesMemoryQoS in place, once, and also where a change of its
// memory would restart it.
func TestAnAdoptedContainerGetsTheNodesMemoryQoS(t *testing.T) {
	p := aPod(containers("web"), with("web", has("100m/200m", "1Mi/10Mi"), restartFor("memory")))
	for name, c := range map[string]struct {
		rules  pod.MemoryQoSRules
		has    pod.MemoryQoS
		resize bool
	}{
		"inert":        {pod.MemoryQoSRules{}, pod.MemoryQoS{}, false},
		"as it is":     {pod.MemoryQoSRules{Tiered: true}, pod.MemoryQoS{Low: 1 << 20}, false},
		"switched on":  {pod.MemoryQoSRules{Tiered: true}, pod.MemoryQoS{}, true},
		"switched off": {pod.MemoryQoSRules{}, pod.MemoryQoS{Low: 1 << 20, High: 2 << 20}, true},
	} {
		container := ctr("web", "running", 0, 0)
		container.Resources = &pod.ContainerResources{MemoryQoS: c.has}
		in := input(p, observed(ready(0), container))
		in.MemoryQoS = c.rules
		step := plan.Next(in)
		if got := len(step.Resize) == 1 && step.Resize[0].ID == container.ID; got != c.resize || len(step.Stop) > 0 {
			t.Errorf("%s: got resizes %+v and stops %+v, want an update: %v", name, step.Resize, step.Stop, c.resize)
		}
		in.Memory = step.Memory.Resized(container.ID, p, &p.Spec.Containers[0])
		if step := plan.Next(in); len(step.Resize) > 0 {
			t.Errorf("%s: again: got %+v", name, step.Resize)
		}
	}
}

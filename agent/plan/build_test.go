package plan_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/agent/backoff"
	"podd/agent/plan"
	"podd/internal/pod"
)

// noon is when all tests of this package take place.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// aPod is a pod with one container, web, that is always restarted.
func aPod(opts ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "default", UID: "u1"},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways,
			Containers:    []v1.Container{{Name: "web"}},
		},
	}
	for _, o := range opts {
		o(p)
	}
	return p
}

func policy(r v1.RestartPolicy) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.RestartPolicy = r } }

func hostNetwork(p *v1.Pod) { p.Spec.HostNetwork = true }

func graceOf(seconds int64) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

func containers(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers = nil
		for _, n := range names {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: n})
		}
	}
}

// inits adds init containers; a name that ends in "!" is a sidecar's.
func inits(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, n := range names {
			n, isSidecar := strings.CutSuffix(n, "!")
			c := v1.Container{Name: n}
			if isSidecar {
				c.RestartPolicy = ptr(v1.ContainerRestartPolicyAlways)
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
}

func ephemerals(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, n := range names {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers,
				v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: n}})
		}
	}
}

// with changes the container of that name.
func with(name string, changes ...func(*v1.Container)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				for _, change := range changes {
					if list[i].Name == name {
						change(&list[i])
					}
				}
			}
		}
	}
}

func ofItsOwn(r v1.ContainerRestartPolicy) func(*v1.Container) {
	return func(c *v1.Container) { c.RestartPolicy = &r }
}

// rule is a restart rule for one exit code, with a policy as validation wants it.
func rule(action v1.ContainerRestartRuleAction, code int32) func(*v1.Container) {
	return func(c *v1.Container) {
		if c.RestartPolicy == nil {
			c.RestartPolicy = ptr(v1.ContainerRestartPolicyNever)
		}
		c.RestartPolicyRules = append(c.RestartPolicyRules, v1.ContainerRestartRule{
			Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}},
		})
	}
}

func postStart(c *v1.Container) { lifecycle(c).PostStart = &v1.LifecycleHandler{} }

func preStop(c *v1.Container) { lifecycle(c).PreStop = &v1.LifecycleHandler{} }

func lifecycle(c *v1.Container) *v1.Lifecycle {
	if c.Lifecycle == nil {
		c.Lifecycle = &v1.Lifecycle{}
	}
	return c.Lifecycle
}

func startupProbe(c *v1.Container) { c.StartupProbe = &v1.Probe{} }

func livenessProbe(c *v1.Container) { c.LivenessProbe = &v1.Probe{} }

// within is a probe's own grace period.
func within(seconds int64) func(*v1.Container) {
	return func(c *v1.Container) {
		for _, p := range []*v1.Probe{c.StartupProbe, c.LivenessProbe} {
			if p != nil {
				p.TerminationGracePeriodSeconds = &seconds
			}
		}
	}
}

func ptr[T any](v T) *T { return &v }

// observed is what the runtime reports; sandboxes and containers newest first.
func observed(things ...any) pod.Observed {
	o := pod.Observed{UID: "u1", Name: "shop", Namespace: "default", At: noon}
	for _, t := range things {
		switch t := t.(type) {
		case pod.Sandbox:
			o.Sandboxes = append(o.Sandboxes, t)
		case pod.Container:
			o.Containers = append(o.Containers, t)
		default:
			panic(fmt.Sprintf("observed: %T", t))
		}
	}
	return o
}

// ready and dead are sandboxes s<attempt>, a minute old.
func ready(attempt uint32) pod.Sandbox {
	return pod.Sandbox{ID: fmt.Sprintf("s%d", attempt), Attempt: attempt, Ready: true,
		CreatedAt: noon.Add(-time.Minute), IPs: []string{"10.88.0.2"}}
}

func dead(attempt uint32) pod.Sandbox {
	s := ready(attempt)
	s.Ready, s.IPs = false, nil
	return s
}

// web is the container web-<count> in sandbox s<sandbox>, in a state such as
// "created", "running", "unknown", "exited 0" or "exited 1". It ended (if it
// did) a second before noon.
func web(state string, sandbox, count int) pod.Container {
	return ctr("web", state, sandbox, count)
}

func ctr(name, state string, sandbox, count int) pod.Container {
	c := pod.Container{
		ID: fmt.Sprintf("%s-%d", name, count), Name: name, SandboxID: fmt.Sprintf("s%d", sandbox),
		RestartCount: int32(count), CreatedAt: noon.Add(-30 * time.Second),
	}
	kind, code, _ := strings.Cut(state, " ")
	switch kind {
	case "created":
		c.State = pod.ContainerCreated
		return c
	case "running":
		c.State = pod.ContainerRunning
	case "exited":
		c.State = pod.ContainerExited
		c.FinishedAt = noon.Add(-time.Second)
		code, reason, other := strings.Cut(code, " ")
		c.ExitCode = exitCode(code)
		if other {
			c.Reason = reason
		} else if c.ExitCode != 0 {
			c.Reason = "Error"
		}
	}
	c.StartedAt = noon.Add(-29 * time.Second)
	return c
}

func exitCode(s string) int32 {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		panic(err)
	}
	return int32(n)
}

// input is a sync of a pod at noon.
func input(p *v1.Pod, seen pod.Observed) plan.Input {
	return plan.Input{
		Phase: pod.PhaseRunning, Granted: &pod.Desired{Pod: p, Source: pod.SourceFile},
		Observed: seen, Policy: backoff.Default(), Now: noon,
	}
}

// describe writes a step as one line, in the order in which it is performed.
// An idle step is "-". Waiting is listed by reason, wake as the time from noon.
func describe(s plan.Step) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	for _, st := range s.Stop {
		if add("stop %s", st.ID); len(st.After) > 0 {
			parts[len(parts)-1] += " after " + strings.Join(st.After, " ")
		}
	}
	for _, id := range s.StopSandboxes {
		add("stop-sandbox %s", id)
	}
	for _, id := range s.ReleaseSandboxes {
		add("release %s", id)
	}
	if s.CreateSandbox {
		add("sandbox %d", s.Attempt)
	}
	for _, st := range s.Start {
		if st.ID != "" {
			add("start %s", st.ID)
			continue
		}
		add("create %s-%d", st.Container.Name, st.RestartCount)
	}
	if s.CleanUp {
		add("clean-up")
	}
	for _, id := range slices.Concat(s.RemoveContainers, s.RemoveSandboxes) {
		add("remove %s", id)
	}
	if !s.WakeAt.IsZero() {
		add("wake %v", s.WakeAt.Sub(noon))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// waits writes why containers wait: "web=CrashLoopBackOff".
func waits(s plan.Step) string {
	var parts []string
	for name, w := range s.Waiting {
		parts = append(parts, name+"="+w.Reason)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

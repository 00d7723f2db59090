package pod_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func TestCurrentSandbox(t *testing.T) {
	box := func(id string, ready, host bool, ips ...string) pod.Sandbox {
		return pod.Sandbox{ID: id, Ready: ready, HostNetwork: host, IPs: ips}
	}
	for name, tc := range map[string]struct {
		host    bool
		all     []pod.Sandbox
		want    string
		problem string
	}{
		"none":                        {false, nil, "", "no pod sandbox exists"},
		"ready":                       {false, []pod.Sandbox{box("a", true, false, "10.0.0.1")}, "a", ""},
		"beside one that died":        {false, []pod.Sandbox{box("b", true, false, "10.0.0.1"), box("a", false, false)}, "b", ""},
		"dead":                        {false, []pod.Sandbox{box("a", false, false, "10.0.0.1")}, "", "pod sandbox is not ready"},
		"dead, an older one is ready": {false, []pod.Sandbox{box("b", false, false), box("a", true, false, "10.0.0.1")}, "", "pod sandbox is not ready"},
		"two are ready":               {false, []pod.Sandbox{box("b", true, false, "10.0.0.1"), box("a", true, false, "10.0.0.2")}, "", "multiple pod sandboxes are ready and need to be reconciled"},
		"without an address":          {false, []pod.Sandbox{box("a", true, false)}, "", "pod sandbox has no IP address"},
		"on the host's network":       {true, []pod.Sandbox{box("a", true, true)}, "a", ""},
		"on the host's, against spec": {false, []pod.Sandbox{box("a", true, true, "10.0.0.1")}, "", "network namespace mode changed and sandbox needs to be recreated"},
		"on a network, against spec":  {true, []pod.Sandbox{box("a", true, false, "10.0.0.1")}, "", "network namespace mode changed and sandbox needs to be recreated"},
	} {
		observed, spec := pod.Observed{Sandboxes: tc.all}, &v1.PodSpec{HostNetwork: tc.host}
		got := ""
		if sb := observed.CurrentSandbox(spec); sb != nil {
			got = sb.ID
		}
		if problem := observed.SandboxProblem(spec); got != tc.want || problem != tc.problem {
			t.Errorf("%s: got %q and %q, want %q and %q", name, got, problem, tc.want, tc.problem)
		}
	}
}

func TestInitializedIsOfOneSandbox(t *testing.T) {
	spec := &v1.PodSpec{InitContainers: []v1.Container{{Name: "init"}}, Containers: []v1.Container{{Name: "a"}, {Name: "b"}}}
	made := func(name, sandbox string, attempt int32) pod.Container {
		return pod.Container{Name: name, SandboxID: sandbox, RestartCount: attempt}
	}
	for name, tc := range map[string]struct {
		all  []pod.Container
		want bool
	}{
		"nothing was made":              {nil, false},
		"an init container":             {[]pod.Container{made("init", "s1", 0)}, false},
		"the second regular one":        {[]pod.Container{made("b", "s1", 0)}, true},
		"one in an earlier sandbox":     {[]pod.Container{made("a", "s0", 0)}, false},
		"its successor is elsewhere":    {[]pod.Container{made("a", "s2", 1), made("a", "s1", 0)}, false},
		"a container of no spec's name": {[]pod.Container{made("x", "s1", 0)}, false},
	} {
		if got := (pod.Observed{Containers: tc.all}).InitContainersDone(spec, "s1"); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

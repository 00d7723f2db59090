package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// t0 is when the pod of these tests started; at(n) is n seconds later.
var t0 = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func at(n int) time.Time { return t0.Add(time.Duration(n) * time.Second) }

// scene is a report in the making.
type scene struct{ pod.Report }

type option func(*scene)

// aScene is a static pod with restartPolicy Always and one ready sandbox, which
// was made at second 1; the look is at second 100.
func aScene(opts ...option) pod.Report {
	s := &scene{pod.Report{
		Phase: pod.PhaseRunning,
		Desired: &pod.Desired{
			Source: pod.SourceFile,
			Origin: "/etc/podd/manifests/web.yaml",
			Pod: &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1", Generation: 1},
				Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways},
			},
		},
		Observed:  pod.Observed{UID: "u1", Sandboxes: []pod.Sandbox{{ID: "s1", Ready: true, CreatedAt: at(1), IPs: []string{"10.88.0.5"}}}},
		Waiting:   map[string]pod.Waiting{},
		StartTime: t0,
		At:        at(100),
	}}
	for _, o := range opts {
		o(s)
	}
	return s.Report
}

func (s *scene) spec() *v1.PodSpec { return &s.Desired.Pod.Spec }

func policy(p v1.RestartPolicy) option { return func(s *scene) { s.spec().RestartPolicy = p } }
func phase(p pod.Phase) option         { return func(s *scene) { s.Phase = p } }
func source(p pod.Source) option       { return func(s *scene) { s.Desired.Source = p } }
func lookAt(n int) option              { return func(s *scene) { s.At = at(n) } }
func noSandbox() option                { return func(s *scene) { s.Observed.Sandboxes = nil } }

// with adds a container to the spec and what the runtime has of it, newest first.
func with(name string, seen ...pod.Container) option {
	return func(s *scene) {
		s.spec().Containers = append(s.spec().Containers, v1.Container{Name: name, Image: "localhost/podd/" + name + ":1"})
		s.saw(name, seen)
	}
}

func withInit(name string, seen ...pod.Container) option {
	return func(s *scene) {
		s.spec().InitContainers = append(s.spec().InitContainers, v1.Container{Name: name, Image: "localhost/podd/" + name + ":1"})
		s.saw(name, seen)
	}
}

func withSidecar(name string, seen ...pod.Container) option {
	return func(s *scene) {
		withInit(name, seen...)(s)
		always := v1.ContainerRestartPolicyAlways
		s.spec().InitContainers[len(s.spec().InitContainers)-1].RestartPolicy = &always
	}
}

func (s *scene) saw(name string, seen []pod.Container) {
	for _, c := range seen {
		c.Name = name
		c.SandboxID = "s1"
		c.Image = "localhost/podd/" + name + ":1"
		c.ImageID = "sha256:" + name
		if c.ID == "" {
			c.ID = name + "-" + string(rune('0'+c.RestartCount))
		}
		s.Observed.Containers = append(s.Observed.Containers, c)
	}
}

func waits(name, reason string) option {
	return func(s *scene) { s.Waiting[name] = pod.Waiting{Reason: reason, Message: "because"} }
}

func created(restarts int32) pod.Container {
	return pod.Container{State: pod.ContainerCreated, RestartCount: restarts}
}

func running(restarts int32, started int) pod.Container {
	return pod.Container{State: pod.ContainerRunning, RestartCount: restarts, StartedAt: at(started)}
}

func exited(restarts, code int32, finished int) pod.Container {
	reason := "Error"
	if code == 0 {
		reason = "Completed"
	}
	return pod.Container{State: pod.ContainerExited, RestartCount: restarts, ExitCode: code, Reason: reason,
		StartedAt: at(finished - 1), FinishedAt: at(finished)}
}
func unknown(restarts int32) pod.Container {
	return pod.Container{State: pod.ContainerUnknown, RestartCount: restarts}
}

// compute is what a node without anything of its own shows.
func compute(r pod.Report, previous v1.PodStatus) v1.PodStatus { return Options{}.Compute(r, previous) }

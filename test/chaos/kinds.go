package main

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podd/test/e2e/testnode"
)

// rest is what a pod comes to when nothing strikes any more.
type rest int

const (
	runs   rest = iota // all its containers run and are ready
	ends               // it has Succeeded or Failed, and nothing of it runs
	cycles             // it crashes, and is started again
)

// kind is a kind of pod.
type kind struct {
	name string
	rest rest
	// spec changes a pod that has the container main, which runs until it is told
	// to end.
	spec func(b *builder)
	// own: objects lie beside the pod in its file.
	own bool
}

// kinds are all kinds of pods.
var kinds = slices.Concat(plainKinds, volumeKinds)

var plainKinds = []kind{
	{name: "service", rest: runs, spec: func(b *builder) { b.empty(v1.StorageMediumDefault) }},
	{name: "memory", rest: runs, spec: func(b *builder) { b.empty(v1.StorageMediumMemory) }},
	{name: "inits", rest: runs, spec: func(b *builder) {
		b.empty(v1.StorageMediumDefault)
		b.init("one", "-for=200ms", "-leaves=/empty/${LIFE}.one.done")
		b.init("two", "-for=100ms", "-needs=/empty/${LIFE}.one.done", "-leaves=/empty/${LIFE}.two.done")
		b.main("-needs=/empty/${LIFE}.two.done")
	}},
	{name: "sidecar", rest: runs, spec: func(b *builder) { b.sidecar("mesh") }},
	{name: "probes", rest: runs, spec: func(b *builder) {
		b.main("-listen=:8080")
		get := v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}
		c := &b.Spec.Containers[0]
		c.StartupProbe = &v1.Probe{ProbeHandler: get, PeriodSeconds: 1, FailureThreshold: 60}
		c.LivenessProbe = &v1.Probe{ProbeHandler: get, PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 3}
		c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/bin/true"}}}, PeriodSeconds: 2, TimeoutSeconds: 5}
	}},
	{name: "hostport", rest: runs, spec: func(b *builder) {
		b.main("-listen=:8080")
		b.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 8080, HostPort: b.port}}
	}},
	{name: "hooks", rest: runs, spec: func(b *builder) {
		b.Spec.Containers[0].Lifecycle = &v1.Lifecycle{
			PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/bin/sh", "-c", "sleep 0.2"}}},
			PreStop:   &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/bin/sh", "-c", "sleep 0.5"}}},
		}
	}},
	{name: "slow", rest: runs, spec: func(b *builder) { b.main("-linger=1500ms") }},
	{name: "deaf", rest: runs, spec: func(b *builder) { b.grace(1); b.main("-deaf") }},
	{name: "pair", rest: runs, spec: func(b *builder) { b.container("side") }},
	{name: "host", rest: runs, spec: func(b *builder) { b.Spec.HostNetwork = true }},
	{name: "job", rest: ends, spec: func(b *builder) { b.policy(v1.RestartPolicyNever); b.main("-for=" + b.upTo(1500)) }},
	{name: "fails", rest: ends, spec: func(b *builder) { b.policy(v1.RestartPolicyNever); b.main("-for="+b.upTo(500), "-code=7") }},
	{name: "retried", rest: ends, spec: func(b *builder) { b.policy(v1.RestartPolicyOnFailure); b.main("-fail-first", "-for="+b.upTo(1500)) }},
	{name: "jobinits", rest: ends, spec: func(b *builder) {
		b.policy(v1.RestartPolicyOnFailure)
		b.init("one", "-for="+b.upTo(500))
		b.main("-for=" + b.upTo(500))
	}},
	{name: "jobsidecar", rest: ends, spec: func(b *builder) {
		b.policy(v1.RestartPolicyNever)
		b.sidecar("mesh")
		b.main("-for=" + b.upTo(1000))
	}},
	{name: "crash", rest: cycles, spec: func(b *builder) { b.backoff("1s", "5s"); b.main("-for=100ms", "-code=1") }},
}

// builder makes a pod.
type builder struct {
	*v1.Pod
	rng  *rand.Rand
	out  string
	self string
	life string
	port int32
	// hosts is a directory for hostPaths of the pod; every is how often it reads
	// volumes with values.
	hosts string
	every time.Duration
	// mounts are what every container has, besides /out and /empty.
	mounts []v1.VolumeMount
}

// build creates the pod of a desired one.
func (k kind) build(name string, of builder) *v1.Pod {
	b := &of
	b.Pod = &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	file, dir := v1.HostPathFile, v1.HostPathDirectory
	b.Spec.Volumes = []v1.Volume{
		{Name: "out", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: b.out, Type: &dir}}},
		{Name: "chaos", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: b.self, Type: &file}}},
	}
	b.grace(3)
	b.backoff("100ms", "1s")
	b.container("main")
	k.spec(b)
	return b.Pod
}

func (b *builder) policy(p v1.RestartPolicy) { b.Spec.RestartPolicy = p }
func (b *builder) grace(seconds int64)       { b.Spec.TerminationGracePeriodSeconds = &seconds }

// backoff bounds the wait for restarts: faults crash containers all the time.
func (b *builder) backoff(initial, longest string) {
	b.Annotations = map[string]string{"podd/restart-backoff-initial": initial, "podd/restart-backoff-max": longest, "life": b.life}
}

func (b *builder) upTo(millis int) string {
	return (time.Duration(b.rng.IntN(millis)+1) * time.Millisecond).String()
}

func (b *builder) made(name string, args []string) v1.Container {
	command := []string{"/chaos", "contain", "-name=" + b.Name + "." + name, "-life=" + b.life, "-every=" + b.every.String()}
	c := v1.Container{Name: name, Image: testnode.ImageBusybox, VolumeMounts: []v1.VolumeMount{
		{Name: "out", MountPath: "/out"}, {Name: "chaos", MountPath: "/chaos", ReadOnly: true},
	}}
	c.VolumeMounts = append(c.VolumeMounts, b.mounts...)
	for _, v := range b.Spec.Volumes {
		if v.Name == "empty" {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/empty"})
			command = append(command, "-empty=/empty")
		}
	}
	for _, a := range args {
		command = append(command, strings.ReplaceAll(a, "${LIFE}", b.life))
	}
	c.Command = command
	return c
}

func (b *builder) container(name string, args ...string) {
	b.Spec.Containers = append(b.Spec.Containers, b.made(name, args))
}

// main gives the container main its arguments.
func (b *builder) main(args ...string) { b.Spec.Containers[0] = b.made("main", args) }

func (b *builder) init(name string, args ...string) {
	b.Spec.InitContainers = append(b.Spec.InitContainers, b.made(name, args))
}

func (b *builder) sidecar(name string) {
	b.init(name)
	always := v1.ContainerRestartPolicyAlways
	b.Spec.InitContainers[len(b.Spec.InitContainers)-1].RestartPolicy = &always
}

func (b *builder) empty(medium v1.StorageMedium) {
	b.Spec.Volumes = append(b.Spec.Volumes, v1.Volume{Name: "empty", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}})
	b.main()
}

// lasting are the containers that run as long as the pod does.
func lasting(p *v1.Pod) []string {
	var names []string
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil {
			names = append(names, c.Name)
		}
	}
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}

func lifeName(name string, n int) string { return name + "-" + strconv.Itoa(n) }

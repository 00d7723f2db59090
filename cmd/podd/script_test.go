package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/rogpeppe/go-internal/testscript"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/inspect"
	"podd/internal/pod"
	"podd/internal/versions"
	"podd/server"
)

func TestMain(m *testing.M) {
	if os.Getenv(measured) != "" {
		os.Exit(measure(os.Args[1:]))
	}
	if dirs := os.Getenv("PODD_TEST_HOLD"); dirs != "" {
		os.Exit(holdRoot(dirs))
	}
	if os.Getenv(blocksSignals) != "" {
		fmt.Fprintln(os.Stderr, execBlocked(os.Args[1:]))
		os.Exit(1)
	}
	if os.Getenv(resetsInherited) != "" {
		fmt.Fprintln(os.Stderr, execReset())
		os.Exit(1)
	}
	testscript.Main(m, map[string]func(){
		"podd":    func() { os.Exit(execute(append([]string{"podd"}, os.Args[1:]...))) },
		"kubelet": func() { os.Exit(execute(append([]string{"kubelet"}, os.Args[1:]...))) },
	})
}

// TestScripts runs the command line against a real server on a socket, with pods
// that do not change.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("KUBERNETES", regexp.QuoteMeta(versions.Kubernetes))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": startDaemon,
			"until":  runUntil,
		},
	})
}

// runUntil runs a program that does not end by itself until it has written a line that
// matches, and then ends it: until REGEXP PROGRAM ARGS… What it wrote is for stdout and
// stderr, as after exec.
func runUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP PROGRAM ARGS...")
	}
	const script = `line=$1; shift
		"$@" >until.out 2>until.err & pid=$!
		for _ in $(seq 1200); do # a minute, for what takes a tenth of a second
			grep -Eqe "$line" until.out until.err && break
			sleep 0.05
		done
		kill $pid; wait $pid
		cat until.out; cat until.err >&2
		grep -Eqe "$line" until.out until.err`
	ts.Check(ts.Exec("sh", append([]string{"-c", script, "until"}, args...)...))
}

func fakeObjects() []server.ObjectInfo {
	seen := time.Now().Add(-20 * time.Minute)
	return []server.ObjectInfo{
		{Kind: "ConfigMap", Namespace: "apps", Name: "settings", Keys: []string{"a"}, Seen: seen},
		{Kind: "ConfigMap", Namespace: "default", Name: "settings", Keys: []string{"app.conf", "level"}, UsedBy: []string{"default/new", "default/web"},
			Origin: "/etc/podd/manifests/web.yaml", Line: 12, Seen: seen},
		{Kind: "Secret", Namespace: "default", Name: "tls", Type: "kubernetes.io/tls", Keys: []string{"tls.crt", "tls.key"}, UsedBy: []string{"default/web"}, Seen: seen},
		{Kind: "PersistentVolume", Name: "disk", Seen: seen, Storage: &server.StorageInfo{Status: "Bound", Capacity: "5Gi", AccessModes: []string{"RWO", "ROX"},
			ReclaimPolicy: "Retain", StorageClass: "fast", VolumeMode: "Filesystem", Claim: "default/data"}},
		{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "data", Seen: seen, UsedBy: []string{"default/web"}, Storage: &server.StorageInfo{Status: "Bound",
			Volume: "disk", Capacity: "5Gi", AccessModes: []string{"RWO", "ROX"}, StorageClass: "fast", VolumeMode: "Filesystem"}},
		{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "other", Seen: seen,
			Storage: &server.StorageInfo{Status: "Pending", Reason: `persistentvolume "x" not found`}},
	}
}

// startDaemon serves $WORK/run/podd.sock until the script ends: daemon [empty].
func startDaemon(ts *testscript.TestScript, _ bool, args []string) {
	full := len(args) == 0
	s := server.New(server.Config{
		Socket:   filepath.Join(ts.MkAbs("run"), "podd.sock"),
		NodeName: "node-1",
		Version:  server.Version{Version: "v0"},
		Pods:     fakePods(full),
		Problems: func() []pod.Problem {
			if !full {
				return nil
			}
			return fakeProblems()
		},
		Retry:   func(pod.UID) bool { return true },
		Restart: func(pod.UID, string) error { return nil },
		Objects: func() []server.ObjectInfo {
			if !full {
				return nil
			}
			return fakeObjects()
		},
		Events: func(ns, name string) []*v1.Event {
			var all []*v1.Event
			for _, e := range fakeEvents() {
				if full && (ns == "" || ns == e.InvolvedObject.Namespace) && (name == "" || name == e.InvolvedObject.Name) {
					all = append(all, e)
				}
			}
			return all
		},
	})
	s.Attach(fakeRuntime{})
	ts.Check(s.Listen())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	ts.Defer(func() {
		stop()
		if err := <-done; err != nil {
			ts.Fatalf("the daemon: %v", err)
		}
	})
}

type fakePods bool

func (fakePods) Origin(u pod.UID) string { return "/etc/podd/manifests/" + string(u) + ".yaml" }

func (full fakePods) Pods() []*v1.Pod {
	if !full {
		return nil
	}
	// Ages are shown in minutes: seconds pass between the response and its output.
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }
	at := func(ns, name string, s v1.PodStatus, images ...string) *v1.Pod {
		start := ago(3*time.Hour + time.Minute)
		s.StartTime = &start
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: pod.UID("uid-" + name)},
			Spec: v1.PodSpec{NodeName: "node-1"}, Status: s}
		for i, image := range images {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprintf("c%d", i), Image: image})
		}
		return p
	}
	yes := true
	running := v1.ContainerStatus{Name: "c0", Ready: true, Started: &yes, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	crashing := v1.ContainerStatus{Name: "c1", RestartCount: 4,
		State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s restarting failed container=c1 pod=web_default(uid-web)"}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "cannot open\nthe database\n", FinishedAt: ago(12*time.Minute + 30*time.Second)}}}
	unpulled := v1.ContainerStatus{Name: "c0", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image " + strings.Repeat("x ", 300)}}}
	making := v1.ContainerStatus{Name: "c1", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	done := v1.ContainerStatus{Name: "c0", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}}}
	return []*v1.Pod{
		at("apps", "job-node-1", v1.PodStatus{Phase: v1.PodSucceeded, PodIP: "10.88.0.9", ContainerStatuses: []v1.ContainerStatus{done}}, "localhost/podd/busybox:1"),
		at("default", "new", v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{unpulled, making}}, "localhost/nobody/x:1", "localhost/podd/busybox:1"),
		at("default", "web", v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.88.0.5", ContainerStatuses: []v1.ContainerStatus{running, crashing}},
			"localhost/podd/web:1", "localhost/podd/busybox:1"),
	}
}

// fakeRuntime has no containers: nobody asks it for logs and sessions.
type fakeRuntime struct{ server.Runtime }

func (fakeRuntime) Volumes(*v1.Pod) []server.Volume {
	return []server.Volume{{Name: "data", Path: "/srv/data"}}
}

func (fakeRuntime) Images(context.Context) ([]server.Image, error) {
	used := time.Now().Add(-5 * time.Minute)
	return []server.Image{
		{ID: "sha256:0123456789abcdef", Names: []string{"registry.example/app:1", "registry.example/app:latest"}, Size: 5 << 20, LastUsed: &used,
			Pods: []string{"a/1", "a/2", "a/3", "a/4", "a/5"}, Kept: "a container has it", Digests: []string{"registry.example/app@sha256:00"}},
		{ID: "sha256:fedcba9876543210", Names: []string{}, Size: 1 << 20, Pods: []string{}},
	}, nil
}

func (fakeRuntime) RemoveImages(_ context.Context, name string) ([]server.Image, error) {
	switch name {
	case "none":
		return nil, pod.ErrNotFound
	case "used":
		return nil, errors.New("image used is kept: it is pinned")
	}
	return []server.Image{{ID: "sha256:fedcba9876543210", Names: []string{"registry.example/old:1"}, Size: 3 << 20}}, nil
}

func (fakeRuntime) Summary(context.Context, bool) (any, error) {
	return nil, errors.New("not used here")
}

func (fakeRuntime) Inspect(_ context.Context, p *v1.Pod, container string) (any, error) {
	if p.Name != "web" {
		return nil, errors.New("the runtime is not available")
	}
	answer := inspect.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Runtime: "containerd v2"}
	for _, c := range []inspect.Container{
		{Name: "c0", ID: "id0", State: "running", PID: 7, Spec: &specs.Spec{},
			Rows: []inspect.Row{{Section: "process", Name: "runAsUser", Manifest: "1000", Runtime: "0", Differs: true}}},
		{Name: "c1", ID: "id1", Message: "gone"},
	} {
		if container == "" || container == c.Name {
			answer.Containers = append(answer.Containers, c)
		}
	}
	return answer, nil
}

func fakeProblems() []pod.Problem {
	return []pod.Problem{
		{Origin: "/etc/podd/manifests/web.yaml", Line: 12, Field: "spec.containers[0].imagee", Pod: "default/web",
			Message: "unknown field \"imagee\"", Hint: "did you mean \"image\"?", LastGoodInUse: true},
		{Origin: "/etc/podd/manifests/x.yaml", Message: "is empty\x1b[31m"},
	}
}

func fakeEvents() []*v1.Event {
	event := func(ns, name, reason, message string, count int32) *v1.Event {
		return &v1.Event{ObjectMeta: metav1.ObjectMeta{Name: name + "." + reason, Namespace: ns}, Type: v1.EventTypeNormal, Reason: reason, Message: message, Count: count,
			InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: ns, Name: name},
			FirstTimestamp: metav1.NewTime(time.Now().Add(-45*time.Minute - 30*time.Second)), LastTimestamp: metav1.NewTime(time.Now().Add(-15*time.Minute - 30*time.Second))}
	}
	inContainer := func(e *v1.Event, container string) *v1.Event {
		e.InvolvedObject.FieldPath = "spec.containers{" + container + "}"
		return e
	}
	return []*v1.Event{
		event("default", "web", "Pulled", "Container image already present on machine", 1),
		inContainer(event("default", "web", "BackOff", "Back-off restarting failed container\nc1", 7), "c1"),
		event("apps", "job-node-1", "Started", "Started container c0", 1),
	}
}

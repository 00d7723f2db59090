package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/server"
)

// aListing has one pod for each status.
func aListing(all ...v1.PodStatus) server.Listing {
	var l server.Listing
	for i, s := range all {
		name := fmt.Sprintf("p%d", i)
		l.Pods = append(l.Pods, server.PodInfo{Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: pod.UID(name)}, Status: s}})
	}
	return l
}

func aContainer(state, last v1.ContainerState) v1.PodStatus {
	return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: state, LastTerminationState: last}}}
}

func TestAPersonSeesWhyAContainerDoesNotRun(t *testing.T) {
	now := time.Now()
	wait := func(reason, message string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	end := func(code, signal int32, reason, message string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Signal: signal, Reason: reason,
			Message: message, FinishedAt: metav1.NewTime(now.Add(-3 * time.Minute))}}
	}
	none := v1.ContainerState{}
	tests := []struct {
		name   string
		status v1.PodStatus
		want   string
	}{
		{"runs", aContainer(v1.ContainerState{Running: &v1.ContainerStateRunning{}}, end(1, 0, "Error", "")), ""},
		{"is being made", aContainer(wait("ContainerCreating", ""), none), ""},
		{"is done", aContainer(end(0, 0, "Completed", ""), none), ""},
		{"no status yet", v1.PodStatus{Phase: v1.PodPending}, ""},
		{"waits for an object", aContainer(wait("CreateContainerConfigError", `configmap "settings" not found`), none),
			`default/p0: c: CreateContainerConfigError: configmap "settings" not found (put a ConfigMap settings of namespace default beside the manifests: the container starts when it is there)`},
		{"waits for an object of a volume", aContainer(wait("ContainerCreating", `MountVolume.SetUp failed for volume "v" : secret "tls" not found`), none),
			`default/p0: c: ContainerCreating: MountVolume.SetUp failed for volume "v" : secret "tls" not found (put a Secret tls of namespace default beside the manifests: the container starts when it is there)`},
		{"waits for a key", aContainer(wait("CreateContainerConfigError", "couldn't find key k in Secret default/tls"), none),
			"default/p0: c: CreateContainerConfigError: couldn't find key k in Secret default/tls"},
		{"waits for a volume", aContainer(wait("ContainerCreating", "no such\ndirectory"), none), "default/p0: c: ContainerCreating: no such directory"},
		{"reason without message", aContainer(wait("ErrImageNeverPull", ""), none), "default/p0: c: ErrImageNeverPull"},
		{"crashes", aContainer(wait("CrashLoopBackOff", "back-off 20s restarting failed container=c pod=p0"), end(1, 0, "Error", "no\nroom\n")),
			"default/p0: c: CrashLoopBackOff: exited with code 1 3m ago; back-off 20s: no room"},
		{"crashes out of memory", aContainer(wait("CrashLoopBackOff", "back-off 20s restarting failed container=c"), end(137, 0, "OOMKilled", "")),
			"default/p0: c: CrashLoopBackOff: exited with code 137 (OOMKilled) 3m ago; back-off 20s"},
		{"has ended", aContainer(end(137, 0, "OOMKilled", ""), none), "default/p0: c: OOMKilled: exited with code 137 3m ago"},
		{"was killed", aContainer(end(0, 9, "", ""), none), "default/p0: c: Signal:9: killed by signal 9 3m ago"},
		{"the pod's own reason", v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "too little memory"}, "default/p0: Evicted: too little memory"},
		{"never began before its pod's end", v1.PodStatus{Phase: v1.PodFailed, Reason: "DeadlineExceeded", Message: "too long",
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "ContainerStatusUnknown", ExitCode: 137}}}}},
			"default/p0: DeadlineExceeded: too long"},
		{"init container", v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{{Name: "i", State: wait("ErrImagePull", "gone")}}}, "default/p0: i: ErrImagePull: gone"},
	}
	for _, tt := range tests {
		got := ""
		for _, l := range (view{}).notRunningLines(aListing(tt.status), now) {
			got += l.text
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestAPersonSeesWhatAProbeSaid: once a crash loop caused by a probe showed
// only exit code 137, and a container that was not ready nothing at all; the
// reason was only in the events.
func TestAPersonSeesWhatAProbeSaid(t *testing.T) {
	now := time.Now()
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	killed := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: "Error", FinishedAt: metav1.NewTime(now.Add(-3 * time.Second))}}
	l := aListing(aContainer(running, killed), aContainer(running, v1.ContainerState{}),
		aContainer(v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 20s restarting failed container=c"}}, killed),
		aContainer(killed, v1.ContainerState{}))
	for i, cause := range []string{"Readiness probe failed: dial tcp 10.88.0.4:80:\nconnect: connection refused", "", "Liveness probe failed: is sick", "Startup probe failed"} {
		l.Pods[i].Causes = map[string]string{"c": cause}
	}
	var b strings.Builder
	if err := (view{}).write(&b, l, now); err != nil {
		t.Fatal(err)
	}
	want := `
Not running:
  default/p2: c: CrashLoopBackOff: Liveness probe failed: is sick; exited with code 137 3s ago; back-off 20s
  default/p3: c: Error: Startup probe failed; exited with code 137 3s ago

Not ready:
  default/p0: c: Readiness probe failed: dial tcp 10.88.0.4:80: connect: connection refused
`
	if _, got, _ := strings.Cut(b.String(), "<none>\n\n"); "\n"+got != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := (view{}).writeDetails(&b, l, now); err != nil {
		t.Fatal(err)
	}
	if want := "c: running, not ready: Readiness probe failed: dial tcp 10.88.0.4:80: connect: connection refused"; !strings.Contains(b.String(), want) {
		t.Errorf("got\n%s\nwant %q in it", b.String(), want)
	}
}

// TestManyReasonsAreBounded: on a node without network every pod has one.
func TestManyReasonsAreBounded(t *testing.T) {
	s := aContainer(v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating", Message: "no network"}}, v1.ContainerState{})
	var all []v1.PodStatus
	for range maxReasons + 3 {
		all = append(all, s)
	}
	for wide, want := range map[bool]int{false: maxReasons, true: maxReasons + 3} {
		var b strings.Builder
		if err := (view{wide: wide}).write(&b, aListing(all...), time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(b.String(), "no network"); got != want {
			t.Errorf("wide %v: got %d reasons, want %d", wide, got, want)
		}
		if got := strings.Contains(b.String(), "and 3 more: podd ps -o wide"); got == wide {
			t.Errorf("wide %v: the rest is counted: %v", wide, got)
		}
	}
}

func TestAPersonSeesWhatBecameOfABrokenDocument(t *testing.T) {
	for want, p := range map[string]pod.Problem{
		"a.yaml:3: bad; the last good version of default/web keeps running":          {Pod: "default/web", LastGoodInUse: true},
		"a.yaml:3: bad; the last good version of the Secret default/db stays in use": {Object: "Secret default/db", LastGoodInUse: true},
		"a.yaml:3: bad; the last good version keeps running":                         {LastGoodInUse: true},
		"a.yaml:3: bad": {Object: "Secret default/db"},
	} {
		p.Origin, p.Line, p.Message = "a.yaml", 3, "bad"
		if got := describeProblem(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

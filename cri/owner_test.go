package cri_test

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/internal/pod"
)

// podd is another client of the same runtime, with directories of its own.
func (r *rig) podd(t *testing.T, instance string, log *slog.Logger) *rig {
	t.Helper()
	other := *r
	other.opts.Instance, other.opts.InstanceFile = instance, "/runtime/of/"+instance
	other.opts.Dirs.Root = filepath.Join(r.dir, instance)
	other.log = log
	other.dial(t)
	return &other
}

func (r *rig) names(t *testing.T) []string {
	t.Helper()
	summaries, err := r.Summaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range summaries {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	return names
}

// TestTwoPoddsOnOneRuntimeLeaveEachOthersPodsAlone: what is another's is not
// listed, its logs are not rotated, its images are told apart, and the log names
// it once.
func TestTwoPoddsOnOneRuntimeLeaveEachOthersPodsAlone(t *testing.T) {
	r := newRig(t)
	var log bytes.Buffer
	a, b := r.podd(t, "aaaa", slog.New(slog.NewTextHandler(&log, nil))), r.podd(t, "bbbb", quiet)
	mine, theirs := aPod("mine"), aPod("theirs", func(p *v1.Pod) {
		p.Annotations = map[string]string{pod.AnnotationInstance: "aaaa"} // does not help a manifest
	})
	a.start(t, mine, a.sandbox(t, mine, 0), 0)
	id := b.start(t, theirs, b.sandbox(t, theirs, 0), 0)
	for range 3 {
		if got := a.names(t); !slices.Equal(got, []string{"mine"}) {
			t.Errorf("a: got %v, want its own", got)
		}
	}
	if got := b.names(t); !slices.Equal(got, []string{"theirs"}) {
		t.Errorf("b: got %v, want its own", got)
	}
	for _, look := range []func(pod.UID) pod.Observed{
		func(uid pod.UID) pod.Observed { return a.observe(t, uid) },
		func(uid pod.UID) pod.Observed {
			seen, err := a.Lookup(t.Context(), uid)
			if err != nil {
				t.Fatal(err)
			}
			return seen
		},
	} {
		if seen := look(theirs.UID); !seen.Empty() || seen.Foreign != "bbbb" {
			t.Errorf("another's pod: got %+v, want nothing of it but whose it is", seen)
		}
		if seen := look(mine.UID); len(seen.Sandboxes) != 1 || len(seen.Containers) != 1 || seen.Foreign != "" || seen.StartTime.IsZero() {
			t.Errorf("its own pod: got %+v", seen)
		}
	}
	logs, err := a.RunningLogs(t.Context())
	if err != nil || len(logs) != 1 || !strings.Contains(logs[0].Path, "mine") {
		t.Errorf("logs to rotate: got %v (%v), want its own", logs, err)
	}
	own, others, err := a.ContainerImages(t.Context())
	if err != nil || len(own) == 0 || len(others) == 0 {
		t.Errorf("images: got %v and %v (%v)", own, others, err)
	}
	if all, err := a.SandboxIDs(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("what holds a network: got %v (%v), want all", all, err)
	}
	if !a.Shared() {
		t.Error("want the runtime known as shared")
	}
	if said := log.String(); strings.Count(said, "left alone") != 1 || !strings.Contains(said, "bbbb") || !strings.Contains(said, "default/theirs") || !strings.Contains(said, "write its instance into /runtime/of/aaaa and restart") {
		t.Errorf("log: got %s, want the other podd and its pods named once", said)
	}
	// Dead, it keeps nobody from running a pod of the same UID.
	if err := b.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	for _, s := range b.observe(t, theirs.UID).Sandboxes {
		if err := b.StopSandbox(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
	}
	if seen := a.observe(t, theirs.UID); !seen.Empty() || seen.Foreign != "" {
		t.Errorf("another's dead pod: got %+v, want nothing", seen)
	}
}

// TestPodsOfAPoddWithoutIdentityAreAdopted: an upgrade ends and restarts nothing.
// Another's pods of that age have no directory here.
func TestPodsOfAPoddWithoutIdentityAreAdopted(t *testing.T) {
	r := newRig(t)
	old, theirs := aPod("old"), aPod("theirs")
	s := r.sandbox(t, old, 0)
	r.start(t, old, s, 0)
	r.start(t, theirs, r.sandbox(t, theirs, 0), 0)
	a := r.podd(t, "aaaa", quiet)
	if err := os.MkdirAll(filepath.Join(a.opts.Dirs.Root, "pods", string(old.UID)), 0o750); err != nil {
		t.Fatal(err)
	}
	if got := a.names(t); !slices.Equal(got, []string{"old"}) {
		t.Errorf("got %v, want the pod that has its directory here", got)
	}
	if seen := a.observe(t, theirs.UID); !seen.Empty() || seen.Foreign == "" {
		t.Errorf("the other: got %+v, want it left alone", seen)
	}
	// A restarted container in the old sandbox carries the identity.
	a.start(t, old, s, 1)
	if seen := a.observe(t, old.UID); len(seen.Containers) != 2 {
		t.Errorf("got %d containers, want both", len(seen.Containers))
	}
	if b := r.podd(t, "bbbb", quiet); !slices.Equal(b.names(t), nil) {
		t.Errorf("another podd: got %v, want nothing", b.names(t))
	}
}

func TestLinksOfContainersThatSomebodyElseRemovedAreForgotten(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	id := r.start(t, p, s, 0)
	link := filepath.Join(r.dir, "containers", "web_default_app-"+id+".log")
	if _, err := r.Summaries(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(link); err != nil {
		t.Fatalf("a container that is there: got %v, want its link", err)
	}
	if _, err := r.srv.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.ID}); err != nil { // crictl rmp -f
		t.Fatal(err)
	}
	if _, err := r.Summaries(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(link); err == nil {
		t.Error("got the link, want it gone")
	}
}

// TestPodsOfTheKubeletWhoseRootDirectoryThisIsAreTakenOver: a node changes its agent. What
// another kubelet has on the same runtime is its own.
func TestPodsOfTheKubeletWhoseRootDirectoryThisIsAreTakenOver(t *testing.T) {
	r := newRig(t)
	a := r.podd(t, "aaaa", quiet)
	for _, name := range []string{"here", "elsewhere"} {
		labels := map[string]string{spec.LabelPodName: name, spec.LabelPodNamespace: "default", spec.LabelPodUID: "uid-" + name}
		config := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
			Labels:   labels, Annotations: map[string]string{pod.AnnotationSource: "api"},
		}
		s, err := r.srv.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
		if err != nil {
			t.Fatal(err)
		}
		inContainer := maps.Clone(labels)
		inContainer[spec.LabelContainerName] = "app"
		k, err := r.srv.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: r.id}, Labels: inContainer,
			Annotations: map[string]string{spec.AnnotationHash: "1b2c3d4e", spec.AnnotationRestartCount: "3"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.srv.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: k.ContainerId}); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.names(t); len(got) > 0 {
		t.Errorf("got %q before any has a directory", got)
	}
	if err := os.MkdirAll(filepath.Join(a.opts.Dirs.Root, "pods", "uid-here"), 0o750); err != nil {
		t.Fatal(err)
	}
	if got := a.names(t); !slices.Equal(got, []string{"here"}) {
		t.Errorf("got %q, want the pod that has its directory here", got)
	}
	seen := a.observe(t, "uid-here")
	if !seen.TakenOver || !seen.StartTime.Equal(seen.Sandboxes[0].CreatedAt) || seen.Source != pod.SourceAPIServer {
		t.Errorf("got %+v", seen)
	}
	// A kubelet computes its hash in another way: the container is not another one for that.
	if c := seen.LatestContainer("app"); c == nil || c.Hash != "" || c.RestartCount != 3 {
		t.Errorf("got %+v", c)
	}
	if logs, err := a.RunningLogs(t.Context()); err != nil || len(logs) != 1 {
		t.Errorf("got the logs %v, %v, want one", logs, err)
	}
	if other := a.observe(t, "uid-elsewhere"); other.TakenOver || !other.StartTime.IsZero() {
		t.Errorf("another kubelet's: got %+v", other)
	}
}

package cri_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/critest"
	"podd/internal/pod"
)

// annotated is a pod with that many KiB of annotations; the API allows 256.
func annotated(name string, kib int) *v1.Pod {
	return aPod(name, func(p *v1.Pod) { p.Annotations = map[string]string{"note": strings.Repeat("x", kib<<10)} })
}

// TestListsOfMoreThanSixteenMiBAreRead: 65 pods with the most annotations that
// the API allows ended everything for good, for each list failed.
func TestListsOfMoreThanSixteenMiBAreRead(t *testing.T) {
	r := newRig(t, critest.WithMaxMessage(pod.MaxRuntimeMessage))
	const pods = 70
	for i := range pods {
		r.sandbox(t, annotated(fmt.Sprint("pod", i), 255), 0)
	}
	summaries, err := r.Summaries(t.Context())
	if err != nil || len(summaries) != pods {
		t.Errorf("got %d pods (%v), want %d", len(summaries), err, pods)
	}
	if ids, err := r.SandboxIDs(t.Context()); err != nil || len(ids) != pods {
		t.Errorf("got %d sandboxes (%v), want %d", len(ids), err, pods)
	}
}

// TestAListThatTheRuntimeMayNotSendIsExplained: by a runtime with limits of its
// own. The largest pods are named, and found once a minute, not for each try.
func TestAListThatTheRuntimeMayNotSendIsExplained(t *testing.T) {
	r := newRig(t, critest.WithMaxMessage(1<<20))
	for i, kib := range []int{100, 250, 200, 200, 240, 255} {
		p := annotated(fmt.Sprint("pod", i), kib)
		r.sandbox(t, p, 0)
		if err := os.MkdirAll(filepath.Join(r.opts.Dirs.Root, "pods", string(p.UID)), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.Summaries(t.Context())
	if err == nil || !strings.Contains(err.Error(), "max_send_message_size") || !strings.Contains(err.Error(), ": default/pod5 (255 KiB), default/pod1 (250 KiB), default/pod4 (240 KiB)") {
		t.Errorf("got %v, want what to do and the largest pods", err)
	}
	if _, again := r.Summaries(t.Context()); again == nil || again.Error() != err.Error() {
		t.Errorf("again: got %v, want the same", again)
	}
	if seen := r.observe(t, "uid-pod5"); len(seen.Sandboxes) != 1 {
		t.Errorf("one pod: got %+v, want its sandbox", seen)
	}
}

// TestLongHooksDoNotGrowTheRuntimesLists: what of a spec is in annotations is bounded,
// for each list has it of all containers, dead ones too. The end of a pod whose manifest
// is gone knows its hook all the same, from the spec that was stored (package agent).
func TestLongHooksDoNotGrowTheRuntimesLists(t *testing.T) {
	r := newRig(t)
	hook := &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", strings.Repeat("true;", 100<<10)}}}}
	var ports []v1.ContainerPort
	for i := range 2000 {
		ports = append(ports, v1.ContainerPort{Name: fmt.Sprint("port", i), ContainerPort: int32(i + 1)})
	}
	for _, tc := range []struct {
		name   string
		change func(*v1.Container)
		want   *v1.Container
	}{
		{"hook", func(c *v1.Container) { c.Lifecycle, c.Ports = hook, ports }, nil},
		{"ports", func(c *v1.Container) { c.Ports = ports }, nil},
	} {
		p := aPod(tc.name)
		tc.change(&p.Spec.Containers[0])
		s := r.sandbox(t, p, 0)
		for restarts := range int32(3) {
			r.start(t, p, s, restarts)
		}
		listed, err := r.srv.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range listed.Containers {
			size := 0
			for key, value := range k.Annotations {
				size += len(key) + len(value)
			}
			if size > 16<<10 {
				t.Errorf("%s: got %d bytes of annotations, want them bounded", tc.name, size)
			}
		}
		r.dial(t)
		if d := cmp.Diff(tc.want, r.observe(t, p.UID).LatestContainer("app").Kept); d != "" {
			t.Errorf("%s: (-want +got)\n%.500s", tc.name, d)
		}
	}
}

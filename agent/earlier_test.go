package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// testdata/earlier has what podd 3e2131e has written: podd is upgraded while pods run.
func TestCheckpointsOfAnEarlierPoddAreRead(t *testing.T) {
	dir := t.TempDir() // what cannot be read is removed
	if err := os.CopyFS(dir, os.DirFS("testdata/earlier")); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	ends, err := newCompletions(filepath.Join(dir, "ended")).files.read()
	if err != nil || len(ends) != 1 {
		t.Fatalf("got %d ends, %v", len(ends), err)
	}
	e := ends[0]
	if e.UID != "u1" || e.Source != pod.SourceFile || !e.StartTime.Equal(at) || e.Reason != "Evicted" || e.Message != "The node was low on resource: memory." || len(e.Containers) != 1 {
		t.Errorf("got %+v", e)
	} else if c := e.Containers[0]; c.ID != "c1" || c.Name != "job" || c.ExitCode != 3 || c.Reason != "Error" || c.RestartCount != 2 || c.State != pod.ContainerExited || !c.FinishedAt.Equal(at.Add(time.Minute)) {
		t.Errorf("got container %+v", c)
	}
	removals, err := newLogRemovals(filepath.Join(dir, "log-removals")).files.read()
	if want := (logRemoval{"shop", "web", "u2", at}); err != nil || len(removals) != 1 || removals[0] != want {
		t.Errorf("got removals %+v, %v, want %+v", removals, err, want)
	}
	allocated, err := newAllocated(filepath.Join(dir, "allocated")).files.read()
	if err != nil || len(allocated) != 1 {
		t.Fatalf("got %d allocations, %v", len(allocated), err)
	}
	d := &pod.Desired{Source: pod.SourceAPIServer, Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u3"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "web"}}}}}
	granted := allocated[0].Restore(d).Granted
	if cpu := granted.Pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU]; cpu.Cmp(resource.MustParse("100m")) != 0 {
		t.Errorf("the pod was granted %s of CPU, want 100m", cpu.String())
	}
}

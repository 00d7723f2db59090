package e2e

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestAPoddThatStartsTakesUpPodsWithAllTheAnnotationsThereMayBe: 65 pods of 255
// KiB made each list longer than a message could be, and after a restart no pod
// was taken up, for good.
func TestAPoddThatStartsTakesUpPodsWithAllTheAnnotationsThereMayBe(t *testing.T) {
	e := begin(t)
	const pods = 65
	note := strings.Repeat("x", 255<<10)
	var names []string
	for i := range pods {
		name := fmt.Sprint("large", i)
		names = append(names, name)
		e.write(name+".yaml", replaced(e, e.podOf(name, ": > /out/"+name+"; ${REST}", "hostNetwork: true"), "metadata:\n", "metadata:\n  annotations: {note: "+note+"}\n"))
	}
	e.mark(names...)
	before := e.identities()
	if len(before) != pods {
		t.Fatalf("got %d containers, want %d", len(before), pods)
	}
	e.stop()
	e.remove("large0.yaml")
	e.start()
	e.eventually("each pod is taken up but the one that nobody wants", func(ctx context.Context) error {
		listed, err := e.podd.Pods(ctx)
		if err != nil {
			return err
		}
		running := 0
		for _, p := range listed {
			if p.Status.Phase == v1.PodRunning {
				running++
			}
		}
		if now := e.identities(); running != pods-1 || len(now) != pods-1 {
			return fmt.Errorf("got %d running pods and %d containers", running, len(now))
		}
		return nil
	})
	delete(before, "large0-"+e.podd.NodeName()+"/main")
	if now := e.identities(); !maps.Equal(now, before) {
		t.Errorf("got %v, want %v", now, before)
	}
}

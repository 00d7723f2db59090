package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestAPodThatWritesTooMuchIntoAnEmptyDirIsEvicted: for good, in the kubelet's words;
// the one beside it that keeps its limit runs on.
func TestAPodThatWritesTooMuchIntoAnEmptyDirIsEvicted(t *testing.T) {
	e := begin(t)
	writing := func(name string, mib string) string {
		text := e.podOf(name, "echo x >> /out/"+name+".starts; dd if=/dev/zero of=/data/file bs=1M count="+mib+" && : > /out/"+name+"; ${REST}")
		return strings.Replace(text, "mountPath: /out}]", "mountPath: /out}, {name: data, mountPath: /data}]", 1) +
			"  - name: data\n    emptyDir: {sizeLimit: 10Mi}\n"
	}
	e.write("much.yaml", writing("much", "12"))
	e.write("little.yaml", writing("little", "8"))
	evicted := func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" || p.Status.Message != `Usage of EmptyDir volume "data" exceeds the limit "10Mi". ` {
			return errors.New(describe(p))
		}
		return nil
	}
	e.mark("much", "little")
	p := e.waitPod("much", "evicted", evicted)
	e.event("much", "Evicted", `Usage of EmptyDir volume "data" exceeds the limit "10Mi".`)
	e.stop()
	e.start()
	e.waitPod("much", "still evicted", evicted)
	e.ready("little")
	if much, little := e.starts("much"), e.starts("little"); much != 1 || little != 1 {
		t.Errorf("they ran %d and %d times, want once each", much, little)
	}
	scratch := filepath.Join(e.node.Root(), "pods", string(p.UID), "volumes/kubernetes.io~empty-dir")
	e.eventually("the space is given back", func(context.Context) error {
		if _, err := os.Stat(scratch); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is there (%w)", scratch, err)
		}
		return nil
	})
}

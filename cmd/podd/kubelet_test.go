package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnderTheNameKubeletUnknownFieldsAreReported starts the binary as a kubelet is
// started, with a manifest that kubelets run and podd run rejects.
func TestUnderTheNameKubeletUnknownFieldsAreReported(t *testing.T) {
	d := newDaemon(t, 0)
	d.kubelet = true
	d.put("kops", "apiVersion: v1\nkind: Pod\nmetadata: {name: kops, component: proxy}\nspec:\n  dnsPolicy: Default\n  containers: [{name: c, image: "+
		testImage+"}]\n  volumes: [{name: v, empty-dir: {}}]\n")
	d.start()
	d.await("the pod runs", func() bool { return d.running() == 1 })
	out, err := exec.Command(filepath.Join(d.dir, "podd"), "ps", "--state-dir", filepath.Join(d.dir, "state")).CombinedOutput()
	for _, want := range []string{`warning: metadata.component: unknown field "component"`, `warning: spec.volumes[0].empty-dir: unknown field "empty-dir"`} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("podd ps: got %v, %s, want %s", err, out, want)
		}
	}
	log := d.stop()
	for _, want := range []string{"manifest warning", "metadata.component", "--runonce: has no effect: ", "--feature-gates: CPUManagerPolicyAlphaOptions: makes no difference: podd does not have this feature gate"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no warning %q: %s", want, log)
		}
	}
}

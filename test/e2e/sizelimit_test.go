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

	"podd/test/e2e/testnode"
)

// TestAPodThatWritesTooMuchIntoAnEmptyDirIsEvicted: for good, in the kubelet's words;
// the one beside it that keeps its limit runs on.
func TestAPodThatWritesTooMuchIntoAnEmptyDirIsEvicted(t *testing.T) {
	e := begin(t)
	writing := func(name string, mib string) string {
		text := e.podOf(name, "echo x >> /out/"+name+".starts; dd if=/dev/zero of=/data/file bs=1M count="+mib+" && : > /out/"+name+"; ${REST}")
		return replaced(e, text, "mountPath: /out}]", "mountPath: /out}, {name: data, mountPath: /data}]") +
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

// TestAPodThatTakesTooMuchEphemeralStorageIsEvicted: by what it writes into its root
// file system, by its logs, by the files that podd makes for it, by all together; in the kubelet's words, while the one that
// keeps its limit runs on.
func TestAPodThatTakesTooMuchEphemeralStorageIsEvicted(t *testing.T) {
	e := begin(t)
	limited := func(name, limit, script string) string {
		return replaced(e, e.podOf(name, "echo x >> /out/"+name+".starts; "+script+"; : > /out/"+name+"; ${REST}"),
			"    volumeMounts:", "    resources: {limits: {ephemeral-storage: "+limit+"}}\n    volumeMounts:")
	}
	write := func(mib string) string { return "dd if=/dev/zero of=/file bs=1M count=" + mib }
	ofPod := "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. "
	two := limited("two", "50Mi", write("1"))
	two = replaced(e, two, "  - name: main\n", `  - name: side
    image: `+testnode.ImageBusybox+`
    command: [/bin/sh, -c, "`+write("12")+`; while :; do sleep 3600; done"]
    resources: {limits: {ephemeral-storage: 10Mi}}
  - name: main
`)
	together := replaced(e, limited("together", "10Mi", write("6")+"; dd if=/dev/zero of=/data/file bs=1M count=6"),
		"mountPath: /out}]", "mountPath: /out}, {name: data, mountPath: /data}]") + "  - name: data\n    emptyDir: {}\n"
	evicted := map[string]string{"layer": ofPod, "logs": ofPod, "message": ofPod, "resolv": ofPod, "hostname": ofPod, "together": ofPod, "two": `Container side exceeded its local ephemeral storage limit "10Mi". `}
	e.write("layer.yaml", limited("layer", "10Mi", write("12")))
	e.write("logs.yaml", limited("logs", "10Mi", "dd if=/dev/urandom bs=1M count=9 | hexdump -v"))
	into := func(file string) string { return "dd if=/dev/zero of=" + file + " bs=1M count=12" }
	e.write("message.yaml", limited("message", "10Mi", into("/dev/termination-log")))
	e.write("resolv.yaml", limited("resolv", "10Mi", into("/etc/resolv.conf")))
	e.write("hostname.yaml", limited("hostname", "10Mi", into("/etc/hostname")))
	e.write("together.yaml", together)
	e.write("two.yaml", two)
	e.write("little.yaml", limited("little", "10Mi", write("8")))
	for name, message := range evicted {
		e.waitPod(name, "evicted", func(p *v1.Pod) error {
			if p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" || p.Status.Message != message {
				return errors.New(describe(p))
			}
			return nil
		})
		e.event(name, "Evicted", strings.TrimSpace(message))
	}
	e.ready("little")
	if n := e.starts("little"); n != 1 {
		t.Errorf("the pod that keeps its limit has started %d times, want once", n)
	}
}

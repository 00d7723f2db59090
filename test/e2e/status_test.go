package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestRetryEndsABackOff: once the cause is mended nobody has to wait for
// the back-off (kubernetes/kubernetes#57291).
func TestRetryEndsABackOff(t *testing.T) {
	e := begin(t)
	e.write("crash.yaml", e.podOf("crash", "if [ -e /out/mended ]; then : > /out/works; ${REST}; fi; exit 1"))
	e.waitPod("crash", "held back after a restart", func(p *v1.Pod) error {
		if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].RestartCount != 1 || c[0].State.Waiting == nil || c[0].State.Waiting.Reason != "CrashLoopBackOff" {
			return errors.New(describe(p))
		}
		return nil
	})
	if err := os.WriteFile(filepath.Join(e.out, "mended"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	if said := e.run("retry", "crash"); !strings.Contains(said, "retrying default/crash-"+e.podd.NodeName()) {
		t.Errorf("podd retry says %q", said)
	}
	works := e.mark("works")
	e.atMost("the first instruction after podd retry", works.Sub(asked), 20)
	e.ready("crash")
}

// TestPsEventsTellsAllOfOnePod: its containers, its warnings and what happened
// to it.
func TestPsEventsTellsAllOfOnePod(t *testing.T) {
	e := begin(t)
	text := replaced(e, e.told("odd", "restartPolicy: OnFailure",
		[]string{"name: setup\ncommand: [/bin/true]", "name: proxy\nrestartPolicy: Always\ncommand: [/bin/sh, -c, \"${REST}\"]"},
		[]string{"name: main\ncommand: [/bin/sh, -c, \"${REST}\"]", "name: once\ncommand: [/bin/sh, -c, 'exit 3']"}),
		"metadata: {name: odd}", "metadata: {name: odd, annotations: {podd/restart-backoff-max: soon}}")
	e.write("odd.yaml", text)
	e.waitPod("odd", "up, and crashing in part", func(p *v1.Pod) error {
		all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
		if len(all) != 4 || all[1].State.Running == nil || all[2].State.Running == nil || all[3].State.Waiting == nil || all[3].RestartCount != 1 {
			return errors.New(describe(p))
		}
		return nil
	})
	said := e.run("ps", "--events", "odd")
	for _, want := range []string{
		"2/3", "CrashLoopBackOff", "init setup: Completed: exited with code 0", "sidecar proxy: running for", "main: running for",
		"once (1 restart): CrashLoopBackOff: exited with code 3", "Ready is False", "containers with unready status: [once]",
		`1 warning:`, `metadata.annotations[podd/restart-backoff-max]: "soon" is not a duration`,
		"ManifestWarning", "Back-off restarting failed container once", "(x2 over",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("podd ps --events has no %q:\n%s", want, said)
		}
	}
}

// TestAMegabyteOfTerminationMessagesIsCut: 4 KiB of each container, 12 KiB of the
// pod, whether it comes from the file or the log.
func TestAMegabyteOfTerminationMessagesIsCut(t *testing.T) {
	e := begin(t)
	const flood = "head -c 1048576 /dev/zero | tr '\\\\0' x"
	var containers []string
	for i := range 2 {
		containers = append(containers,
			fmt.Sprintf("name: file%d\ncommand: [/bin/sh, -c, \"%s > /dev/termination-log; exit 1\"]", i, flood),
			fmt.Sprintf("name: log%d\nterminationMessagePolicy: FallbackToLogsOnError\ncommand: [/bin/sh, -c, \"%s; exit 1\"]", i, flood))
	}
	e.write("flood.yaml", e.told("flood", "restartPolicy: Never", nil, containers))
	p := e.waitPod("flood", "failed", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed {
			return errors.New(describe(p))
		}
		return nil
	})
	total := 0
	for _, cs := range p.Status.ContainerStatuses {
		n := len(cs.State.Terminated.Message)
		if total += n; n == 0 || n > 4096 {
			t.Errorf("%s: got a message of %d bytes, want 1 to 4096", cs.Name, n)
		}
	}
	if total > 12<<10 {
		t.Errorf("got %d bytes in all, want at most 12 KiB", total)
	}
}

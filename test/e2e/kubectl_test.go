package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/console"
	"podd/test/e2e/testnode"
)

// kubectl returns a command of upstream's kubectl as an administrator.
func (m *member) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	m.Helper()
	binary := os.Getenv("PODD_TEST_KUBECTL")
	if binary == "" {
		m.Skip("PODD_TEST_KUBECTL is not set: make test-all sets it to upstream's kubectl")
	}
	config := filepath.Join(m.podd.Dir, "admin.kubeconfig")
	if err := m.server.Kubeconfig(config); err != nil {
		m.Fatal(err)
	}
	c := exec.CommandContext(ctx, binary, append([]string{"--kubeconfig=" + config, "--cache-dir=" + m.podd.Dir}, args...)...)
	c.WaitDelay = 10 * time.Second
	return c
}

// says runs kubectl to its end and returns what it prints.
func (m *member) says(args ...string) (stdout string, err error) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), patience)
	defer cancel()
	c := m.kubectl(ctx, args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err = c.Run(); err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), err
}

// goesOn starts kubectl and ends it with the test; what it writes is in the result.
func (m *member) goesOn(args ...string) *console.Output {
	m.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.Context()))
	out := &console.Output{}
	c := m.kubectl(ctx, args...)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		cancel()
		m.Fatal(err)
	}
	m.Cleanup(func() { cancel(); _ = c.Wait() })
	return out
}

func TestKubectlRunsCommandsInAPodAndReadsItsLogs(t *testing.T) {
	m := join(t)
	m.bind(replaced(m, m.podOf("shell", "echo hello; : > /out/shell; trap 'exit 0' TERM; while read line; do echo got $line; done; ${REST}"),
		"    image:", "    stdin: true\n    image:"))
	m.shown("shell", "ready", isReady)
	if out, err := m.says("exec", "shell", "--", "sh", "-c", "echo out; echo err >&2; cat /proc/1/comm"); err != nil || out != "out\nsh\n" {
		t.Errorf("exec: got %q, %v", out, err)
	}
	var exit *exec.ExitError
	if _, err := m.says("exec", "shell", "--", "sh", "-c", "exit 7"); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("exec of a command that fails: got %v, want its exit code, 7", err)
	}
	if _, err := m.says("exec", "shell", "-c", "nobody", "--", "true"); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("exec in no container: got %v", err)
	}
	in := m.kubectl(t.Context(), "exec", "-i", "shell", "--", "cat")
	in.Stdin = strings.NewReader(strings.Repeat("0123456789abcdef", 1<<16))
	if out, err := in.Output(); err != nil || len(out) != 1<<20 {
		t.Errorf("a mebibyte through cat: got %d bytes, %v", len(out), err)
	}

	log := m.goesOn("logs", "-f", "shell")
	m.has("logs -f begins", log, "hello\n")
	attach := m.kubectl(t.Context(), "attach", "-i", "shell")
	stdin, err := attach.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	attached := &console.Output{}
	attach.Stdout, attach.Stderr = attached, attached
	if err := attach.Start(); err != nil {
		t.Fatal(err)
	}
	m.eventually("an attached client is heard", func(context.Context) error { // a line that was sent before it was attached is lost
		if _, err := io.WriteString(stdin, "ping\n"); err != nil {
			return err
		}
		if !strings.Contains(log.String(), "got ping") || !strings.Contains(attached.String(), "got ping") {
			return fmt.Errorf("the log is %q, attach has %q", log.String(), attached.String())
		}
		return nil
	})
	_ = attach.Process.Kill()
	_ = attach.Wait()
	if out, err := m.says("logs", "--tail=1", "shell"); err != nil || out != "got ping\n" {
		t.Errorf("logs --tail=1: got %q, %v", out, err)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("copied"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.says("cp", file, "shell:/tmp/there"); err != nil {
		t.Error(err)
	}
	if _, err := m.says("cp", "shell:/tmp/there", file+".back"); err != nil {
		t.Error(err)
	}
	if back, err := os.ReadFile(file + ".back"); err != nil || string(back) != "copied" {
		t.Errorf("cp there and back: got %q, %v", back, err)
	}
	if out, err := m.says("delete", "pod", "shell", "--wait=true"); err != nil || !strings.Contains(out, "deleted") {
		t.Errorf("delete: got %q, %v", out, err)
	}
	m.has("logs -f ends with its pod", log, "got ping")
}

func TestKubectlForwardsPortsAndDescribes(t *testing.T) {
	m := join(t)
	m.bind(withFields(m.podOf("web", "echo page > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"),
		"readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}"))
	m.shown("web", "ready", isReady)
	forward := m.goesOn("port-forward", "web", ":8080")
	m.has("port-forward listens", forward, "Forwarding from 127.0.0.1:")
	_, rest, _ := strings.Cut(forward.String(), "127.0.0.1:")
	port, _, _ := strings.Cut(rest, " ")
	for range 3 {
		answer, err := http.Get("http://127.0.0.1:" + port + "/index.html")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || string(body) != "page\n" {
			t.Errorf("through the forwarded port: got %q, %v", body, err)
		}
	}
	if out, err := m.says("describe", "pod", "web"); err != nil || !strings.Contains(out, "Started") || !strings.Contains(out, "Running") {
		t.Errorf("describe: got %q, %v", out, err)
	}
	if out, err := m.says("get", "node", m.podd.NodeName(), "-o", "wide"); err != nil || !strings.Contains(out, " Ready ") || !strings.Contains(out, "containerd://") {
		t.Errorf("get node: got %q, %v", out, err)
	}
	if _, err := m.says("cordon", m.podd.NodeName()); err != nil {
		t.Error(err)
	}
	if out, err := m.says("drain", m.podd.NodeName(), "--force", "--ignore-daemonsets"); err != nil || !strings.Contains(out, "drained") {
		t.Errorf("drain: got %q, %v", out, err)
	}
	m.gone("web")
}

// boundHere has kubectl run bind its pod, which is for a scheduler to do.
func (m *member) boundHere() string {
	return `--overrides={"apiVersion": "v1", "spec": {"nodeName": "` + m.podd.NodeName() + `", "terminationGracePeriodSeconds": 3600}}`
}

func TestKubectlRunsAPodAndWatchesItsLife(t *testing.T) {
	m := join(t)
	m.bind(m.resting("first"))
	m.shown("first", "ready", isReady)
	watch := m.goesOn("get", "pods", "--watch", "--no-headers")
	// From here on nothing that happens escapes it.
	m.has("get -w begins with what there is", watch, "first")
	if out, err := m.says("run", "deaf", "--image="+testnode.ImageBusybox, "--image-pull-policy=Never", m.boundHere(), "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"); err != nil || out != "pod/deaf created\n" {
		t.Fatalf("run: got %q, %v", out, err)
	}
	m.shown("deaf", "ready", isReady)
	if out, err := m.says("describe", "node", m.podd.NodeName()); err != nil || !strings.Contains(out, "kubelet is posting ready status") || !strings.Contains(out, "deaf") {
		t.Errorf("describe node: got %q, %v", out, err)
	}
	// It would go on for an hour.
	if out, err := m.says("delete", "pod", "deaf", "--grace-period=1"); err != nil || !strings.Contains(out, "deleted") {
		t.Errorf("delete: got %q, %v", out, err)
	}
	m.gone("deaf")
	m.eventually("get -w shows its life", func(context.Context) error {
		rest := watch.String()
		for _, state := range []string{"Pending", "ContainerCreating", "1/1", "Running", "Terminating"} {
			_, after, ok := strings.Cut(rest, state)
			if !ok {
				return fmt.Errorf("got %q, want %s in its turn", watch, state)
			}
			rest = after
		}
		return nil
	})
	m.delete("first")
	m.gone("first")
}

func TestAShellInKubectlsTerminal(t *testing.T) {
	m := join(t)
	m.bind(m.resting("web"))
	m.shown("web", "ready", isReady)
	m.shell(m.kubectl(t.Context(), "exec", "-it", "web", "--", "sh"), 5)
	// The container's own terminal, to which kubectl is attached.
	m.shell(m.kubectl(t.Context(), "run", "shell", "-it", "--rm", "--restart=Never", "--image="+testnode.ImageBusybox, "--image-pull-policy=Never", m.boundHere(), "--", "sh"), 5)
	m.delete("web")
	m.gone("web", "shell")
}

func TestAnEphemeralContainerIsStartedInARunningPod(t *testing.T) {
	m := join(t)
	m.bind(m.resting("web"))
	m.shown("web", "ready", isReady)
	if _, err := m.says("debug", "web", "--image="+testnode.ImageBusybox, "--image-pull-policy=Never", "--container=probe", "--profile=general", "--", "sh", "-c", "echo debugging; sleep 1"); err != nil {
		t.Fatal(err)
	}
	p := m.shown("web", "with an ephemeral container that has ended", func(p *v1.Pod) error {
		for _, c := range p.Status.EphemeralContainerStatuses {
			if c.Name == "probe" && c.State.Terminated != nil {
				return nil
			}
		}
		return fmt.Errorf("its ephemeral containers are %+v", p.Status.EphemeralContainerStatuses)
	})
	if p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the pod was restarted")
	}
	if out, err := m.says("logs", "web", "-c", "probe"); err != nil || out != "debugging\n" {
		t.Errorf("its log: got %q, %v", out, err)
	}
	m.delete("web")
	m.gone("web")
}

func TestResourcesAndLabelsOfARunningPodAreChangedInPlace(t *testing.T) {
	m := join(t)
	text := m.podOf("web", "for tier in back front; do until grep -q tier=.$tier /about/labels; do sleep 0.05; done; : > /out/$tier; done; ${REST}")
	text = replaced(m, text, "    image:", "    resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}\n    image:")
	text = replaced(m, text, "    volumeMounts: [", "    volumeMounts: [{name: about, mountPath: /about}, ")
	m.bind(replaced(m, text, "  volumes:\n", "  volumes:\n  - name: about\n    downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}\n"))
	before := m.shown("web", "ready", isReady)
	if _, err := m.says("patch", "pod", "web", "--subresource=resize", "-p", `{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "60m"}, "limits": {"cpu": "200m"}}}]}}`); err != nil {
		t.Fatal(err)
	}
	after := m.shown("web", "with its new limit in force", func(p *v1.Pod) error {
		if c := firstContainer(p); c.Resources == nil || c.Resources.Limits.Cpu().String() != "200m" || c.AllocatedResources.Cpu().String() != "60m" {
			return fmt.Errorf("its resources are %+v", c.Resources)
		}
		return nil
	})
	if now := after.Status.ContainerStatuses[0]; now.RestartCount != 0 || now.ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the container is another one: %+v", now)
	}
	if after.Status.ObservedGeneration != after.Generation || after.Generation == before.Generation {
		t.Errorf("observed generation %d of %d, before %d", after.Status.ObservedGeneration, after.Generation, before.Generation)
	}
	if _, err := m.says("label", "pod", "web", "tier=back"); err != nil {
		t.Fatal(err)
	}
	m.mark("back")
	edit := m.kubectl(t.Context(), "edit", "pod", "web")
	edit.Env = append(os.Environ(), "KUBE_EDITOR=sed -i 's/tier: back/tier: front/'")
	if out, err := edit.CombinedOutput(); err != nil || string(out) != "pod/web edited\n" {
		t.Errorf("edit: got %q, %v", out, err)
	}
	m.mark("front")
	if _, err := m.says("delete", "pod", "web", "--grace-period=1"); err != nil {
		t.Error(err)
	}
	m.gone("web")
}

func TestACriticalPodOfTheClusterTakesTheRoomOfAnother(t *testing.T) {
	m := joinWith(t, func(config map[string]any) {
		config["kubeReserved"] = map[string]any{"cpu": fmt.Sprintf("%dm", 1000*runtime.NumCPU()-300)}
		config["enforceNodeAllocatable"] = []string{"none"}
	})
	asking := func(manifest, cpu string) string {
		return replaced(m, manifest, "    image:", "    resources: {requests: {cpu: "+cpu+"}}\n    image:")
	}
	m.bind(asking(m.resting("usual"), "200m"))
	m.shown("usual", "ready", isReady)
	m.bind(asking(m.resting("late"), "200m"))
	if p := m.shown("late", "rejected", isIn(v1.PodFailed)); p.Status.Reason != "OutOfcpu" || !strings.Contains(p.Status.Message, "requested: 200, used: 200, capacity: 300") {
		t.Errorf("got %s: %s", p.Status.Reason, p.Status.Message)
	}
	m.bind(asking(m.podOf("critical", ": > /out/critical; ${REST}", "priorityClassName: system-node-critical"), "200m"))
	m.shown("critical", "ready", isReady)
	if p := m.shown("usual", "ended", isIn(v1.PodFailed)); p.Status.Reason != "Preempting" || condition(p, v1.DisruptionTarget) != v1.ConditionTrue {
		t.Errorf("got %s: %s, conditions %+v", p.Status.Reason, p.Status.Message, p.Status.Conditions)
	}
	m.delete("usual", "late", "critical")
	m.gone("usual", "late", "critical")
}

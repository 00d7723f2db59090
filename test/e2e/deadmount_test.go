package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/test/e2e/testnode"
)

// served is a mount whose server may die.
type served struct {
	*env
	path   string
	server *exec.Cmd
	says   *bufio.Reader
}

// serve mounts it at path, which must be a directory. With the name of a program, its
// processes are held.
func (e *env) serve(path string, hold ...string) *served {
	e.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		e.Skipf("no FUSE here: %v", err)
	}
	s := &served{env: e, path: path, server: exec.Command(fuseServer, append([]string{path}, hold...)...)}
	s.server.Stderr = os.Stderr
	out, err := s.server.StdoutPipe()
	if err == nil {
		err = s.server.Start()
	}
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(s.gone)
	var probe unix.Statfs_t // the first request, whatever its answer
	_ = unix.Statfs(path, &probe)
	s.says = bufio.NewReader(out)
	s.said("ready")
	return s
}

// said waits for the server's next word.
func (s *served) said(word string) {
	s.Helper()
	defer time.AfterFunc(patience, func() { _ = s.server.Process.Kill() }).Stop()
	if line, err := s.says.ReadString('\n'); err != nil || line != word+"\n" {
		s.Fatalf("the file server said %q (%v), want %q", line, err, word)
	}
}

// dies has everything hang that is asked of the mount.
func (s *served) dies() {
	s.Helper()
	if err := s.server.Process.Signal(unix.SIGUSR1); err != nil {
		s.Fatal(err)
	}
	s.said("silent")
}

// gone ends the server: what was asked fails, and so does what is asked now.
func (s *served) gone() {
	if s.server.ProcessState != nil {
		return
	}
	_ = s.server.Process.Kill()
	_ = s.server.Wait()
	for unix.Unmount(s.path, unix.MNT_DETACH) == nil {
	}
}

// withMount adds a hostPath to the manifest of a pod.
func withMount(text, path, kind, mount string) string {
	text = replaced(nil, text, "mountPath: /out}]", "mountPath: /out}, {name: dead, mountPath: /dead"+mount+"}]")
	return text + "  - name: dead\n    hostPath: {path: " + path + ", type: \"" + kind + "\"}\n"
}

// othersGoOn starts and removes another pod, in its normal time.
func (e *env) othersGoOn(when string) {
	e.Helper()
	name := "fine-" + when
	at := time.Now()
	e.started(name)
	e.ready(name)
	e.remove(name + ".yaml")
	e.ended(name)
	e.atMost("the life of another pod "+when, time.Since(at), 20)
}

// ended waits until a pod is not listed any more.
func (e *env) ended(name string) {
	e.Helper()
	e.eventually(name+" goes", func(ctx context.Context) error {
		if p, err := e.pod(ctx, name); err == nil {
			return errors.New(describe(p))
		}
		return nil
	})
}

// TestADeadMountHoldsUpItsOwnPodAloneAndShows: a file server dies while pods use it, and
// others are to. podd starts, shows and ends every other pod in its normal time, also
// after its own restart; those that wait say for what and since when, and end; when the
// server is given up nothing is left.
func TestADeadMountHoldsUpItsOwnPodAloneAndShows(t *testing.T) {
	e := begin(t)
	path := filepath.Join(e.podd.Dir, "served")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	server := e.serve(path)
	e.write("user.yaml", withMount(e.podOf("user", "cat /dead/file > /out/.user; mv /out/.user /out/user; while :; do cat /dead/file; done >/dev/null"), path, "Directory", ""))
	e.mark("user")
	e.ready("user")
	e.write("idle.yaml", withMount(e.resting("idle"), path, "Directory", ", subPath: sub"))
	e.ready("idle")
	server.dies()

	e.write("typed.yaml", withMount(e.resting("typed"), path, "Directory", ""))
	e.write("sub.yaml", withMount(e.resting("sub"), path, "", ", subPath: sub"))
	e.write("plain.yaml", withMount(e.resting("plain"), path, "", ""))
	e.shows(`waiting for volume "dead" since `)
	e.shows(`the setup of volume "dead"`)
	if text := e.run("describe", "typed"); !strings.Contains(text, `waiting for volume "dead" since `) || !strings.Contains(text, "fuse.fuseserver") {
		t.Errorf("podd describe does not say what is waited for:\n%s", text)
	}
	e.othersGoOn("meanwhile")

	e.kill()
	e.start()
	e.othersGoOn("after-a-restart")
	e.shows(`waiting for volume "dead" since `)

	e.remove("user.yaml", "idle.yaml", "typed.yaml", "sub.yaml", "plain.yaml")
	for _, name := range []string{"user", "idle", "typed", "sub"} {
		e.ended(name)
	}
	e.shows("deletes nothing until then")
	e.othersGoOn("after-their-end")
	server.gone()
	e.ended("plain")
	e.eventually("nothing is pending", func(ctx context.Context) error {
		l, err := e.listing(ctx)
		if err == nil && len(l.Problems) > 0 {
			err = fmt.Errorf("%+v", l.Problems)
		}
		return err
	})
}

// TestRuntimeStopDoesNotWaitForADeadMount: it ends podd, which hangs in it, and the
// pods, and what it must leave goes with the second attempt, when the server is gone.
func TestRuntimeStopDoesNotWaitForADeadMount(t *testing.T) {
	e := prepare(t)
	// The runtime is podd's own, so that it notes what it makes.
	if err := e.node.Containerd.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(e.podd.Dir, "served")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	server := e.serve(path)
	e.start()
	e.write("user.yaml", withMount(e.podOf("user", "cat /dead/file > /out/.user; mv /out/.user /out/user; while :; do cat /dead/file; done >/dev/null"), path, "Directory", ""))
	e.mark("user")
	e.ready("user")
	server.dies()
	e.write("typed.yaml", withMount(e.resting("typed"), path, "Directory", ""))
	e.shows(`waiting for volume "dead" since `)
	e.mayEnd = true
	at := time.Now()
	own := []string{"--root-dir", e.node.Root(), "--state-dir", e.node.State()}
	out, err := e.stopAll(own...)
	t.Logf("with a dead mount: %v after %v\n%s", err, time.Since(at), out)
	if took := time.Since(at); took > patience {
		t.Errorf("it took %v", took)
	}
	server.gone()
	if out, err := e.stopAll(own...); err != nil {
		t.Errorf("once the server is gone: %v\n%s", err, out)
	}
	if left, err := os.ReadDir(filepath.Join(e.node.Root(), "pods")); err == nil && len(left) > 0 {
		t.Errorf("directories of pods are left: %v", left)
	}
	e.remove("user.yaml", "typed.yaml")
	e.start()
}

// TestADeadMountHoldsUpNoStatistics: whoever asks gets those of the others at once.
func TestADeadMountHoldsUpNoStatistics(t *testing.T) {
	e := begin(t)
	text := replaced(e, e.podOf("web", "dd if=/dev/zero of=/data/file bs=1M count=8; dd if=/dev/zero of=/file bs=1M count=4; : > /out/web; ${REST}"),
		"mountPath: /out}]", "mountPath: /out}, {name: data, mountPath: /data}, {name: dead, mountPath: /dead}, {name: memory, mountPath: /memory}]") +
		"  - name: data\n    emptyDir: {}\n  - name: dead\n    emptyDir: {}\n  - name: memory\n    emptyDir: {medium: Memory}\n"
	e.write("web.yaml", text)
	e.mark("web")
	p := e.ready("web")
	server := e.serve(filepath.Join(e.node.Root(), "pods", string(p.UID), "volumes/kubernetes.io~empty-dir/dead"))
	server.dies()
	for range 3 {
		at := time.Now()
		body, err := testnode.GetLoopback(t.Context(), e.podd.ReadOnlyPort(), "/stats/summary")
		if took := time.Since(at); err != nil || took > 10*time.Second {
			t.Fatalf("it took %v: %v", took, err)
		}
		var s stats.Summary
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			t.Fatal(err)
		}
		checkSummary(t, p, s)
	}
	e.remove("web.yaml")
	e.ended("web")
	server.gone()
}

// checkSummary: of web, which wrote 8 MiB and 4 MiB.
func checkSummary(t *testing.T, p *v1.Pod, s stats.Summary) {
	t.Helper()
	if s.Node.Fs == nil || *s.Node.Fs.CapacityBytes == 0 || s.Node.StartTime.IsZero() || len(s.Pods) != 1 || s.Pods[0].PodRef.UID != string(p.UID) {
		t.Fatalf("got %+v", s)
	}
	web, used := s.Pods[0], map[string]uint64{}
	for _, v := range web.VolumeStats {
		used[v.Name] = *v.UsedBytes
	}
	_, dead := used["dead"]
	_, memory := used["memory"]
	about := func(n uint64, mib uint64) bool { return n >= mib<<20 && n < (mib+1)<<20 }
	if dead || !memory || len(used) != 2 || !about(used["data"], 8) {
		t.Errorf("volumes: got %v, want data with 8 MiB and memory", used)
	}
	if c := web.Containers; len(c) != 1 || c[0].Rootfs == nil || !about(*c[0].Rootfs.UsedBytes, 4) || c[0].Logs == nil {
		t.Errorf("containers: got %+v, want one that wrote 4 MiB", c)
	}
	if web.EphemeralStorage == nil || !about(*web.EphemeralStorage.UsedBytes, 12) {
		t.Errorf("ephemeral storage: got %+v, want 12 MiB", web.EphemeralStorage)
	}
}

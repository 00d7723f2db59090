package cri_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/critest"
	"podd/internal/pod"
)

func TestExecSync(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	id := r.start(t, p, r.sandbox(t, p, 0), 0)
	r.srv.ScriptExecFunc("app", func(cmd []string) critest.Exec {
		switch cmd[0] {
		case "false":
			return critest.Exec{Code: 1, Stdout: "out ", Stderr: "err"}
		case "flood":
			return critest.Exec{Stdout: strings.Repeat("x", 3<<20), Stderr: "never seen"}
		case "drown":
			return critest.Exec{Stdout: strings.Repeat("x", 5<<20)}
		case "missing":
			return critest.Exec{Error: "exec: not there"}
		default:
			return critest.Exec{Takes: time.Hour, Stdout: "too late"}
		}
	})
	got, err := r.ExecSync(t.Context(), id, []string{"false"}, time.Second)
	if err != nil || got.ExitCode != 1 || string(got.Output) != "out err" {
		t.Errorf("a command that fails: got %d %q, %v", got.ExitCode, got.Output, err)
	}
	got, err = r.ExecSync(t.Context(), id, []string{"flood"}, time.Second)
	if err != nil || string(got.Output) != strings.Repeat("x", 10<<10) {
		t.Errorf("a command that floods: got %d bytes, %v, want 10 KiB", len(got.Output), err)
	}
	if _, err = r.ExecSync(t.Context(), id, []string{"drown", "me"}, time.Second); err == nil || err.Error() != `"drown me" wrote more than 4 MiB` {
		t.Errorf("a command that drowns its reader: got %v", err)
	}
	if _, err = r.ExecSync(t.Context(), id, []string{"missing"}, time.Second); err == nil || !strings.Contains(err.Error(), "exec: not there") {
		t.Errorf("a command that is not there: got %v", err)
	}
	began := time.Now()
	_, err = r.ExecSync(t.Context(), id, []string{"sleep", "99"}, 10*time.Millisecond)
	if took := time.Since(began); !errors.Is(err, pod.ErrTimeout) || took < time.Second {
		t.Errorf("a command that outlives its timeout (rounded up to a second): got %v after %v", err, took)
	}
	if want := `command timed out: "sleep 99" timed out after 10ms`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = r.ExecSync(ctx, id, []string{"sleep"}, 0); !errors.Is(err, context.Canceled) || errors.Is(err, pod.ErrTimeout) {
		t.Errorf("a caller that goes: got %v", err)
	}
	if _, err = r.ExecSync(t.Context(), "none", []string{"true"}, time.Second); !errors.Is(err, pod.ErrNotFound) {
		t.Errorf("a container that is not there: got %v", err)
	}
}

// A process that the command leaves behind holds its output: the answer never
// comes, and the call ends nevertheless.
func TestExecSyncEndsWhenTheRuntimeDoesNotAnswer(t *testing.T) {
	r := newRig(t)
	r.timeout = 100 * time.Millisecond
	r.dial(t)
	p := aPod("web")
	id := r.start(t, p, r.sandbox(t, p, 0), 0)
	r.srv.ScriptExec("app", critest.Exec{Takes: time.Hour, IgnoreTimeout: true})
	if _, err := r.ExecSync(t.Context(), id, []string{"sh"}, time.Second); !errors.Is(err, pod.ErrTimeout) {
		t.Errorf("got %v", err)
	}
}

func TestUpdateContainerIsSeenByTheNextObservation(t *testing.T) {
	r := newRig(t)
	p := aPod("web", func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi"), v1.ResourceCPU: resource.MustParse("1")}
	})
	id := r.start(t, p, r.sandbox(t, p, 0), 0)
	if got := r.observe(t, p.UID).LatestContainer("app").Resources; got == nil || got.MemoryLimitInBytes != 64<<20 || got.CPUQuota != 100_000 || got.CPUPeriod != 100_000 || got.CPUShares != 1024 {
		t.Fatalf("before: got %+v", got)
	}
	p = p.DeepCopy()
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("96Mi"), v1.ResourceCPU: resource.MustParse("500m")}
	if err := r.UpdateContainer(t.Context(), id, p, &p.Spec.Containers[0]); err != nil {
		t.Fatal(err)
	}
	if got := r.observe(t, p.UID).LatestContainer("app").Resources; got == nil || got.MemoryLimitInBytes != 96<<20 || got.CPUQuota != 50_000 || got.CPUShares != 512 {
		t.Errorf("after: got %+v", got)
	}
	if err := r.UpdateContainer(t.Context(), "none", p, &p.Spec.Containers[0]); !errors.Is(err, pod.ErrNotFound) {
		t.Errorf("a container that is not there: got %v", err)
	}
}

// TestTheRuntimeHearsWhatAPodHasFromNowOn, and may reject it. One that does not know the call, or
// the sandbox, has nothing to say.
func TestTheRuntimeHearsWhatAPodHasFromNowOn(t *testing.T) {
	r := newRig(t)
	p := aPod("web", func(p *v1.Pod) { p.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")} })
	id := r.sandbox(t, p, 0).ID
	update := func(id string) error {
		return r.UpdateSandbox(t.Context(), id, p, pod.ContainerResources{CPUShares: 512, CPUQuota: 50_000, CPUPeriod: 100_000, MemoryLimitInBytes: 64 << 20})
	}
	if err := update(id); err != nil {
		t.Fatal(err)
	}
	calls := r.srv.Calls()
	sent, _ := calls[len(calls)-1].Request.(*runtimeapi.UpdatePodSandboxResourcesRequest)
	want := &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 50_000, CpuPeriod: 100_000, MemoryLimitInBytes: 48 << 20}
	if sent.GetPodSandboxId() != id || !proto.Equal(sent.GetResources(), want) || sent.GetOverhead().GetMemoryLimitInBytes() != 16<<20 {
		t.Errorf("got %v, want %v and an overhead of 16 MiB", sent, want)
	}
	for _, tt := range []struct {
		code     codes.Code
		text     string
		rejected bool
	}{
		{codes.Unimplemented, "unknown method UpdatePodSandboxResources", false},
		{codes.Unknown, "not implemented yet", false}, // containerd 2.2
		{codes.NotFound, "failed to find sandbox", false},
		{codes.Unknown, "NRI sandbox update failed: too much", true},
	} {
		r.srv.FailNth("UpdatePodSandboxResources", 1, tt.code, tt.text)
		if err := update(id); (err != nil) != tt.rejected || err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: got %v", tt.text, err)
		}
	}
	if err := update("none"); err != nil {
		t.Errorf("a sandbox that is not there: got %v", err)
	}
}

func TestReopenContainerLogMakesTheFileAnew(t *testing.T) {
	r := newRig(t)
	p := aPod("web")
	id := r.start(t, p, r.sandbox(t, p, 0), 0)
	log := r.observe(t, p.UID).LatestContainer("app").LogPath
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	if err := r.ReopenContainerLog(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Clean(log)); err != nil {
		t.Error(err)
	}
	r.srv.Exit("app", 0)
	if err := r.ReopenContainerLog(t.Context(), id); err == nil {
		t.Error("a container that does not run: got no error")
	}
}

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podd/cri"
	"podd/inspect"
	"podd/internal/pod"
)

// inspector compares the settings that the runtime was given for a pod with its manifest.
type inspector struct {
	runtime cri.Version
	client  interface {
		Inspect(ctx context.Context, id string) (cri.Inspection, error)
	}
}

// Inspect implements server.Runtime.
func (a serverRuntime) Inspect(ctx context.Context, p *v1.Pod, container string) (any, error) {
	return inspector{a.facts.Runtime, a.client}.pod(ctx, p, container)
}

// pod inspects all containers in turn, or the named one.
func (i inspector) pod(ctx context.Context, p *v1.Pod, container string) (inspect.Pod, error) {
	out := inspect.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Runtime: i.runtime.Name + " " + i.runtime.Version, Settings: inspect.Settings(p)}
	for c := range pod.ContainerSpecs(&p.Spec) {
		if container != "" && c.Name != container {
			continue
		}
		one, err := i.container(ctx, p, c)
		if err != nil {
			return out, err
		}
		out.Containers = append(out.Containers, one)
	}
	return out, nil
}

func (i inspector) container(ctx context.Context, p *v1.Pod, c *v1.Container) (inspect.Container, error) {
	out := inspect.Container{Name: c.Name, ID: containerID(p, c.Name)}
	if out.ID == "" {
		out.Message = "there is no container yet: `podd describe` says what it waits for"
		return out, nil
	}
	got, err := i.client.Inspect(ctx, out.ID)
	switch {
	case errors.Is(err, pod.ErrNotFound):
		out.Message = "the runtime does not have this container any more"
		return out, nil
	case err != nil:
		return out, err
	}
	out.State, out.PID = got.State.String(), got.PID
	if got.Spec == nil {
		out.Message = fmt.Sprintf("%s does not report what it passed to its OCI runtime (a verbose status without runtimeSpec): there is nothing to compare", i.runtime.Name)
		return out, nil
	}
	in := inspect.Input{Pod: p, Container: c, Spec: got.Spec}
	if got.State == pod.ContainerRunning {
		in.IsHostNamespace = isNodeNamespace // a dead container's PID may have been reused
	}
	out.Rows, out.Spec = inspect.Compare(in), inspect.Masked(in)
	return out, nil
}

// containerID returns the ID of the newest container; empty if its status has none.
func containerID(p *v1.Pod, name string) string {
	if c := pod.ContainerStatus(&p.Status, name); c != nil {
		return pod.RuntimeID(c.ContainerID)
	}
	return ""
}

// namespaceFiles are the names in /proc/<pid>/ns.
var namespaceFiles = map[specs.LinuxNamespaceType]string{
	specs.PIDNamespace: "pid", specs.NetworkNamespace: "net", specs.MountNamespace: "mnt", specs.IPCNamespace: "ipc",
	specs.UTSNamespace: "uts", specs.UserNamespace: "user", specs.CgroupNamespace: "cgroup", specs.TimeNamespace: "time",
}

// isNodeNamespace reports whether a namespace is podd's own, which is the node's. known is
// false if the namespace's process has exited.
func isNodeNamespace(n specs.LinuxNamespace) (own, known bool) {
	own, known = sameFile(n.Path, "/proc/self/ns/"+namespaceFiles[n.Type])
	return own, known
}

func sameFile(a, b string) (same, known bool) {
	one, err := os.Stat(a)
	if err != nil {
		return false, false
	}
	other, err := os.Stat(b)
	if err != nil {
		return false, false
	}
	x, y := one.Sys().(*syscall.Stat_t), other.Sys().(*syscall.Stat_t)
	return x.Dev == y.Dev && x.Ino == y.Ino, true
}

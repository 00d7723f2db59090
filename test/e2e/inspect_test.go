package e2e

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"podd/inspect"
)

// inspected is what podd inspect says of a pod's containers.
func (e *env) inspected(args ...string) map[string]inspect.Container {
	e.Helper()
	var answer inspect.Pod
	if err := json.Unmarshal([]byte(e.run(append([]string{"inspect", "-o", "json"}, args...)...)), &answer); err != nil {
		e.Fatal(err)
	}
	all := map[string]inspect.Container{}
	for _, c := range answer.Containers {
		if c.Spec == nil {
			e.Fatalf("%s: the runtime does not tell: %s", c.Name, c.Message)
		}
		all[c.Name] = c
	}
	return all
}

// TestInspectShowsWhatTheRuntimeWasReallyGiven: mounts and security of real containers
// are those of the manifest, in the types of the OCI specification, and podd says
// itself that nothing differs; what a variable was put into is masked.
func TestInspectShowsWhatTheRuntimeWasReallyGiven(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	e.apply("inspect.yaml")
	e.mark("bound", "privileged")
	p := e.ready("inspect")
	all := e.inspected("inspect")
	for name, c := range all {
		for _, r := range c.Rows {
			if r.Differs {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if want := containerID(p, name); c.ID != want || c.State != "running" || c.PID == 0 {
			t.Errorf("%s: got %s, %s, process %d; want %s", name, c.ID, c.State, c.PID, want)
		}
	}
	bound, privileged := all["bound"].Spec, all["privileged"].Spec
	e.expectMount(bound, "/out", e.out, "rw", "rprivate")
	e.expectMount(bound, "/again", e.out, "ro")
	e.expectMount(bound, "/scratch/sub", filepath.Join(e.node.Root(), "pods", string(p.UID), "volume-subpaths/scratch/bound/2"), "rw")
	process := bound.Process
	if u := process.User; u.UID != 1000 || u.GID != 2000 || !slices.Contains(u.AdditionalGids, 3000) {
		t.Errorf("bound: got %+v", u)
	}
	if got := process.Capabilities.Bounding; !slices.Equal(got, []string{"CAP_NET_BIND_SERVICE"}) || !process.NoNewPrivileges || !bound.Root.Readonly {
		t.Errorf("bound: got %q, %+v", got, process)
	}
	if bound.Linux.Seccomp == nil || len(bound.Linux.MaskedPaths) == 0 || *bound.Linux.Resources.Memory.Limit != 32<<20 {
		t.Errorf("bound: got %+v", bound.Linux)
	}
	if l := privileged.Linux; l.Seccomp != nil || len(l.MaskedPaths) > 0 || !slices.Contains(privileged.Process.Capabilities.Bounding, "CAP_SYS_ADMIN") {
		t.Errorf("privileged: got %+v", l)
	}
	for _, want := range []string{"LITERAL=shown", "DERIVED=user:$(WHO)", "WHO=<masked>", "PATH=<masked>"} {
		if !slices.Contains(process.Env, want) {
			t.Errorf("bound: got %q, want %s", process.Env, want)
		}
	}
	if only := e.inspected("inspect", "-c", "bound"); len(only) != 1 {
		t.Errorf("-c bound: got %v", only)
	}
}

func (e *env) expectMount(spec *specs.Spec, at, source string, options ...string) {
	e.Helper()
	n := slices.IndexFunc(spec.Mounts, func(m specs.Mount) bool { return m.Destination == at })
	if n < 0 {
		e.Errorf("nothing is mounted at %s", at)
		return
	}
	m := spec.Mounts[n]
	missing := slices.ContainsFunc(options, func(o string) bool { return !slices.Contains(m.Options, o) })
	if m.Type != "bind" || m.Source != source || missing {
		e.Errorf("got %+v, want %s with %q", m, source, options)
	}
}

// TestDescribeShowsAPodWithItsVolumesOnTheHost, by its manifest's name or the beginning
// of it.
func TestDescribeShowsAPodWithItsVolumesOnTheHost(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	e.apply("inspect.yaml")
	e.mark("bound", "privileged")
	p := e.ready("inspect")
	for _, name := range []string{"inspect", "insp"} {
		var lines []string
		for line := range strings.Lines(e.run("describe", name)) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		for _, want := range []string{
			"Name: " + p.Name, "IP: " + p.Status.PodIP, "Container ID: " + p.Status.ContainerStatuses[0].ContainerID,
			"Path: " + e.out, "Manifest: " + filepath.Join(e.podd.Manifests(), "inspect.yaml"),
			"Bound To: " + filepath.Join(e.node.Root(), "pods", string(p.UID), "volumes/kubernetes.io~empty-dir/scratch") + " (tmpfs)",
		} {
			if !slices.Contains(lines, want) {
				t.Errorf("describe %s: no line %q in\n%s", name, want, strings.Join(lines, "\n"))
			}
		}
	}
}

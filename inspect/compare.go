package inspect

import (
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Input is the input of Compare.
type Input struct {
	Pod       *v1.Pod
	Container *v1.Container
	// Spec is the complete specification that the runtime was given.
	Spec *specs.Spec
	// IsHostNamespace reports whether a namespace that the specification names by path is
	// the node's own; known is false if that can no longer be determined. If nil, it
	// never can.
	IsHostNamespace func(specs.LinuxNamespace) (own, known bool)
}

// comparison collects rows.
type comparison struct {
	Input
	// of the specification, never nil
	process   *specs.Process
	linux     *specs.Linux
	resources *specs.LinuxResources
	security  v1.SecurityContext

	section string
	rows    []Row
}

// Compare returns the rows for a container, section by section, without values of
// Secrets.
func Compare(in Input) []Row {
	x := &comparison{Input: in, process: in.Spec.Process, linux: in.Spec.Linux, security: effective(in.Pod, in.Container)}
	if x.process == nil {
		x.process = &specs.Process{}
	}
	if x.linux == nil {
		x.linux = &specs.Linux{}
	}
	if x.resources = x.linux.Resources; x.resources == nil {
		x.resources = &specs.LinuxResources{}
	}
	for _, part := range []struct {
		section string
		compare func()
	}{
		{"process", x.compareProcess}, {"privileges", x.comparePrivileges}, {"namespaces", x.compareNamespaces},
		{"cgroup", x.compareLimits}, {"mounts", x.compareMounts}, {"devices", x.compareDevices}, {"environment", x.compareVariables},
	} {
		x.section = part.section
		part.compare()
	}
	return x.rows
}

// row adds what manifest and runtime have, and whether they differ.
func (x *comparison) row(name, manifest, runtime string, differs bool) {
	if manifest == "" && runtime == "" && !differs {
		return
	}
	x.rows = append(x.rows, Row{Section: x.section, Name: name, Manifest: manifest, Runtime: runtime, Differs: differs})
}

// expect adds a row that differs if the manifest has a value and the runtime another.
func (x *comparison) expect(name, manifest, runtime string) {
	x.row(name, manifest, runtime, manifest != "" && manifest != runtime)
}

// effective returns the container's security context, with the pod's values for
// unset fields.
func effective(p *v1.Pod, c *v1.Container) v1.SecurityContext {
	out := pod.SecurityContext(p, c)
	if sc := p.Spec.SecurityContext; sc != nil && out.AppArmorProfile == nil {
		out.AppArmorProfile = sc.AppArmorProfile
	}
	return out
}

func (x *comparison) privileged() bool { return isTrue(x.security.Privileged) }

func isTrue(b *bool) bool { return b != nil && *b }

func list(all []string) string { return strings.Join(all, " ") }

package advice

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	imageref "github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/node/util/sysctl"

	"podd/internal/pod"
)

// valueWarnings are about values that Kubernetes accepts and that are almost certainly a
// mistake: units of another resource, relative paths, impossible names of images and
// capabilities.
func valueWarnings(p *v1.Pod) []warning {
	var out, deadPorts []warning
	dead := map[string]pod.UnreachableHostPort{}
	for _, d := range pod.UnreachableHostPorts(p) {
		dead[fmt.Sprint(d.Container, "/", d.Index)] = d
	}
	for path, c := range pod.ContainerPaths(&p.Spec) {
		for i := range c.Ports { // they are dead without a word of the runtime
			if d, ok := dead[fmt.Sprint(c.Name, "/", i)]; ok {
				deadPorts = append(deadPorts, warning{path: fmt.Sprintf("%s.ports[%d].hostIP", path, i), message: d.String(), hint: "write an address of IPv4, such as 127.0.0.1, or leave hostIP out for all of them"})
			}
		}
		out = append(out, imageWarnings(path+".image", c.Image)...)
		for i, e := range c.Env {
			if strings.ContainsAny(e.Name, " \t") {
				out = append(out, warning{path: fmt.Sprintf("%s.env[%d].name", path, i), message: fmt.Sprintf("the variable name %q contains whitespace: no shell can read it", Shorten(e.Name)),
					suggestion: suggestion{value: strings.Join(strings.Fields(e.Name), "_"), format: "write %s"}})
			}
		}
		out = append(out, resourceWarnings(path+".resources", c.Resources)...)
		if sc := c.SecurityContext; sc != nil && sc.Capabilities != nil {
			out = append(out, capabilityWarnings(path+".securityContext.capabilities.add", sc.Capabilities.Add)...)
			out = append(out, capabilityWarnings(path+".securityContext.capabilities.drop", sc.Capabilities.Drop)...)
		}
	}
	if r := p.Spec.Resources; r != nil {
		out = append(out, resourceWarnings("spec.resources", *r)...)
	}
	for i, v := range p.Spec.Volumes {
		path := fmt.Sprintf("spec.volumes[%d]", i)
		switch {
		case v.HostPath != nil:
			out = append(out, hostPathWarnings(path+".hostPath.path", v.HostPath.Path)...)
		case v.Image != nil:
			out = append(out, imageWarnings(path+".image.reference", v.Image.Reference)...)
		case v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil:
			out = append(out, sizeWarnings(path+".emptyDir.sizeLimit", "a volume", *v.EmptyDir.SizeLimit)...)
		}
	}
	return slices.Concat(out, deadPorts, sysctlWarnings(p))
}

// imageWarnings: the kubelet says InvalidImageName, once the pod is to run.
func imageWarnings(path, image string) []warning {
	_, err := imageref.ParseNormalizedNamed(image)
	if err == nil || image == "" {
		return nil
	}
	d := warning{path: path, message: fmt.Sprintf("%q is not a valid image name: %v", Shorten(image), err), hint: "write registry/name:tag, in lower case"}
	lower, joined := strings.ToLower(image), strings.Join(strings.Fields(image), "")
	switch {
	case isPlaceholder(image):
		d.message = fmt.Sprintf("%q is a placeholder, not an image name", Shorten(image))
		d.hint = fillHint
	case strings.IndexFunc(image, isInvisible) >= 0:
		d.hint = "it contains an invisible character: retype it"
	case joined != image && isImage(joined):
		d.suggestion = suggestion{value: joined, format: "remove the whitespace: %s"}
	case joined != image && isImage(strings.ToLower(joined)):
		d.suggestion = suggestion{value: strings.ToLower(joined), format: "remove the whitespace and write it in lower case: %s"}
	case isImage(lower):
		d.suggestion = suggestion{value: lower, format: "write it in lower case: %s"}
	}
	return []warning{d}
}

func isImage(name string) bool {
	_, err := imageref.ParseNormalizedNamed(name)
	return err == nil
}

// placeholder matches what people and tools write for a value that is yet to be filled in,
// and what no name of an image can have.
var placeholder = regexp.MustCompile(`\{\{|\$[{(]|%\{|<[^<>]*>|^\$|(^|/)[A-Z][A-Z0-9]*(_[A-Z0-9]+)+(:|@|$)|(^|[/:])(__|@@?|%)[A-Za-z][A-Za-z0-9_]*(__|@@?|%)`)

func isPlaceholder(image string) bool { return placeholder.MatchString(image) }

// manyProcessors is more than any machine has.
const manyProcessors = 10_000

func resourceWarnings(path string, r v1.ResourceRequirements) []warning {
	var out []warning
	for _, list := range []struct {
		name string
		v1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
			q, set := list.ResourceList[name]
			if limit, too := r.Limits[name]; !set || list.name == "requests" && too && limit.Cmp(q) == 0 {
				continue // said of the limit, which defaulting may have copied
			}
			at := fmt.Sprintf("%s.%s[%s]", path, list.name, name)
			if name != v1.ResourceCPU {
				out = append(out, sizeWarnings(at, string(name), q)...)
				continue
			}
			if q.CmpInt64(manyProcessors) >= 0 {
				out = append(out, cpuWarning(at, q))
			}
		}
	}
	return out
}

func cpuWarning(path string, q resource.Quantity) warning {
	text := q.String()
	d := warning{path: path, message: fmt.Sprintf("%s of cpu means that many whole CPUs, which no machine has", text),
		hint: "cpu is counted in CPUs: 2, 0.5 or 500m"}
	if number, mega := strings.CutSuffix(text, "M"); mega {
		d.suggestion = suggestion{value: number + "m", format: "did you mean %s, thousandths of a CPU?"}
	}
	return d
}

// sizeWarnings: m is a thousandth, and a number without a unit counts bytes.
func sizeWarnings(path, what string, q resource.Quantity) []warning {
	const page = 4096
	if q.Sign() <= 0 || q.CmpInt64(page) >= 0 {
		return nil
	}
	text := q.String()
	d := warning{path: path, message: fmt.Sprintf("%s of %s means that many bytes, less than a page", text, what), hint: "write it with Mi or Gi: 128Mi, 2Gi"}
	number, milli := strings.CutSuffix(text, "m")
	if milli {
		d.message = fmt.Sprintf("%s of %s means thousandths of a byte", text, what)
	}
	if strings.Trim(number, "0123456789") == "" {
		// The quantity is 1 where 1000m is written.
		d.suggestion = suggestion{value: number + "Mi", format: "did you mean %s?", compute: func(written string) string {
			if number := strings.TrimSuffix(written, "m"); strings.Trim(number, "0123456789") == "" {
				return number + "Mi"
			}
			return "" // 0.5 may be of anything
		}}
	}
	return []warning{d}
}

// capabilityWarnings: runtimes put CAP_ before the name, and leave out what they
// then do not know.
func capabilityWarnings(path string, all []v1.Capability) []warning {
	var out []warning
	for i, c := range all {
		const prefix = "CAP_"
		if name := strings.ToUpper(string(c)); strings.HasPrefix(name, prefix) {
			out = append(out, warning{path: fmt.Sprintf("%s[%d]", path, i),
				message:    fmt.Sprintf("Kubernetes names capabilities without %s: there is none called %q", prefix, Shorten(string(c))),
				suggestion: suggestion{value: strings.TrimPrefix(name, prefix), format: "write %s"}})
		}
	}
	return out
}

func hostPathWarnings(path, host string) []warning {
	if strings.HasPrefix(host, "/") {
		return nil
	}
	d := warning{path: path, message: fmt.Sprintf("the path %q is relative: it would start at the container runtime's working directory", Shorten(host)),
		hint: "write the absolute path, starting with /"}
	if rest, home := strings.CutPrefix(host, "~"); home && (rest == "" || rest[0] == '/') {
		d.suggestion = suggestion{value: "/root" + rest, format: "write out the home directory, for example %s"}
	}
	return []warning{d}
}

// sysctlWarnings: one sysctl in both notations.
func sysctlWarnings(p *v1.Pod) []warning {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	var out []warning
	before := map[string]int{}
	for i, s := range p.Spec.SecurityContext.Sysctls {
		name := sysctl.NormalizeName(s.Name)
		if first, twice := before[name]; twice {
			out = append(out, warning{path: fmt.Sprintf("spec.securityContext.sysctls[%d]", i),
				message: fmt.Sprintf("%s is already set by sysctls[%d], in the other notation; this value takes effect", name, first), hint: "remove one of them"})
		}
		before[name] = i
	}
	return out
}

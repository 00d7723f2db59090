package advice

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/strictyaml"
	"podd/internal/suggest"
)

// warning is about something valid that podd does as written and that its author
// probably did not mean.
type warning struct {
	path, message, hint string
	// suggestion is the value that hint proposes, if it does.
	suggestion suggestion
	// newName is the name that hint proposes for the field itself.
	newName suggestion
}

// Warnings returns the warnings about a valid pod. dropped are the fields of its metadata
// that podd drops. mirrored says that podd creates a mirror pod of it in an apiserver.
func Warnings(p *v1.Pod, dropped []string, mirrored bool, text *strictyaml.Decoded) []Fault {
	var out []Fault
	for _, d := range slices.Concat(metaWarnings(dropped), priorityWarnings(&p.Spec, mirrored), podWarnings(p)) {
		f := Fault{Line: text.Line(d.path), Field: d.path, Message: d.message, Hint: d.hint}
		out = append(out, f.withNewName(d.newName, text.Root, d.path).withValue(d.suggestion, text.Root, d.path))
	}
	return out
}

// podWarnings returns those about its spec and annotations.
func podWarnings(p *v1.Pod) []warning {
	out := append(annotationWarnings(p), valueWarnings(p)...)
	out = append(out, itemWarnings(p)...)
	out = append(out, hostPortWarnings(p)...)
	for i, gate := range p.Spec.ReadinessGates {
		out = append(out, warning{path: fmt.Sprintf("spec.readinessGates[%d]", i),
			message: fmt.Sprintf("without an apiserver nothing sets the pod condition %q: the pod will run but never become Ready", Shorten(string(gate.ConditionType))),
			hint:    "remove the gate"})
	}
	execs := 0.0
	period := graceOf(p)
	for path, c := range pod.ContainerPaths(&p.Spec) {
		out = append(out, hookWarnings(path, c, period)...)
		out = append(out, mountWarnings(path, c)...)
		for _, probe := range []struct {
			field string
			*v1.Probe
		}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
			if probe.Probe == nil {
				continue
			}
			out = append(out, portWarnings(path+"."+probe.field, c, probe.HTTPGet, probe.TCPSocket)...)
			if probe.Exec != nil && probe.field != "startupProbe" && probe.PeriodSeconds > 0 {
				execs += 1 / float64(probe.PeriodSeconds)
			}
		}
	}
	if execs >= manyExecs {
		out = append(out, warning{path: "spec", message: fmt.Sprintf("exec probes start %.2g processes a second in this pod, for as long as it runs", execs),
			hint: "raise periodSeconds, or probe by httpGet, tcpSocket or grpc, which cost next to nothing"})
	}
	return out
}

// maxWarnings of one kind are more than are reported.
const maxWarnings = 20

// manyExecs is how many processes a second a pod's exec probes may start without a
// warning; each costs some 50 ms of a processor.
const manyExecs = 2

// gracePeriod is that of a pod in seconds, and the field that it is in.
type gracePeriod struct {
	seconds int64
	field   string
}

func graceOf(p *v1.Pod) gracePeriod {
	const field = "spec.terminationGracePeriodSeconds"
	if s := p.DeletionGracePeriodSeconds; s != nil {
		return gracePeriod{*s, "metadata.deletionGracePeriodSeconds"}
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		return gracePeriod{*s, field}
	}
	return gracePeriod{v1.DefaultTerminationGracePeriodSeconds, field}
}

// metaWarnings is about the fields of a pod's metadata that podd drops.
func metaWarnings(dropped []string) []warning {
	if len(dropped) == 0 {
		return nil
	}
	return []warning{{path: "metadata." + dropped[0], message: "podd ignores what only an apiserver sets in the metadata of a pod: " + strings.Join(dropped, ", "),
		hint: "they may stay; the pod without them is another one, which replaces this one"}}
}

// portWarnings: a port's name is looked up when it is used, and then it is too late to
// report that it does not exist.
func portWarnings(path string, c *v1.Container, get *v1.HTTPGetAction, tcp *v1.TCPSocketAction) []warning {
	var name string
	switch {
	case get != nil:
		path, name = path+".httpGet.port", get.Port.StrVal
	case tcp != nil:
		path, name = path+".tcpSocket.port", tcp.Port.StrVal
	}
	if _, err := strconv.Atoi(name); name == "" || err == nil {
		return nil
	}
	var names []string
	for _, p := range c.Ports {
		if p.Name == name {
			return nil
		}
		if p.Name != "" {
			names = append(names, p.Name)
		}
	}
	return []warning{{path: path, message: fmt.Sprintf("the container has no port named %q: this cannot succeed", Shorten(name)),
		hint: "give the port's number, or name it in the container's ports", suggestion: didYouMean(suggest.Closest(name, names))}}
}

// hookWarnings: a preStop hook uses up the grace period of its pod.
func hookWarnings(path string, c *v1.Container, grace gracePeriod) []warning {
	if c.Lifecycle == nil {
		return nil
	}
	var out []warning
	if h := c.Lifecycle.PostStart; h != nil {
		out = portWarnings(path+".lifecycle.postStart", c, h.HTTPGet, h.TCPSocket)
	}
	if c.Lifecycle.PreStop == nil {
		return out
	}
	path += ".lifecycle.preStop"
	out = append(out, portWarnings(path, c, c.Lifecycle.PreStop.HTTPGet, c.Lifecycle.PreStop.TCPSocket)...)
	sleeps := sleepOf(c.Lifecycle.PreStop)
	switch {
	case grace.seconds == 0:
		return append(out, warning{path: path, message: "the hook is never run, since the pod's " + grace.field[strings.Index(grace.field, ".")+1:] + " is 0",
			hint: "give the pod a grace period, or remove the hook"})
	case sleeps >= pod.GracePeriod(grace.seconds):
		return append(out, warning{path: path, message: fmt.Sprintf("the hook takes %s of the pod's grace period of %d s: the container gets 2 s after its stop signal", sleeps, grace.seconds),
			hint: fmt.Sprintf("raise %s above %d, by the time that the program needs to exit", grace.field, int(sleeps.Seconds()))})
	}
	return out
}

// hostPortWarnings are about ports of one pod that take from each other: validation only
// refuses those that are written alike.
func hostPortWarnings(p *v1.Pod) (out []warning) {
	ports := pod.HostPorts(p)
	first := map[int32][]pod.HostPort{} // by number: a manifest may have many
	for _, port := range ports {
		for _, before := range first[port.Number] {
			if before.Overlaps(port) {
				out = append(out, warning{path: port.Path, message: fmt.Sprintf("host port %s overlaps with %s (%s) of the same pod: only one of the two gets what arrives where they do", port, before, before.Path),
					hint: "remove one of the two, or choose another hostPort"})
				break
			}
		}
		if len(first[port.Number]) < maxSameNumber {
			first[port.Number] = append(first[port.Number], port)
		}
	}
	return out
}

// maxSameNumber bounds the ports of one number that are compared with each other.
const maxSameNumber = 32

// sleepOf is the minimum time that a hook sleeps: the sleep action, or a command that
// begins with sleep.
func sleepOf(h *v1.LifecycleHandler) time.Duration {
	switch {
	case h.Sleep != nil:
		return pod.Seconds(h.Sleep.Seconds)
	case h.Exec == nil:
		return 0
	}
	words := h.Exec.Command
	if len(words) == 3 && words[1] == "-c" {
		words = strings.Fields(words[2])
	}
	if len(words) < 2 || words[0] != "sleep" && !strings.HasSuffix(words[0], "/sleep") {
		return 0
	}
	text := strings.TrimRight(words[1], ";&")
	if n, err := strconv.ParseFloat(strings.TrimSuffix(text, "s"), 64); err == nil && n > 0 && n < 1e6 {
		return time.Duration(n * float64(time.Second))
	}
	return 0
}

// ownAnnotations are podd's own.
var ownAnnotations = []string{
	pod.AnnotationBackOffInitial, pod.AnnotationBackOffMax, pod.AnnotationBackOffSuccess, pod.AnnotationProbeUntilSuccess,
	pod.AnnotationRestartOnChange,
}

// annotationWarnings are about podd's own annotations. Their errors are sentences
// that begin with "annotation KEY: ".
func annotationWarnings(p *v1.Pod) []warning {
	_, errs := pod.BackOffOf(p)
	if _, err := pod.ProbeUntilSuccess(p); err != nil {
		errs = append(errs, err)
	}
	if _, err := pod.RestartOnChange(p); err != nil {
		errs = append(errs, err)
	}
	var out []warning
	for _, err := range errs {
		key, message, _ := strings.Cut(strings.TrimPrefix(err.Error(), "annotation "), ": ")
		out = append(out, warning{path: "metadata.annotations[" + key + "]", message: Shorten(message), hint: "until it is fixed the pod runs as if it did not have the annotation"})
	}
	var strange []string
	for key := range p.Annotations {
		// Those that podd itself writes may be in an exported pod.
		if strings.HasPrefix(key, "podd/") && key != pod.AnnotationStartTime && key != "podd/origin" && !slices.Contains(ownAnnotations, key) {
			strange = append(strange, key)
		}
	}
	slices.Sort(strange)
	for _, key := range strange {
		out = append(out, warning{path: "metadata.annotations[" + key + "]", message: "podd has no such annotation",
			hint: "podd has " + strings.Join(ownAnnotations, ", "), newName: didYouMean(suggest.Closest(key, ownAnnotations))})
	}
	return out
}

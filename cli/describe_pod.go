package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podd/inspect"
	"podd/internal/pod"
	"podd/server"
)

// description is everything that podd describe shows of a pod.
type description struct {
	server.PodInfo
	// volumes are the host locations of the pod's volumes, as far as podd reports them.
	volumes  []server.Volume
	events   []v1.Event
	problems []string
	now      time.Time
}

// write writes the fields of kubectl describe, in its order and layout. Before the events it
// adds podd's own fields: the manifest and its problems.
func (d *description) write(w io.Writer) error {
	s := newSheet()
	d.writeHeader(s)
	d.writeStatus(s)
	p := d.Pod
	d.writeContainers(s, "Init Containers", p.Spec.InitContainers, p.Status.InitContainerStatuses)
	d.writeContainers(s, "Containers", p.Spec.Containers, p.Status.ContainerStatuses)
	var ephemeral []v1.Container
	for i := range p.Spec.EphemeralContainers {
		ephemeral = append(ephemeral, v1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	d.writeContainers(s, "Ephemeral Containers", ephemeral, p.Status.EphemeralContainerStatuses)
	d.writeConditions(s)
	d.writeVolumes(s)
	s.field(0, "QoS Class", string(pod.QOSClass(p)))
	s.values(0, "Node-Selectors", pairs(p.Spec.NodeSelector))
	s.values(0, "Tolerations", tolerations(p.Spec.Tolerations))
	s.field(0, "Manifest", cmp.Or(d.Origin, none))
	settings(s, inspect.Settings(p))
	if len(d.problems) > 0 {
		s.heading(0, "Problems", false)
		for _, problem := range d.problems {
			s.line(1, problem)
		}
	}
	d.writeEvents(s)
	return s.writeTo(w)
}

// writeHeader writes the pod's identity and node.
func (d *description) writeHeader(s *sheet) {
	p := d.Pod
	s.field(0, "Name", p.Name)
	s.field(0, "Namespace", p.Namespace)
	if p.Spec.Priority != nil {
		s.field(0, "Priority", strconv.Itoa(int(*p.Spec.Priority)))
	}
	s.optional(0, "Priority Class Name", p.Spec.PriorityClassName)
	if p.Spec.RuntimeClassName != nil {
		s.optional(0, "Runtime Class Name", *p.Spec.RuntimeClassName)
	}
	s.optional(0, "Service Account", p.Spec.ServiceAccountName)
	node := none
	if p.Spec.NodeName != "" {
		node = p.Spec.NodeName + "/" + p.Status.HostIP
	}
	s.field(0, "Node", node)
	if p.Status.StartTime != nil {
		s.field(0, "Start Time", formatTime(*p.Status.StartTime))
	}
	s.values(0, "Labels", pairs(p.Labels))
	s.values(0, "Annotations", annotations(p.Annotations))
}

// writeStatus writes the pod's status and its addresses.
func (d *description) writeStatus(s *sheet) {
	p := d.Pod
	if p.DeletionTimestamp != nil && !pod.IsPhaseTerminal(p.Status.Phase) {
		s.field(0, "Status", "Terminating (lasts "+d.since(*p.DeletionTimestamp)+")")
		if grace := p.DeletionGracePeriodSeconds; grace != nil {
			s.field(0, "Termination Grace Period", fmt.Sprintf("%ds", *grace))
		}
	} else {
		s.field(0, "Status", string(p.Status.Phase))
	}
	s.optional(0, "Reason", p.Status.Reason)
	s.optional(0, "Message", p.Status.Message)
	if sc := p.Spec.SecurityContext; sc != nil {
		seccompProfile(s, 0, sc.SeccompProfile)
	}
	s.field(0, "IP", p.Status.PodIP)
	s.heading(0, "IPs", len(p.Status.PodIPs) == 0)
	for _, ip := range p.Status.PodIPs {
		s.field(1, "IP", ip.IP)
	}
	for i := range p.OwnerReferences {
		if owner := &p.OwnerReferences[i]; owner.Controller != nil && *owner.Controller {
			s.field(0, "Controlled By", owner.Kind+"/"+owner.Name)
		}
	}
	if p.Spec.Resources != nil {
		s.heading(0, "Resources", false)
		writeResources(s, 1, p.Spec.Resources)
	}
}

// writeConditions writes kubectl's two columns, and the reason of each condition.
func (d *description) writeConditions(s *sheet) {
	p := d.Pod
	if len(p.Spec.ReadinessGates) > 0 {
		s.heading(0, "Readiness Gates", false)
		s.line(1, "Type", "Status")
		for _, gate := range p.Spec.ReadinessGates {
			status := none
			for _, c := range p.Status.Conditions {
				if c.Type == gate.ConditionType {
					status = string(c.Status)
				}
			}
			s.line(1, string(gate.ConditionType)+" ", status)
		}
	}
	if len(p.Status.Conditions) == 0 {
		return
	}
	s.heading(0, "Conditions", false)
	s.line(1, "Type", "Status")
	for _, c := range p.Status.Conditions {
		cells := []string{string(c.Type) + " ", string(c.Status)} // the space is kubectl's
		if why := strings.Trim(c.Reason+": "+c.Message, ": "); why != "" {
			cells = append(cells, why)
		}
		s.line(1, cells...)
	}
}

func (d *description) writeEvents(s *sheet) {
	if len(d.events) == 0 {
		s.heading(0, "Events", true)
		return
	}
	s.heading(0, "Events", false)
	s.line(1, "Type", "Reason", "Age", "From", "Message")
	s.line(1, "----", "------", "----", "----", "-------")
	for i := range d.events {
		e := &d.events[i]
		age := d.since(e.FirstTimestamp)
		if e.Count > 1 {
			age = fmt.Sprintf("%s (x%d over %s)", d.since(e.LastTimestamp), e.Count, age)
		}
		message := strings.TrimSpace(e.Message)
		if e.InvolvedObject.FieldPath != "" {
			message = e.InvolvedObject.FieldPath + ": " + message
		}
		s.line(1, e.Type, e.Reason, age, cmp.Or(e.Source.Component, e.ReportingController), message)
	}
}

// since formats the time since t as kubectl does.
func (d *description) since(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(d.now.Sub(t.Time))
}

func formatTime(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return t.Format(time.RFC1123Z)
}

// maxAnnotation is how much of each line of an annotation is shown, as in kubectl.
const maxAnnotation = 140

// annotations omits the annotation that holds a whole manifest for kubectl.
func annotations(m map[string]string) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if key == v1.LastAppliedConfigAnnotation {
			continue
		}
		value := strings.TrimSuffix(m[key], "\n")
		if len(key)+len(value)+2 <= maxAnnotation && !strings.Contains(value, "\n") {
			all = append(all, key+": "+value)
			continue
		}
		all = append(all, key+":")
		for line := range strings.SplitSeq(value, "\n") {
			all = append(all, "  "+shorten(line, maxAnnotation))
		}
	}
	return all
}

func tolerations(all []v1.Toleration) []string {
	var lines []string
	for _, t := range slices.SortedStableFunc(slices.Values(all), func(a, b v1.Toleration) int { return cmp.Compare(a.Key, b.Key) }) {
		text := t.Key
		if t.Value != "" {
			text += "=" + t.Value
		}
		if t.Effect != "" {
			text += ":" + string(t.Effect)
		}
		if t.Operator == v1.TolerationOpExists && t.Value == "" {
			text = strings.TrimPrefix(text+" op=Exists", " ")
		}
		if t.TolerationSeconds != nil {
			text += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
		}
		lines = append(lines, text)
	}
	return lines
}

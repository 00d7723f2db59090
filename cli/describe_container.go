package cli

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// writeContainers writes the containers of one kind, with their statuses.
func (d *description) writeContainers(s *sheet, title string, all []v1.Container, statuses []v1.ContainerStatus) {
	if len(all) == 0 {
		return
	}
	s.line(0, title+":")
	for i := range all {
		c := &all[i]
		status := pod.FindContainerStatus(statuses, c.Name)
		s.line(1, c.Name+":")
		writeImageAndPorts(s, c, status)
		writeWords(s, "Command", c.Command)
		writeWords(s, "Args", c.Args)
		if status != nil {
			d.writeContainerState(s, status)
			writeDevices(s, status)
		}
		writeResources(s, 2, &c.Resources)
		writeProbes(s, c)
		d.writeEnvironment(s, c)
		writeMounts(s, c)
	}
}

// writeImageAndPorts writes the container's ID, image and ports.
func writeImageAndPorts(s *sheet, c *v1.Container, status *v1.ContainerStatus) {
	if status != nil {
		s.field(2, "Container ID", status.ContainerID)
	}
	s.field(2, "Image", c.Image)
	if status != nil {
		s.field(2, "Image ID", status.ImageID)
	}
	ports := func(title string, number func(*v1.ContainerPort) int32) {
		var all []string
		for i := range c.Ports {
			text := fmt.Sprintf("%d/%s", number(&c.Ports[i]), c.Ports[i].Protocol)
			if name := c.Ports[i].Name; name != "" {
				text += " (" + name + ")"
			}
			all = append(all, text)
		}
		switch len(all) {
		case 0:
			s.field(2, title, none)
		case 1:
			s.field(2, title, all[0])
		default:
			s.field(2, title+"s", strings.Join(all, ", "))
		}
	}
	ports("Port", func(p *v1.ContainerPort) int32 { return p.ContainerPort })
	ports("Host Port", func(p *v1.ContainerPort) int32 { return p.HostPort })
	if c.SecurityContext != nil {
		seccompProfile(s, 2, c.SecurityContext.SeccompProfile)
	}
}

func seccompProfile(s *sheet, level int, profile *v1.SeccompProfile) {
	if profile == nil {
		return
	}
	s.field(level, "SeccompProfile", string(profile.Type))
	if profile.LocalhostProfile != nil {
		s.field(level+min(level, 1), "LocalhostProfile", *profile.LocalhostProfile)
	}
}

// writeWords writes the words of a command line, one per line. A word with line breaks takes
// several lines.
func writeWords(s *sheet, title string, all []string) {
	if len(all) == 0 {
		return
	}
	s.line(2, title+":")
	for _, text := range all {
		for line := range strings.SplitSeq(text, "\n") {
			s.line(3, line)
		}
	}
}

// writeContainerState writes the container's state and how the previous one ended. Unlike
// kubectl, it also writes what the container waits for or why it is not ready.
func (d *description) writeContainerState(s *sheet, status *v1.ContainerStatus) {
	writeState(s, "State", status.State)
	if status.LastTerminationState.Terminated != nil {
		writeState(s, "Last State", status.LastTerminationState)
	}
	ready := "False"
	if status.Ready {
		ready = "True"
	}
	s.field(2, "Ready", ready)
	s.optional(2, "Cause", d.Causes[status.Name])
	s.field(2, "Restart Count", fmt.Sprint(status.RestartCount))
}

func writeState(s *sheet, title string, state v1.ContainerState) {
	switch {
	case state.Running != nil:
		s.field(2, title, "Running")
		s.field(3, "Started", formatTime(state.Running.StartedAt))
	case state.Terminated != nil:
		end := state.Terminated
		s.field(2, title, "Terminated")
		s.optional(3, "Reason", end.Reason)
		s.optional(3, "Message", end.Message)
		s.field(3, "Exit Code", fmt.Sprint(end.ExitCode))
		if end.Signal > 0 {
			s.field(3, "Signal", fmt.Sprint(end.Signal))
		}
		s.field(3, "Started", formatTime(end.StartedAt))
		s.field(3, "Finished", formatTime(end.FinishedAt))
	default:
		s.field(2, title, "Waiting")
		if state.Waiting != nil {
			s.optional(3, "Reason", state.Waiting.Reason)
			s.optional(3, "Message", state.Waiting.Message)
		}
	}
}

func writeResources(s *sheet, level int, r *v1.ResourceRequirements) {
	list := func(title string, all v1.ResourceList) {
		if len(all) == 0 {
			return
		}
		s.line(level, title+":")
		for _, name := range slices.Sorted(maps.Keys(all)) {
			quantity := all[name]
			s.field(level+1, string(name), quantity.String())
		}
	}
	list("Limits", r.Limits)
	list("Requests", r.Requests)
}

// writeDevices writes the devices that the container got from device plugins and through
// ResourceClaims. kubectl does not show these.
func writeDevices(s *sheet, status *v1.ContainerStatus) {
	if len(status.AllocatedResourcesStatus) == 0 {
		return
	}
	s.line(2, "Devices:")
	for _, of := range status.AllocatedResourcesStatus {
		var all []string
		for _, one := range of.Resources {
			health := string(one.Health)
			if one.Message != nil && *one.Message != "" {
				health += ": " + oneLine(*one.Message)
			}
			all = append(all, oneLine(string(one.ResourceID))+" ("+health+")")
		}
		s.field(3, string(of.Name), strings.Join(all, ", "))
	}
}

func writeProbes(s *sheet, c *v1.Container) {
	for _, of := range []struct {
		title string
		probe *v1.Probe
	}{{"Liveness", c.LivenessProbe}, {"Readiness", c.ReadinessProbe}, {"Startup", c.StartupProbe}} {
		if of.probe != nil {
			s.field(2, of.title, oneLine(formatProbe(of.probe)))
		}
	}
}

func formatProbe(p *v1.Probe) string {
	numbers := fmt.Sprintf("delay=%ds timeout=%ds period=%ds #success=%d #failure=%d",
		p.InitialDelaySeconds, p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold)
	switch {
	case p.Exec != nil:
		return fmt.Sprintf("exec %v %s", p.Exec.Command, numbers)
	case p.HTTPGet != nil:
		get := p.HTTPGet
		path := "/" + strings.TrimPrefix(get.Path, "/")
		return fmt.Sprintf("http-get %s://%s%s %s", strings.ToLower(string(get.Scheme)), net.JoinHostPort(get.Host, get.Port.String()), path, numbers)
	case p.TCPSocket != nil:
		return fmt.Sprintf("tcp-socket %s:%s %s", p.TCPSocket.Host, p.TCPSocket.Port.String(), numbers)
	case p.GRPC != nil:
		service := ""
		if p.GRPC.Service != nil {
			service = *p.GRPC.Service
		}
		return fmt.Sprintf("grpc <pod>:%d %s %s", p.GRPC.Port, service, numbers)
	}
	return "unknown " + numbers
}

// writeMounts writes the container's mounts, sorted by path.
func writeMounts(s *sheet, c *v1.Container) {
	s.heading(2, "Mounts", len(c.VolumeMounts) == 0)
	byPath := func(a, b v1.VolumeMount) int { return strings.Compare(a.MountPath, b.MountPath) }
	for _, m := range slices.SortedFunc(slices.Values(c.VolumeMounts), byPath) {
		flags := "rw"
		if m.ReadOnly {
			flags = "ro"
		}
		if m.SubPath != "" {
			flags += fmt.Sprintf(",path=%q", m.SubPath)
		}
		if m.SubPathExpr != "" {
			flags += fmt.Sprintf(",pathExpr=%q", m.SubPathExpr)
		}
		s.line(3, fmt.Sprintf("%s from %s (%s)", m.MountPath, m.Name, flags))
	}
	if len(c.VolumeDevices) == 0 {
		return
	}
	s.line(2, "Devices:")
	for _, device := range c.VolumeDevices {
		s.line(3, device.DevicePath+" from "+device.Name)
	}
}

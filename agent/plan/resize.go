package plan

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	helper "k8s.io/component-helpers/resource"

	"podd/internal/pod"
)

// Bounds are what a container, or a pod as a whole, is to be held to: CPU in
// thousandths of a processor, memory in bytes; 0 for none.
type Bounds struct {
	CPURequest, CPULimit, MemoryRequest, MemoryLimit int64
}

// Held is what a container was last held to, as far as podd asked for it.
type Held struct {
	// ID is the container's; empty for the pod as a whole.
	ID string
	Bounds
}

// Resized returns the memory in which a container was made with, or brought to,
// what p says of it; with no container, the pod as a whole was.
func (m Memory) Resized(id string, p *v1.Pod, c *v1.Container) Memory {
	if c == nil {
		m.Held = with(m.Held, "", Held{Bounds: podBounds(p)})
	} else {
		m.Held = with(m.Held, c.Name, Held{ID: id, Bounds: bounds(p, c)})
	}
	return m
}

// bounds of a container; where it has no limit, the pod's own is its.
func bounds(p *v1.Pod, c *v1.Container) Bounds {
	b := boundsOf(c.Resources.Requests, c.Resources.Limits)
	if own := p.Spec.Resources; own != nil {
		if b.CPULimit == 0 {
			b.CPULimit = own.Limits.Cpu().MilliValue()
		}
		if b.MemoryLimit == 0 {
			b.MemoryLimit = own.Limits.Memory().Value()
		}
	}
	return b
}

func podBounds(p *v1.Pod) Bounds {
	return boundsOf(helper.PodRequests(p, helper.PodResourcesOptions{}), helper.PodLimits(p, helper.PodResourcesOptions{}))
}

func boundsOf(requests, limits v1.ResourceList) Bounds {
	return Bounds{
		CPURequest: requests.Cpu().MilliValue(), CPULimit: limits.Cpu().MilliValue(),
		MemoryRequest: requests.Memory().Value(), MemoryLimit: limits.Memory().Value(),
	}
}

// resize brings what runs to the resources that the spec names (KEP-1287,
// KEP-5419): containers whose policy asks for it by a restart, the others as
// they run. Those that get less come first, so that at no time more is given out
// than before or after. Only regular containers and sidecars are resized; init
// containers that run to their end have what they began with.
func (s *Step) resize(in *Input, current *pod.Sandbox) {
	s.adopt(in, current)
	p := in.Desired.Pod
	var less, more []Resize
	for spec, k := range pod.ContainerSpecs(&p.Spec) {
		c := resizable(in, spec, k, current)
		if c == nil || s.stopping(c.ID) {
			continue
		}
		held, want := s.Memory.Held[spec.Name].Bounds, bounds(p, spec)
		switch {
		case held == want:
		case restartsFor(spec, held, want):
			s.stopToResize(in, spec, c)
		case want.CPULimit < held.CPULimit || want.MemoryLimit < held.MemoryLimit:
			less = append(less, Resize{ID: c.ID, Container: spec})
		default:
			more = append(more, Resize{ID: c.ID, Container: spec})
		}
	}
	s.Resize = append(less, more...)
	if len(s.Resize) == 0 && s.Memory.Held[""].Bounds != s.Memory.whole {
		s.Resize = []Resize{{}}
	}
}

// resizable returns the running container that a resize of spec would be about;
// nil for none.
func resizable(in *Input, spec *v1.Container, k pod.ContainerKind, current *pod.Sandbox) *pod.Container {
	if k != pod.RegularContainer && k != pod.SidecarContainer {
		return nil
	}
	c := in.Observed.Latest(spec.Name)
	if c == nil || c.State != pod.ContainerRunning || c.SandboxID != current.ID {
		return nil
	}
	return c
}

func (s *Step) stopping(id string) bool {
	return slices.ContainsFunc(s.Stop, func(st Stop) bool { return st.ID == id })
}

// adopt notes what containers have that another podd made: what the spec says,
// unless the runtime knows better.
func (s *Step) adopt(in *Input, current *pod.Sandbox) {
	p := in.Desired.Pod
	if _, known := s.Memory.Held[""]; !known {
		s.Memory = s.Memory.Resized("", p, nil)
	}
	for spec, k := range pod.ContainerSpecs(&p.Spec) {
		c := resizable(in, spec, k, current)
		if c == nil || s.Memory.Held[spec.Name].ID == c.ID {
			continue
		}
		s.Memory = s.Memory.Resized(c.ID, p, spec)
		if contradicts(c.Resources, bounds(p, spec)) {
			held := maps.Clone(s.Memory.Held)
			held[spec.Name] = Held{ID: c.ID} // to be told once what it has
			s.Memory.Held = held
		}
	}
}

// contradicts says that the runtime holds a container to something else. Where
// it knows nothing of a resource, nothing can be said.
func contradicts(r *pod.ContainerResources, b Bounds) bool {
	if r == nil {
		return false
	}
	request := b.CPURequest
	if request == 0 {
		request = b.CPULimit
	}
	return r.CPUShares > 0 && r.CPUShares != pod.CPUShares(request) ||
		r.MemoryLimitInBytes > 0 && r.MemoryLimitInBytes != b.MemoryLimit
}

// restartsFor says that a container's policy asks for a restart for one of the
// changes.
func restartsFor(spec *v1.Container, held, want Bounds) bool {
	for _, policy := range spec.ResizePolicy {
		if policy.RestartPolicy != v1.RestartContainer {
			continue
		}
		switch policy.ResourceName {
		case v1.ResourceCPU:
			if held.CPURequest != want.CPURequest || held.CPULimit != want.CPULimit {
				return true
			}
		case v1.ResourceMemory:
			if held.MemoryRequest != want.MemoryRequest || held.MemoryLimit != want.MemoryLimit {
				return true
			}
		}
	}
	return false
}

// stopToResize stops a container that is started again with its new resources,
// at once and whatever its restart policy is.
func (s *Step) stopToResize(in *Input, spec *v1.Container, c *pod.Container) {
	s.stop(in, c, "Container "+spec.Name+" resize requires restart")
	if s.Memory.Killed[spec.Name].ID != c.ID {
		s.Memory.Killed = with(s.Memory.Killed, spec.Name, Killed{ID: c.ID, First: true})
	}
}

package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"

	"podd/internal/pod"
)

// Bounds are the limits of a container, or of a pod as a whole: CPU in thousandths of
// a processor, memory in bytes; 0 for none.
type Bounds struct {
	CPURequest, CPULimit, MemoryRequest, MemoryLimit int64
}

// Actuated are the limits that podd last set for a container.
type Actuated struct {
	// ID is the container's; empty for the pod as a whole.
	ID string
	Bounds
	// StaleMemoryQoS says that the container still has the MemoryQoS of an earlier
	// configuration of the node. An in-place update replaces it.
	StaleMemoryQoS bool
}

// Resized returns the memory after a container was created with, or resized to, its
// limits in p; with no container, the pod as a whole was.
func (m Memory) Resized(id string, p *v1.Pod, c *v1.Container) Memory {
	if c == nil {
		m.Actuated = with(m.Actuated, "", Actuated{Bounds: podBounds(p)})
	} else {
		m.Actuated = with(m.Actuated, c.Name, Actuated{ID: id, Bounds: bounds(p, c)})
	}
	return m
}

// PodLimited returns the memory after podd found another memory limit on the pod's cgroup than the
// granted one: the pod as a whole is to be resized. limit is in bytes, 0 for none.
func (m Memory) PodLimited(limit int64) Memory {
	a := m.Actuated[""]
	a.MemoryLimit = limit
	m.Actuated = with(m.Actuated, "", a)
	return m
}

// ActuatedPod returns the CPU and the memory limit that podd last set for the pod as a whole;
// nil if it does not know.
func (m Memory) ActuatedPod() *v1.ResourceRequirements {
	a, known := m.Actuated[""]
	if !known {
		return nil
	}
	r := &v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	if a.CPURequest > 0 {
		r.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(a.CPURequest, resource.DecimalSI)
	}
	if a.CPULimit > 0 {
		r.Limits[v1.ResourceCPU] = *resource.NewMilliQuantity(a.CPULimit, resource.DecimalSI)
	}
	if a.MemoryLimit > 0 {
		r.Limits[v1.ResourceMemory] = *resource.NewQuantity(a.MemoryLimit, resource.BinarySI)
	}
	return r
}

// bounds of a container. If it has no limit, the pod's own limit applies.
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

// resize brings running containers to the resources in the spec (KEP-1287, KEP-5419):
// by a restart if their resize policy requires it, otherwise in place. Those that get
// less come first, so that at no time more is granted than before or after. A running init
// container is also resized in place, even one that runs to completion (KEP-1287,
// InPlacePodVerticalScalingInitContainers).
func (s *Step) resize(in *Input, current *pod.Sandbox) {
	s.adopt(in, current)
	p := in.Granted.Pod
	var less, more []Resize
	for spec, k := range pod.ContainerSpecs(&p.Spec) {
		c := resizable(in, spec, k, current)
		if c == nil || s.stopping(c.ID) {
			continue
		}
		last, want := s.Memory.Actuated[spec.Name], bounds(p, spec)
		actuated := last.Bounds
		switch {
		case actuated == want && !last.StaleMemoryQoS:
		case k != pod.InitContainer && restartsFor(spec, actuated, want):
			s.stopToResize(in, spec, c)
		case want.CPULimit < actuated.CPULimit || want.MemoryLimit < actuated.MemoryLimit:
			less = append(less, Resize{ID: c.ID, Container: spec})
		default:
			more = append(more, Resize{ID: c.ID, Container: spec})
		}
	}
	s.Resize = append(less, more...)
	if len(s.Resize) == 0 && s.Memory.Actuated[""].Bounds != s.Memory.whole {
		s.Resize = []Resize{{}}
	}
	if at := s.Memory.ResizeAt; len(s.Resize) > 0 && at.After(in.Now) {
		s.Resize, s.ResizeHeld = nil, true // events must not make it try in a hurry
		s.wakeAt(at)
	}
}

// Resizing says that part of a resize is left to do, or may be: stops come first.
func (s *Step) Resizing() bool { return len(s.Resize) > 0 || s.ResizeHeld || len(s.Stop) > 0 }

// resizeErrorRetry is the wait after a resize that the node or the runtime would
// not carry out.
const resizeErrorRetry = 10 * time.Second

// ResizeFailed returns the memory after such a resize.
func (m Memory) ResizeFailed(now time.Time) Memory {
	m.ResizeAt = now.Add(resizeErrorRetry)
	return m
}

// ResizeBackOffReset returns the memory in which no back-off delays a resize: the node
// granted another one, or the last one is done.
func (m Memory) ResizeBackOffReset() Memory {
	m.ResizeAt = time.Time{}
	return m
}

// Shrink is a memory limit that a resize lowers. The resize is carried out only if less
// than the new limit is in use: on cgroup v2 the kernel would kill otherwise.
type Shrink struct {
	// What names the owner of the limit, ID its container; ID is empty for the pod.
	What, ID string
	// Limit is in bytes.
	Limit int64
}

// Shrinks are the limits that a step's resizes lower. now and next are the pod's
// own, in bytes; 0 for none.
func (s *Step) Shrinks(now, next int64) []Shrink {
	var all []Shrink
	if next > 0 && (now == 0 || next < now) {
		all = append(all, Shrink{What: "pod", Limit: next})
	}
	for _, r := range s.Resize {
		if r.Container == nil {
			continue
		}
		had := s.Memory.Actuated[r.Container.Name].MemoryLimit
		if limit := r.Container.Resources.Limits.Memory().Value(); limit > 0 && (had == 0 || limit < had) {
			all = append(all, Shrink{What: fmt.Sprintf("container %q", r.Container.Name), ID: r.ID, Limit: limit})
		}
	}
	return all
}

// MayShrink returns an error, in the kubelet's words, where memory is in use that
// a lower limit would take away. usage is in bytes, by Shrink.ID.
func MayShrink(shrinks []Shrink, usage func(id string) (int64, error)) error {
	var wrong []string
	for _, sh := range shrinks {
		used, err := usage(sh.ID)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("missing %s memory usage", sh.What))
		case used >= sh.Limit:
			wrong = append(wrong, fmt.Sprintf("attempting to set %s memory limit (%d) below current usage (%d)", sh.What, sh.Limit, used))
		}
	}
	switch len(wrong) {
	case 0:
		return nil
	case 1:
		return errors.New("cannot decrease memory limits: " + wrong[0])
	default:
		return errors.New("cannot decrease memory limits: [" + strings.Join(wrong, ", ") + "]")
	}
}

// resizable returns the running container that a resize of spec would be about;
// nil for none.
func resizable(in *Input, spec *v1.Container, k pod.ContainerKind, current *pod.Sandbox) *pod.Container {
	if !k.Resizable() {
		return nil
	}
	c := in.Observed.LatestContainer(spec.Name)
	if c == nil || c.State != pod.ContainerRunning || c.SandboxID != current.ID {
		return nil
	}
	return c
}

func (s *Step) stopping(id string) bool {
	return slices.ContainsFunc(s.Stop, func(st Stop) bool { return st.ID == id })
}

// adopt records the limits of containers that another podd created: what they were
// granted then, unless the runtime reports otherwise.
func (s *Step) adopt(in *Input, current *pod.Sandbox) {
	p := in.Granted.Pod
	before := s.Memory.AdoptedPod
	if before == nil {
		before = p
	}
	if _, known := s.Memory.Actuated[""]; !known {
		s.Memory = s.Memory.Resized("", before, nil)
	}
	for spec, k := range pod.ContainerSpecs(&p.Spec) {
		c := resizable(in, spec, k, current)
		if c == nil || s.Memory.Actuated[spec.Name].ID == c.ID {
			continue
		}
		had, _ := pod.ContainerSpec(&before.Spec, spec.Name)
		if had == nil {
			had = spec
		}
		s.Memory = s.Memory.Resized(c.ID, before, had)
		if contradicts(c.Resources, bounds(before, had)) {
			actuated := maps.Clone(s.Memory.Actuated)
			actuated[spec.Name] = Actuated{ID: c.ID} // to be told once what it has
			s.Memory.Actuated = actuated
		} else if c.Resources != nil && c.Resources.MemoryQoS != in.MemoryQoS.OfContainer(before, had) {
			s.Memory.Actuated = with(s.Memory.Actuated, spec.Name, Actuated{ID: c.ID, Bounds: bounds(before, had), StaleMemoryQoS: true})
		}
	}
}

// contradicts says that the runtime reports other limits for a container. Resources
// that it does not report are not compared.
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

// restartsFor says that a container's resize policy requires a restart for one of the
// changes. The API rejects such a resize of an init container that runs to completion, because
// a restart would make it do its work again. If the pod-level limits change, such a container
// is resized in place.
func restartsFor(spec *v1.Container, actuated, want Bounds) bool {
	for _, policy := range spec.ResizePolicy {
		if policy.RestartPolicy != v1.RestartContainer {
			continue
		}
		switch policy.ResourceName {
		case v1.ResourceCPU:
			if actuated.CPURequest != want.CPURequest || actuated.CPULimit != want.CPULimit {
				return true
			}
		case v1.ResourceMemory:
			if actuated.MemoryRequest != want.MemoryRequest || actuated.MemoryLimit != want.MemoryLimit {
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
	if s.Memory.ForcedRestarts[spec.Name].ID != c.ID {
		s.Memory.ForcedRestarts = with(s.Memory.ForcedRestarts, spec.Name, ForcedRestart{ID: c.ID, SkipBackOff: true})
	}
}

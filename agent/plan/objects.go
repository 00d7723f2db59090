package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// ObjectsChanged returns the memory of a pod after one of its objects (ConfigMap, Secret)
// was added, changed or removed. A container that could not be configured is retried at
// once, because it may succeed now. No other back-off is reset.
func (m Memory) ObjectsChanged() Memory {
	for name, f := range m.Failures {
		if f.Waiting.Reason == pod.ReasonCreateContainerConfigError {
			f.Count, f.NotBefore = 0, time.Time{}
			m.Failures = with(m.Failures, name, f)
		}
	}
	return m
}

// AwaitsObjects says that a change of one of its objects may help the pod. Other pods are
// not synced for such a change: objects may change often.
func (m Memory) AwaitsObjects(p *v1.Pod) bool {
	if restartsOnChange(p) && m.ObjectChange == nil {
		return true // once one has changed, the restart's own time wakes the pod
	}
	for _, f := range m.Failures {
		if f.Waiting.Reason == pod.ReasonCreateContainerConfigError || len(p.Spec.ImagePullSecrets) > 0 {
			return true
		}
	}
	return false
}

// NeedsContents says that decisions about a pod depend on Input.Contents.
func NeedsContents(p *v1.Pod) bool { return len(p.Spec.ImagePullSecrets) > 0 || restartsOnChange(p) }

// learnObjects records what is new of the pod's objects.
func (s *Step) learnObjects(in *Input) {
	first := s.Memory.Contents == nil
	if first && in.Contents != nil {
		s.Memory.Contents = createdContents(in)
	}
	for key, content := range in.Contents {
		before, known := s.Memory.Contents[key]
		if known && before == content {
			continue
		}
		s.Memory.Contents = with(s.Memory.Contents, key, content)
		s.RetryPulls = s.RetryPulls || !first && refersTo(in.Granted.Pod, key, true)
		if known {
			s.addObjectChange(in, key)
		}
	}
	if first && s.Memory.Contents == nil && in.Contents != nil {
		s.Memory.Contents = map[pod.ObjectKey]uint64{}
	}
}

// createdContents are the contents that an earlier podd created the pod's containers with,
// if they can be compared with the present ones. A change while no podd looked counts like
// any other.
func createdContents(in *Input) (all map[pod.ObjectKey]uint64) {
	for _, c := range createdContainers(in) {
		if c != in.Observed.LatestContainer(c.Name) || in.Epoch == "" || c.ContentHashes.Epoch != in.Epoch {
			continue
		}
		for key, content := range c.ContentHashes.ByObject {
			// Of several containers, one that was made of something else decides.
			if _, known := all[key]; !known || content != in.Contents[key] {
				all = with(all, key, content)
			}
		}
	}
	return all
}

// refersTo says that the pod refers to an object: that its images are pulled with it, or
// that it is used otherwise.
func refersTo(p *v1.Pod, key pod.ObjectKey, pull bool) bool {
	for r := range pod.References(p) {
		if r.Object == key && r.ImagePull == pull {
			return true
		}
	}
	return false
}

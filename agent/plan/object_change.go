package plan

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// ObjectChange says that the content of objects differs from when a pod's containers were
// started. The containers are restarted for it (kubernetes/kubernetes#30189). It is
// immutable.
type ObjectChange struct {
	Objects []pod.ObjectKey
	// First and Last are when the first and the last change was noticed.
	First, Last time.Time
	// Restarting says that the restart has begun.
	Restarting bool
	// Requested says that somebody requested the restart: no object has changed.
	Requested bool
}

// A restart waits until the objects have not changed for changeQuietPeriod, since several
// are often written one after the other, but not longer than maxChangeDelay.
const (
	changeQuietPeriod = time.Second
	maxChangeDelay    = 10 * time.Second
)

func restartsOnChange(p *v1.Pod) bool {
	yes, _ := pod.RestartOnChange(p) // who validates the pod tells of errors
	return yes
}

// addObjectChange remembers that the content of an object has changed.
func (s *Step) addObjectChange(in *Input, key pod.ObjectKey) {
	p := in.Granted.Pod
	if !restartsOnChange(p) {
		return
	}
	if !refersTo(p, key, false) {
		return
	}
	next := ObjectChange{First: in.Now}
	if before := s.Memory.ObjectChange; before != nil {
		next = *before
	}
	next.Last = in.Now
	if !slices.Contains(next.Objects, key) {
		next.Objects = append(slices.Clone(next.Objects), key)
		slices.SortFunc(next.Objects, func(a, b pod.ObjectKey) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
		})
	}
	s.Memory.ObjectChange = &next
}

// createdContainers are the pod's containers that were created, except for the ephemeral
// ones.
func createdContainers(in *Input) (made []*pod.Container) {
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		if spec, k := pod.ContainerSpec(&in.Granted.Pod.Spec, c.Name); spec != nil && k != pod.EphemeralContainer {
			made = append(made, c)
		}
	}
	return made
}

// restartingForChange says that containers have ended, or are about to, in order to
// be restarted: their pod has not completed.
func (s *Step) restartingForChange() bool {
	return s.Memory.ObjectChange != nil && s.Memory.ObjectChange.Restarting
}

// restartForChange restarts all containers of a pod that has not completed, including
// init containers: first they are stopped, as when their pod terminates, then they
// are removed, and what follows is as in a new sandbox. It says whether that is in
// progress. Their restart counts and logs continue. Back-offs do not delay them: what
// made them crash may be what changed.
func (s *Step) restartForChange(in *Input) bool {
	change := s.Memory.ObjectChange
	if change == nil {
		return false
	}
	made := createdContainers(in)
	if len(made) == 0 || current(in) == nil {
		s.Memory.ObjectChange = nil // all of them start with what there is now
		return false
	}
	if !change.Restarting {
		due := change.Last.Add(changeQuietPeriod)
		if latest := change.First.Add(maxChangeDelay); latest.Before(due) {
			due = latest
		}
		if due.After(in.Now) && !change.Requested {
			s.wakeAt(due)
			return false
		}
		next := *change
		next.Restarting = true
		s.Memory.ObjectChange, s.ChangedObjects = &next, next.Objects
	}
	why := "a ConfigMap or Secret of its pod has changed"
	if change.Requested {
		why = "that was requested"
	}
	s.RestartingAll, s.KeepLogs = true, true
	for _, c := range made {
		if mayRun(c) {
			s.stop(in, c, "Stopping container "+c.Name+" to restart it: "+why)
		}
	}
	s.orderStops(in)
	if len(s.Stop) == 0 {
		for _, c := range made {
			s.RemoveContainers = append(s.RemoveContainers, c.ID)
		}
	}
	s.waitForRestart(in)
	return true
}

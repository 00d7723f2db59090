package agent

import (
	"errors"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// ObjectsChanged says that a ConfigMap or Secret which a pod names came, changed
// or went. What waits for it is tried at once, whatever went wrong before; no
// other back-off is cut short. Any goroutine may call it; it never blocks.
func (a *Agent) ObjectsChanged(uid pod.UID) {
	a.mu.Lock()
	w := a.workers[uid]
	a.mu.Unlock()
	if w != nil {
		w.objectsChanged()
	}
}

// objectsChanged leaves word of it, and wakes a worker that awaits it.
func (w *worker) objectsChanged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mail.objectsChanged = true
	if w.awaitsObjects {
		w.wakeUrgentLocked()
	}
}

// handleObjectChange records, after each sync, whether a change of the pod's objects
// matters. It does not miss one that happened during a sync that lacked the object.
func (w *worker) handleObjectChange() {
	awaits := w.lastSync.failures > 0 || !w.starting.awaitingSince.IsZero() || w.stored.registered != nil && w.memory.AwaitsObjects(w.stored.registered)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awaitsObjects = awaits
	if awaits && w.mail.objectsChanged {
		w.wakeUrgentLocked()
	}
}

// apiServerGrace is how long the apiserver may take to answer before podd says that a pod
// waiting for it has failed. The first pod of an account, or with a new ConfigMap, always
// waits for a moment.
const apiServerGrace = 5 * time.Second

// awaitsAPIServer says whether the apiserver still owes answers; until it has given them, an
// error does not say all that is wrong. That takes no longer than apiServerGrace; each
// answer wakes the pod.
func (w *worker) awaitsAPIServer(v *view, err error) bool {
	if !errors.Is(err, pod.ErrObjectPending) {
		w.starting.awaitingSince = time.Time{}
		return false
	}
	if w.starting.awaitingSince.IsZero() {
		w.starting.awaitingSince = time.Now()
	}
	until := w.starting.awaitingSince.Add(apiServerGrace)
	if !time.Now().Before(until) {
		return false
	}
	v.wakeBy(until)
	return true
}

// registerObjects names the pod's objects, before it looks for them.
func (w *worker) registerObjects(d *pod.Desired) {
	if w.stored.registered != d.Pod {
		w.stored.registered = d.Pod
		w.agent.cfg.Objects.Register(d.Pod)
	}
}

// contents are those that a decision about the pod needs.
func (w *worker) contents(d *pod.Desired) map[pod.ObjectKey]uint64 {
	if !plan.NeedsContents(d.Pod) {
		return nil
	}
	return w.agent.cfg.Objects.Contents(w.uid)
}

// createdContents are the contents that a container is created with, if a later podd must be
// able to tell whether they changed meanwhile.
func (w *worker) createdContents(v *view) pod.ContentHashes {
	if yes, _ := pod.RestartOnChange(v.granted.Pod); !yes {
		return pod.ContentHashes{}
	}
	return pod.ContentHashes{Epoch: w.agent.cfg.Objects.Epoch(), ByObject: v.step.Memory.Contents}
}

// recordObjectChange says why the pod's containers are restarted.
func (w *worker) recordObjectChange(v *view) {
	if len(v.step.ChangedObjects) == 0 {
		return
	}
	var all []string
	for _, key := range v.step.ChangedObjects {
		all = append(all, key.Kind+" "+key.Name)
	}
	what := strings.Join(all, ", ")
	w.agent.cfg.Events.Event(v.granted.Pod, v1.EventTypeNormal, "ObjectChanged",
		what+" changed: restarting all containers, as the annotation "+pod.AnnotationRestartOnChange+" asks")
	w.log.Info("restarting all containers: what they name has changed", "objects", what)
}

// noObjects stands for Config.Objects on a node without any.
type noObjects struct{}

func (noObjects) Register(*v1.Pod)                          {}
func (noObjects) Unregister(pod.UID)                        {}
func (noObjects) Contents(pod.UID) map[pod.ObjectKey]uint64 { return nil }
func (noObjects) Epoch() string                             { return "" }

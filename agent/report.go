package agent

import (
	"maps"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// trackObserved records what only the first sync shows, and logs what changed since the
// last one.
func (w *worker) trackObserved(d *pod.Desired, seen pod.Observed, now time.Time) {
	first := w.startTimeSteady.IsZero()
	if w.startTime.IsZero() {
		w.startTime = seen.StartTime
		if shown := d.Pod.Status.StartTime; (w.startTime.IsZero() || seen.TakenOver) && shown != nil && d.Source == pod.SourceAPIServer {
			w.startTime = shown.Time // an earlier podd took it up, and had not made a sandbox, or a kubelet had
		}
		if w.startTime.IsZero() {
			w.startTime = now
		}
	}
	if w.startTimeSteady.IsZero() {
		w.startTimeSteady = pod.WithMonotonic(w.startTime, now)
	}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		before, known := w.reported.states[c.ID]
		// An earlier podd counted what had exited before this podd's first look.
		if c.State == pod.ContainerExited && (known && before != pod.ContainerExited || !known && !first) {
			w.countTermination(&d.Pod.Spec, c)
		}
		if c.State == pod.ContainerExited && before == pod.ContainerRunning {
			w.log.Info("container exited", "container", c.Name, "code", c.ExitCode, "reason", c.Reason, "restarts", c.RestartCount)
		}
	}
	w.reported.states = make(map[string]pod.ContainerState, len(seen.Containers))
	for i := range seen.Containers {
		w.reported.states[seen.Containers[i].ID] = seen.Containers[i].State
	}
	w.updateGauges(seen)
	w.measureStart(d, seen, now)
}

// report passes what is known to status, with the failures of this sync's starts,
// unless nothing changed, or it is withheld.
func (w *worker) report(v *view, err error) {
	d, step := v.granted, &v.step
	if d.Pod.Name == "" || w.completion.claimsPrepared {
		return
	}
	waiting := maps.Clone(step.Waiting)
	for _, st := range step.Start {
		if f, failed := w.memory.Failures[st.Container.Name]; failed {
			waiting[st.Container.Name] = f.Waiting
		}
	}
	message := ""
	switch {
	case err != nil:
		message = err.Error()
	case w.lastSync.failures > 0:
		message = w.reported.err // true until a sync succeeds
	case step.CreateSandbox || len(step.Start) > 0:
		message = w.starting.volumesWait
	}
	for name, why := range waiting {
		creating := why.Reason == pod.ReasonContainerCreating || why.Reason == pod.ReasonPodInitializing
		if creating && why.Message == "" {
			waiting[name] = pod.Waiting{Reason: why.Reason, Message: message}
		}
	}
	r := pod.Report{
		Desired: d, Phase: w.phase, Observed: w.completion.record.addLostContainers(v.seen), Probes: v.probes, Waiting: waiting, PostStartRunning: inPostStart(v.hooks), StartTime: w.startTime,
		WillRestart: restartedIDs(step.Memory.ForcedRestarts), Devices: w.deviceHealth(d.Pod),
	}
	if step.End != nil {
		r.Failed, r.Reason, r.Message = true, step.End.Reason, step.End.Message
		if step.End.Condition != nil {
			r.Conditions = append(r.Conditions, *step.End.Condition)
		}
	}
	w.reportResize(&r)
	if step.RestartingAll {
		r.Conditions = append(r.Conditions, v1.PodCondition{
			Type: v1.AllContainersRestarting, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(step.Memory.RestartingSince),
		})
	}
	r.Observed.At = time.Time{}
	if reflect.DeepEqual(r, w.reported.report) {
		return
	}
	w.reported.report = r
	r.At, r.Observed.At = v.seen.At, v.seen.At
	w.agent.cfg.Status.Report(r)
}

// restartedIDs are the containers that were stopped in order to be restarted, or had their
// start interrupted; nil for none.
func restartedIDs(forced map[string]plan.ForcedRestart) map[string]bool {
	var ids map[string]bool
	for _, k := range forced {
		if ids == nil {
			ids = make(map[string]bool)
		}
		ids[k.ID] = true
	}
	return ids
}

// inPostStart are the containers with a postStart hook that is running, or that has failed
// so that they are being stopped; nil for none.
func inPostStart(hooks map[string]pod.Hook) map[string]bool {
	var ids map[string]bool
	for id, hook := range hooks {
		if hook.State == pod.HookRunning || hook.State == pod.HookFailed {
			if ids == nil {
				ids = make(map[string]bool)
			}
			ids[id] = true
		}
	}
	return ids
}

// recordBackOff emits the event of a crash loop once per back-off.
func (w *worker) recordBackOff(d *pod.Desired, seen pod.Observed, step *plan.Step) {
	before := w.reported.backOff
	w.reported.backOff = nil
	for _, name := range step.BackOff {
		id := seen.LatestContainer(name).ID
		w.reported.backOff = append(w.reported.backOff, id)
		if !slices.Contains(before, id) {
			w.agent.cfg.Events.ContainerEvent(d.Pod, name, v1.EventTypeWarning, "BackOff",
				"Back-off restarting failed container "+name+" in pod "+d.Pod.Name+"_"+d.Pod.Namespace+"("+string(w.uid)+")")
			w.log.Info("container in back-off", "container", name, "until", step.WakeAt)
		}
	}
}

// lastReport is what was reported already, in order not to repeat it.
type lastReport struct {
	err             string
	warning         string // reason and message of the last event
	states          map[string]pod.ContainerState
	backOff         []string // container IDs
	running         bool     // the pod's start was measured
	endSaved        bool     // the node's decision to end the pod
	completionSaved bool     // that the pod has completed, in the checkpoint
	report          pod.Report
}

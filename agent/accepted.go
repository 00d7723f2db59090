package agent

import (
	"errors"
	"io/fs"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/podstore"
)

// maxAccepted bounds the file of a pod: the document of a manifest has 3 MiB at most,
// which JSON may write longer.
const maxAccepted = 16 << 20

// newAccepted stores the accepted pods, as they are desired, while the runtime has
// anything of them. A podd that starts after a manifest was removed then knows what its
// pod runs. The specs need not survive a power failure: nothing runs after one.
func newAccepted(dir string) podstore.Store { return podstore.Store{Dir: dir, MaxBytes: maxAccepted} }

// storedForm returns a pod without the fields that change often and that an orphaned pod
// does not need: its status comes from the runtime.
func storedForm(p *v1.Pod) *v1.Pod {
	plain := *p
	plain.ResourceVersion, plain.ManagedFields = "", nil
	plain.Status = v1.PodStatus{ResourceClaimStatuses: p.Status.ResourceClaimStatuses, ExtendedResourceClaimStatus: p.Status.ExtendedResourceClaimStatus}
	return &plain
}

// saveAccepted stores the pod before the runtime has anything of it, and whenever its
// spec changes. It also stores a pod of an earlier podd, which may have stored none.
func (w *worker) saveAccepted(v *view) {
	d := v.in.desired
	if w.stored.accepted == d || len(d.Pod.Spec.Containers) == 0 || v.seen.Empty() && !v.step.CreateSandbox {
		return
	}
	w.stored.accepted = d
	if err := w.agent.accepted.Write(podstore.Entry{Origin: d.Origin, Pod: storedForm(d.Pod)}); err != nil {
		w.log.Warn("cannot save the spec of this pod: if its manifest is removed while podd is stopped, its preStop hooks are not run and its ports and resources do not count", "error", err)
	}
}

// orphan is a running pod without a worker.
type orphan struct {
	pod.Summary
	// spec is the pod as it was accepted; nil if that is unknown.
	spec *pod.Desired
	// rejected says that a source had the pod, and the node rejected it. It may have run before.
	rejected bool
}

// orphanOf adds what was stored to what the runtime shows of a pod.
func (a *Agent) orphanOf(g pod.Summary) orphan {
	e, err := a.accepted.ReadOne(g.UID)
	switch {
	case errors.Is(err, fs.ErrNotExist): // an older podd's, a kubelet's, or lost with the root directory
		return orphan{Summary: g}
	case err != nil:
		a.log.Warn("cannot read the spec of a running pod: if its manifest is gone, its preStop hooks are not run and its ports and resources do not count",
			"pod", g.Namespace+"/"+g.Name, "uid", g.UID, "error", err)
		return orphan{Summary: g}
	}
	source := g.Source
	if source == "" {
		source = pod.Source(e.Pod.Annotations[pod.AnnotationSource])
	}
	return orphan{Summary: g, spec: &pod.Desired{Pod: e.Pod, Source: source, Origin: e.Origin}}
}

// lastKnown returns the newest spec of a pod that has lost its manifest: the last one of
// its source, else the accepted one, else the name alone.
func (a *Agent) lastKnown(uid pod.UID, o orphan) *pod.Desired {
	switch d := a.lastDesired[uid]; {
	case d != nil:
		return d
	case o.spec != nil:
		return o.spec
	}
	p := &v1.Pod{}
	p.UID, p.Name, p.Namespace = o.UID, o.Name, o.Namespace
	return &pod.Desired{Pod: p, Source: o.Source}
}

// usesNode says that the pod may use resources of the node.
func (o orphan) usesNode() bool {
	for _, ready := range o.Sandboxes {
		if ready {
			return true
		}
	}
	for _, state := range o.Containers {
		if state != pod.ContainerExited {
			return true
		}
	}
	return len(o.Sandboxes)+len(o.Containers) == 0
}

// countedOrphans are the pods that count against the node although they have no worker
// yet: their source has not said so far whether it desires them.
func (a *Agent) countedOrphans(besides pod.UID) []*v1.Pod {
	var list []*v1.Pod
	for uid, o := range a.orphans {
		if uid != besides && o.spec != nil && o.usesNode() {
			list = append(list, a.lastGranted(o.spec).Pod)
		}
	}
	return list
}

package status

import (
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"podd/internal/pod"
	"podd/internal/wake"
)

// Config is what a Writer is made of.
type Config struct {
	Options Options
	// OnForget, which may be nil, is called with the last version of a pod that is forgotten.
	// It must not block.
	OnForget func(last *v1.Pod)
	// Log may be nil: then nothing is logged.
	Log *slog.Logger
	// Metrics may be nil: then nothing is counted.
	Metrics prometheus.Registerer
}

// Writer holds the newest status of each pod and tells those who subscribed
// that one changed. It starts no goroutine. All methods may be called by
// anybody at any time; none blocks on a reader.
type Writer struct {
	log      *slog.Logger
	onForget func(last *v1.Pod)
	metrics  *metrics
	changes  wake.Broadcaster

	mu      sync.Mutex
	options Options
	// optionsVersion counts the calls of SetOptions.
	optionsVersion int
	// pods holds immutable objects: a change puts a new one in place.
	pods map[pod.UID]entry
}

type entry struct {
	pod    *v1.Pod
	origin string
	// unseen: nothing is known but that the pod is desired (pod.Report.Unseen).
	unseen bool
}

// NewWriter returns an empty Writer.
func NewWriter(c Config) *Writer {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Writer{
		log:      c.Log,
		onForget: c.OnForget,
		metrics:  newMetrics(c.Metrics),
		options:  c.Options,
		pods:     map[pod.UID]entry{},
	}
}

// SetOptions changes what is written from the next report on: the runtime's name is known
// only when the runtime first answers. The node's addresses also change in the statuses of
// pods that have not ended, for which no report may come for long.
func (w *Writer) SetOptions(o Options) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.options = o
	w.optionsVersion++
	changed := false
	for uid, e := range w.pods {
		if pod.IsPhaseTerminal(e.pod.Status.Phase) {
			continue
		}
		p := *e.pod
		p.Status = *p.Status.DeepCopy()
		o.updateAddresses(&p)
		if !Equal(&e.pod.Status, &p.Status) {
			e.pod = &p
			w.pods[uid] = e
			changed = true
		}
	}
	if changed {
		w.changed()
	}
}

// Report computes the pod's status and keeps it if it says anything new. Reports
// of one pod must come from one goroutine, in order; a report without a desired
// pod is ignored.
func (w *Writer) Report(r pod.Report) {
	if r.Desired == nil {
		return
	}
	for !w.tryReport(r) { // the options have changed meanwhile
	}
}

// tryReport is one attempt at Report; false means that another one is needed.
func (w *Writer) tryReport(r pod.Report) bool {
	uid := r.Desired.UID()
	w.mu.Lock()
	old, options, version := w.pods[uid], w.options, w.optionsVersion
	w.mu.Unlock()

	// A pod of an apiserver has the last status of an earlier podd, and the newest of what
	// others say of it.
	previous := r.Desired.Pod.Status
	if old.pod != nil && !old.unseen {
		previous = old.pod.Status
		if r.Desired.Source == pod.SourceAPIServer {
			previous.Conditions = mergeConditions(previous.Conditions, r.Desired.Pod.Status.Conditions)
		}
	}
	next := options.Compute(r, previous)
	same := old.pod != nil && old.unseen == r.NotObserved && sameSpec(old.pod, r.Desired.Pod) && Equal(&old.pod.Status, &next)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.optionsVersion != version || same {
		return same && w.optionsVersion == version
	}
	// A shallow copy: spec and metadata are as immutable as the original.
	p := *r.Desired.Pod
	p.Status = next
	w.logChange(&p, previous.Phase)
	w.pods[uid] = entry{pod: &p, origin: r.Desired.Origin, unseen: r.NotObserved}
	oldPhase := v1.PodPhase("")
	if old.pod != nil {
		oldPhase = old.pod.Status.Phase
	}
	w.metrics.phaseChanged(oldPhase, next.Phase)
	w.changed()
	return true
}

// mergeConditions returns podd's own conditions, and those that others have set in the
// apiserver. That includes the condition that another disrupts the pod, if podd does not.
func mergeConditions(own, theirs []v1.PodCondition) []v1.PodCondition {
	var out []v1.PodCondition
	disrupts := slices.ContainsFunc(own, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget && setByPodd(&c) })
	for _, c := range theirs {
		if !pod.OwnsCondition(c.Type) || c.Type == v1.DisruptionTarget && !disrupts {
			out = append(out, c)
		}
	}
	for _, c := range own {
		if setByPodd(&c) {
			out = append(out, c)
		}
	}
	return out
}

// setByPodd says that podd has set a condition. DisruptionTarget is also the scheduler's and
// controllers', who take it back when they do not disrupt the pod after all.
func setByPodd(c *v1.PodCondition) bool {
	return pod.OwnsCondition(c.Type) && (c.Type != v1.DisruptionTarget || c.Reason == v1.PodReasonTerminationByKubelet)
}

// sameSpec compares what an apiserver's UPDATE can change of a pod. Static pods
// are the same object from report to report.
func sameSpec(a, b *v1.Pod) bool {
	return a.ResourceVersion == b.ResourceVersion && a.Generation == b.Generation &&
		a.DeletionTimestamp.Equal(b.DeletionTimestamp)
}

func (w *Writer) logChange(p *v1.Pod, before v1.PodPhase) {
	if p.Status.Phase == before {
		return
	}
	w.log.Debug("pod phase changed", "pod", p.Namespace+"/"+p.Name, "uid", p.UID,
		"from", string(before), "to", string(p.Status.Phase))
}

// Drop drops a pod that may still have something on the node. It ignores an unknown pod.
func (w *Writer) Drop(uid pod.UID) { w.remove(uid) }

// Forget drops a pod that has nothing on the node any more. It ignores an unknown pod.
func (w *Writer) Forget(uid pod.UID) {
	e, ok := w.remove(uid)
	if ok && w.onForget != nil {
		w.onForget(e.pod)
	}
}

func (w *Writer) remove(uid pod.UID) (e entry, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok = w.pods[uid]; !ok {
		return e, false
	}
	delete(w.pods, uid)
	w.metrics.phaseChanged(e.pod.Status.Phase, "")
	w.changed()
	return e, true
}

func (w *Writer) changed() {
	w.metrics.changes.Inc()
	w.changes.Notify()
}

// Changes returns a channel that receives after changes of what Pods returns, and
// a function that ends that. Many changes between two receptions are one.
// Subscribe first, then read Pods. The channel is never closed.
func (w *Writer) Changes() (<-chan struct{}, func()) { return w.changes.Subscribe() }

// Pods returns every pod with its newest status, by namespace, name and UID. The
// pods are shared and must not be changed.
func (w *Writer) Pods() []*v1.Pod {
	w.mu.Lock()
	all := make([]*v1.Pod, 0, len(w.pods))
	for _, e := range w.pods {
		all = append(all, e.pod)
	}
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b *v1.Pod) int {
		if n := strings.Compare(a.Namespace, b.Namespace); n != 0 {
			return n
		}
		if n := strings.Compare(a.Name, b.Name); n != 0 {
			return n
		}
		return strings.Compare(string(a.UID), string(b.UID))
	})
	return all
}

// Pod is one pod with its newest status, or nil. It is shared and must not be
// changed.
func (w *Writer) Pod(uid pod.UID) *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[uid].pod
}

// Observed is Pod, but nil while podd only knows that the pod is desired. What Pod says then
// is for people; an apiserver may know more.
func (w *Writer) Observed(uid pod.UID) *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.pods[uid]; !e.unseen {
		return e.pod
	}
	return nil
}

// Origin is where a person finds the pod's manifest: a path or a URL; empty for
// a pod that is not known.
func (w *Writer) Origin(uid pod.UID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[uid].origin
}

// Equal says that two statuses are the same in what the node agent owns. The other
// conditions and the claims are changed by their owners, and the time of a condition
// changes only with its status.
func Equal(a, b *v1.PodStatus) bool {
	x, y := *a, *b
	if !sameConditions(x.Conditions, y.Conditions) {
		return false
	}
	x.Conditions, y.Conditions = nil, nil
	x.ResourceClaimStatuses, y.ResourceClaimStatuses = nil, nil
	x.ExtendedResourceClaimStatus, y.ExtendedResourceClaimStatus = nil, nil
	return equality.Semantic.DeepEqual(&x, &y)
}

func sameConditions(a, b []v1.PodCondition) bool {
	for _, t := range pod.OwnConditions {
		x, y := condition(a, t), condition(b, t)
		if (x == nil) != (y == nil) {
			return false
		}
		if x != nil && (x.Status != y.Status || x.Reason != y.Reason || x.Message != y.Message || x.ObservedGeneration != y.ObservedGeneration) {
			return false
		}
	}
	return true
}

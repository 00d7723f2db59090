package events

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/internal/wake"
)

const (
	// DefaultMax and DefaultMaxPerPod bound the events that are kept.
	DefaultMax       = 1000
	DefaultMaxPerPod = 50
	// MaxMessage bounds a message, in bytes: what the kubelet keeps of a probe's output (10 KiB),
	// and the words before it.
	MaxMessage = 11 << 10
	// maxLogged is how much of a message the log has, in bytes.
	maxLogged = 1 << 10
	// logEvery is how often repeats of one event are logged above Debug.
	logEvery = 10 * time.Minute
	// logBurst and logPerMinute bound the lines that one pod's events write
	// above Debug.
	logBurst     = 20
	logPerMinute = 10
)

// Config is what a Recorder is made of. The zero value has the default bounds
// and tells nobody.
type Config struct {
	// Node is the name of this node, the host of each event's source.
	Node string
	// Max and MaxPerPod are DefaultMax and DefaultMaxPerPod where 0.
	Max, MaxPerPod int
	// Log may be nil: then nothing is logged.
	Log *slog.Logger
	// Metrics may be nil: then nothing is counted.
	Metrics prometheus.Registerer
}

// Recorder keeps the newest events. It starts no goroutine.
type Recorder struct {
	config  Config
	log     *slog.Logger
	metrics *metrics
	changes wake.Broadcaster

	mu    sync.Mutex
	pods  map[pod.UID]*history
	total int
	seq   uint64
	// restored is the seq of the newest event from before podd's start.
	restored uint64
}

// history is the events of one pod, oldest first by their last time, what is
// known of their kinds, and what is left of its limits.
type history struct {
	events []*entry
	kinds  map[kind]*similarEvents
	// spamLimits bounds new events by subject; logLimit bounds log lines.
	spamLimits map[subject]*spamLimit
	logLimit   *rate.Limiter
	gone       bool
}

type entry struct {
	event *v1.Event // replaced on each repeat, never changed
	// combined stands for many of one kind.
	combined bool
	seq      uint64
	logged   time.Time
}

// New returns an empty Recorder.
func New(c Config) *Recorder {
	if c.Max <= 0 {
		c.Max = DefaultMax
	}
	if c.MaxPerPod <= 0 {
		c.MaxPerPod = DefaultMaxPerPod
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Recorder{
		config: c, log: c.Log, metrics: newMetrics(c.Metrics),
		pods: map[pod.UID]*history{},
	}
}

// Event records what happened to a pod. eventType is v1.EventTypeNormal or
// v1.EventTypeWarning; reason is a word in CamelCase, from the kubelet's list
// where it has one.
func (r *Recorder) Event(p *v1.Pod, eventType, reason, message string) {
	r.record(v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		ResourceVersion: p.ResourceVersion,
	}, eventType, reason, message)
}

// ContainerEvent is Event for one container of a pod; the event names it as the
// kubelet does: spec.containers{name}, spec.initContainers{name} or
// spec.ephemeralContainers{name}.
func (r *Recorder) ContainerEvent(p *v1.Pod, container, eventType, reason, message string) {
	list := "spec.containers"
	switch _, kind := pod.ContainerSpec(&p.Spec, container); kind {
	case pod.InitContainer, pod.SidecarContainer:
		list = "spec.initContainers"
	case pod.EphemeralContainer:
		list = "spec.ephemeralContainers"
	}
	r.record(v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		ResourceVersion: p.ResourceVersion, FieldPath: list + "{" + container + "}",
	}, eventType, reason, message)
}

// ManifestEvent is Event for a pod that does not run because its manifest is wrong: only
// the pod's names are known, or the manifest's own. Events of manifests share one pod's
// bound. They are not logged, because podconfig has logged the mistake.
func (r *Recorder) ManifestEvent(namespace, name, eventType, reason, message string) {
	r.record(v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name},
		eventType, reason, message)
}

func (r *Recorder) record(object v1.ObjectReference, eventType, reason, message string) {
	r.metrics.count(eventType, reason)
	now := time.Now()
	r.mu.Lock()
	h := r.historyLocked(object.UID)
	e := r.addLocked(h, object, eventContent{eventType, reason, short(message, MaxMessage)}, now)
	if e == nil {
		r.mu.Unlock()
		return
	}
	event, level := e.event, h.logLevelLocked(e, now)
	r.changes.Notify()
	r.mu.Unlock()
	if object.UID == "" {
		return
	}
	name := strings.TrimPrefix(object.Namespace+"/"+object.Name, "/")
	attrs := []any{strings.ToLower(object.Kind), name, "uid", object.UID}
	if container := ContainerName(event); container != "" {
		attrs = append(attrs, "container", container)
	}
	r.log.Log(context.Background(), level, "event", append(attrs, "type", eventType, "reason", reason, "message", short(event.Message, maxLogged), "count", event.Count)...)
}

// historyLocked returns the history of a pod, a new one if there is none.
func (r *Recorder) historyLocked(uid pod.UID) *history {
	h := r.pods[uid]
	if h == nil {
		h = &history{kinds: map[kind]*similarEvents{}, spamLimits: map[subject]*spamLimit{}, logLimit: rate.NewLimiter(rate.Every(time.Minute/logPerMinute), logBurst)}
		r.pods[uid] = h
	}
	return h
}

// eventContent is what an event says.
type eventContent struct{ eventType, reason, message string }

// addLocked counts a repeat or keeps a new event; nil for one too many.
func (r *Recorder) addLocked(h *history, object v1.ObjectReference, n eventContent, now time.Time) *entry {
	h.gone = false
	k := kind{object.Namespace, object.Name, n.eventType, n.reason}
	combined := h.shouldCombineLocked(k, n.message, now)
	if combined {
		n.message = short(combinedPrefix+n.message, MaxMessage)
	}
	same := func(e *entry) bool {
		o := &e.event.InvolvedObject
		return e.combined == combined && k == kind{o.Namespace, o.Name, e.event.Type, e.event.Reason} &&
			(combined || e.event.Message == n.message && o.FieldPath == object.FieldPath)
	}
	if i := slices.IndexFunc(h.events, same); i >= 0 {
		e := h.events[i]
		next := *e.event
		next.Count++
		next.LastTimestamp = metav1.NewTime(now)
		next.InvolvedObject, next.Message = object, n.message // of the newest that are combined
		r.seq++
		e.event, e.seq = &next, r.seq
		h.events = append(slices.Delete(h.events, i, i+1), e)
		return e
	}
	if !h.allowLocked(subject{object.Namespace, object.Name, object.FieldPath}, now) {
		r.metrics.discarded.WithLabelValues(discardedSpam).Inc()
		return nil
	}
	r.seq++
	e := &entry{seq: r.seq, combined: combined, event: r.event(object, n, now)}
	h.events = append(h.events, e)
	r.total++
	for range r.trimLocked(object.UID, h) {
		r.metrics.discarded.WithLabelValues(discardedOld).Inc()
	}
	return e
}

// trimLocked drops what one event more is too many of, and returns how many events that were.
func (r *Recorder) trimLocked(uid pod.UID, h *history) (dropped int) {
	if len(h.events) > r.config.MaxPerPod {
		r.dropOldestLocked(uid, h)
		dropped++
	}
	if r.total > r.config.Max {
		r.evictLocked()
		dropped++
	}
	return dropped
}

func (r *Recorder) event(object v1.ObjectReference, n eventContent, now time.Time) *v1.Event {
	return &v1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Name:              fmt.Sprintf("%s.%x", object.Name, now.UnixNano()),
			Namespace:         cmp.Or(object.Namespace, "default"),
			CreationTimestamp: metav1.NewTime(now),
		},
		InvolvedObject:      object,
		Type:                n.eventType,
		Reason:              n.reason,
		Message:             n.message,
		Source:              v1.EventSource{Component: "kubelet", Host: r.config.Node},
		ReportingController: "kubelet",
		ReportingInstance:   r.config.Node,
		FirstTimestamp:      metav1.NewTime(now),
		LastTimestamp:       metav1.NewTime(now),
		Count:               1,
	}
}

// ForgetPod says that nothing more happens to a pod: its events are the first to go when
// another pod needs the room. A later event of the pod takes that back.
func (r *Recorder) ForgetPod(uid pod.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.pods[uid]; h != nil {
		h.gone = true
	}
}

// evictLocked drops the oldest event of pods that are gone, or else of the pod that
// has most, so that a pod with few events keeps them whatever the others do. Among
// equals, the oldest event goes.
func (r *Recorder) evictLocked() {
	var uid pod.UID
	var loser *history
	for u, h := range r.pods {
		if loser == nil || h.evictsBefore(loser) {
			uid, loser = u, h
		}
	}
	r.dropOldestLocked(uid, loser)
}

// evictsBefore says which of two pods is the first to lose an event.
func (h *history) evictsBefore(other *history) bool {
	switch {
	case h.gone != other.gone:
		return h.gone
	case !h.gone && len(h.events) != len(other.events):
		return len(h.events) > len(other.events)
	}
	return h.events[0].seq < other.events[0].seq
}

func (r *Recorder) dropOldestLocked(uid pod.UID, h *history) {
	h.events = slices.Delete(h.events, 0, 1)
	r.total--
	if len(h.events) == 0 {
		delete(r.pods, uid)
	}
}

// logLevelLocked chooses an event's log level. Warnings warn. Normal events are at Debug,
// because the code that caused them logs them. Repeats are at Debug for logEvery. A pod
// that used up its logLimit logs at Debug only.
func (h *history) logLevelLocked(e *entry, now time.Time) slog.Level {
	if e.event.Type != v1.EventTypeWarning || now.Sub(e.logged) < logEvery {
		return slog.LevelDebug
	}
	if !h.logLimit.AllowN(now, 1) {
		return slog.LevelDebug
	}
	e.logged = now
	return slog.LevelWarn
}

// Filter selects events; the zero value selects all.
type Filter struct {
	// UID, Namespace, Name of the pod; empty for any.
	UID             pod.UID
	Namespace, Name string
}

func (f Filter) matches(e *v1.Event) bool {
	return (f.UID == "" || f.UID == e.InvolvedObject.UID) &&
		(f.Namespace == "" || f.Namespace == e.InvolvedObject.Namespace) &&
		(f.Name == "" || f.Name == e.InvolvedObject.Name)
}

// List returns the events that the filter selects, the one that happened last at
// the end. They are shared and must not be changed.
func (r *Recorder) List(f Filter) []*v1.Event {
	return eventsOf(r.entriesIf(func(e *entry) bool { return f.matches(e.event) }))
}

// restore adds the events that an earlier podd recorded, the one that happened last at the end.
// Their pods may be gone: until more happens to a pod, its events are the first to be dropped.
func (r *Recorder) restore(saved []savedEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range saved {
		uid := s.Event.InvolvedObject.UID
		h := r.historyLocked(uid)
		h.gone = true
		r.seq++
		h.events = append(h.events, &entry{seq: r.seq, combined: s.Combined, event: s.Event})
		r.total++
		r.trimLocked(uid, h)
	}
	r.restored = r.seq
}

// restoredEvents returns the events from before podd's start that were not repeated since.
func (r *Recorder) restoredEvents() []*v1.Event {
	return eventsOf(r.entriesIf(func(e *entry) bool { return e.seq <= r.restored }))
}

// entries returns a copy of each entry, the one that happened last at the end.
func (r *Recorder) entries() []entry { return r.entriesIf(func(*entry) bool { return true }) }

func (r *Recorder) entriesIf(matches func(*entry) bool) []entry {
	r.mu.Lock()
	var found []entry
	for _, h := range r.pods {
		for _, e := range h.events {
			if matches(e) {
				found = append(found, *e)
			}
		}
	}
	r.mu.Unlock()
	slices.SortFunc(found, func(a, b entry) int { return cmp.Compare(a.seq, b.seq) })
	return found
}

func eventsOf(entries []entry) []*v1.Event {
	all := make([]*v1.Event, len(entries))
	for i := range entries {
		all[i] = entries[i].event
	}
	return all
}

// Watch returns a channel that receives after new events, and a function that
// ends that. Many events between two receptions are one.
func (r *Recorder) Watch() (<-chan struct{}, func()) { return r.changes.Subscribe() }

// short cuts a message to some bytes, between characters.
func short(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return s
	}
	const more = " …"
	n := most - len(more)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + more
}

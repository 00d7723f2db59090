package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Span is one state on an axis and how long it was shown.
type Span struct {
	State string `json:"state"`
	// Same is what the state counts as where two agents may say it in two ways;
	// empty for the state itself.
	Same string        `json:"same,omitempty"`
	For  time.Duration `json:"for"`
	// Looks is how often the poller saw it. A start of the agent begins another
	// span of the same state; Starts is how many there had been since the pod was
	// first put into place.
	Looks  int `json:"looks"`
	Starts int `json:"starts,omitempty"`
	// Last is the state at the end of the script.
	Last bool `json:"last,omitempty"`

	since time.Time
	start time.Duration // how much of For is the pod's start, where that is known
}

// Series is what was seen of one generation of a pod: from its manifest being
// put into place until it is replaced or removed.
type Series struct {
	// Axes are the sequences by axis: "phase", "Ready", "app", "app ready" ….
	Axes map[string][]Span `json:"axes"`
	// Final is the last status, flattened: path to value.
	Final map[string]string `json:"final"`
	// Contradictions are what was shown that cannot be.
	Contradictions []string `json:"contradictions,omitempty"`
}

// watched is one pod name of a scenario while its script runs.
type watched struct {
	sane    *sanity // its side's, whose lock is held while a look is taken in
	mu      sync.Mutex
	series  []*Series
	text    string            // the manifest in place; empty when there is none
	uids    map[types.UID]int // which generation a UID is of
	texts   map[string]int    // which generation had that text first
	pod     *v1.Pod           // newest look at the present generation
	present int               // index of the present generation
	looked  bool              // the agent has shown a status of its own making
	blank   bool              // … and since then, started anew, has not looked yet
	starts  int               // how often the agent was started since
	started time.Time         // … and when it was last
}

// put begins a generation (the same text again goes on under the same UID).
func (w *watched) put(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeLocked()
	w.text, w.pod = text, nil
	w.series = append(w.series, &Series{Axes: map[string][]Span{}})
	w.present = len(w.series) - 1
	w.looked, w.blank = false, false
	if w.uids == nil {
		w.uids, w.texts = map[types.UID]int{}, map[string]int{}
	}
	// A UID seen before belongs to the generation with the same text.
	if before, ok := w.texts[text]; ok {
		for uid, generation := range w.uids {
			if generation == before {
				w.uids[uid] = w.present
			}
		}
	}
	w.texts[text] = w.present
}

// take ends the present generation: its manifest goes.
func (w *watched) take() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeLocked()
	w.text, w.pod = "", nil
}

func (w *watched) closeLocked() {
	if w.text == "" || len(w.series) == 0 {
		return
	}
	now := time.Now()
	if w.blank {
		w.noteLocked(w.pod, now)
	}
	s := w.series[w.present]
	for axis, spans := range s.Axes {
		last := &s.Axes[axis][len(spans)-1]
		last.Last, last.For = true, now.Sub(last.since)
	}
	if w.pod != nil {
		s.Final = flatten(w.pod.Status)
	}
}

// start notes that the agent is about to be started; none runs.
func (w *watched) start(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starts++
	w.started = at
}

// see takes in one look at the pod, which was asked for before it came.
func (w *watched) see(p *v1.Pod, asked, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.text == "" || asked.Before(w.started) { // the agent that was there before showed it
		return
	}
	if generation, ok := w.uids[p.UID]; !ok {
		w.uids[p.UID] = w.present
	} else if generation != w.present {
		return // the one before, on its way out
	}
	w.pod = p
	// An agent that has just been started lists its pods before it has looked at
	// them. That it has not looked counts only if it stays so.
	if w.blank = w.looked && len(p.Status.Conditions) == 0; w.blank {
		return
	}
	w.looked = w.looked || len(p.Status.Conditions) > 0
	w.noteLocked(p, at)
	for _, c := range w.sane.contradictions(p) {
		if s := w.series[w.present]; !slices.Contains(s.Contradictions, c) {
			s.Contradictions = append(s.Contradictions, c)
		}
	}
}

// noteLocked goes on with the sequences.
func (w *watched) noteLocked(p *v1.Pod, at time.Time) {
	s := w.series[w.present]
	for axis, state := range axesOf(p) {
		spans := s.Axes[axis]
		if n := len(spans); n > 0 {
			if spans[n-1].State == state.is && spans[n-1].Starts == w.starts {
				spans[n-1].Looks++
				continue
			}
			spans[n-1].For = at.Sub(spans[n-1].since)
		}
		s.Axes[axis] = append(spans, Span{State: state.is, Same: state.same, Looks: 1, Starts: w.starts, since: at})
	}
}

// last is the newest look at the present generation; nil if there was none.
func (w *watched) last() *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod
}

// standing is a state on an axis, and what it counts as (see Span).
type standing struct{ is, same string }

// axesOf is where a pod stands on each axis. Each state begins with how often
// the container, or all of the pod's, had been restarted: what comes again after
// a restart may be no flapping, what comes again without one is.
func axesOf(p *v1.Pod) map[string]standing {
	containers := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses)
	var restarts int32
	axes := map[string]standing{}
	for _, c := range containers {
		restarts += c.RestartCount
		at := func(state string) string { return fmt.Sprintf("#%d %s", c.RestartCount, state) }
		axes[c.Name] = standing{at(stateOf(c.State)), ended(c)}
		axes[c.Name+" ready"] = standing{is: at(fmt.Sprint(c.Ready))}
		axes[c.Name+" started"] = standing{is: at("unset")}
		if c.Started != nil {
			axes[c.Name+" started"] = standing{is: at(fmt.Sprint(*c.Started))}
		}
	}
	// Which container restarted first decides nothing on the pod's own axes.
	at := func(a, b string) standing { return standing{fmt.Sprintf("#%d %s", restarts, join(a, b)), join(a, b)} }
	axes["phase"] = at(string(p.Status.Phase), p.Status.Reason)
	for _, c := range p.Status.Conditions {
		axes[string(c.Type)] = at(string(c.Status), c.Reason)
	}
	return axes
}

// ended is the one word for a container that has ended and may come again: the
// kubelet goes on showing the end until it looks at the pod again, ten seconds
// and more later, and only then the back-off.
func ended(c v1.ContainerStatus) string {
	end := c.State.Terminated
	if w := c.State.Waiting; w != nil && w.Reason == "CrashLoopBackOff" {
		end = c.LastTerminationState.Terminated
	}
	if end == nil {
		return ""
	}
	return fmt.Sprintf("#%d ended:%s:%d", c.RestartCount, end.Reason, end.ExitCode)
}

func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + " " + b
}

// stateOf is a container's state in a few words: what waits match and axes show.
func stateOf(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("terminated:%s:%d", s.Terminated.Reason, s.Terminated.ExitCode)
	case s.Waiting != nil:
		return "waiting:" + s.Waiting.Reason
	default:
		return "waiting:"
	}
}

// flatten is a status as paths and values, times and IDs set aside.
func flatten(status v1.PodStatus) map[string]string {
	text, err := json.Marshal(status)
	if err != nil {
		panic(err) // an API type
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		panic(err)
	}
	flat := map[string]string{}
	flattenInto(flat, "", value)
	return flat
}

// flattenInto names list elements by what tells them apart: a condition's type,
// a container's name.
func flattenInto(flat map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			if key == "observedGeneration" { // of what comes from an apiserver alone
				continue
			}
			if at := join2(path, key); setAside[key] {
				flat[at] = "set"
			} else {
				flattenInto(flat, at, child)
			}
		}
	case []any:
		for i, child := range v {
			name := fmt.Sprint(i)
			if m, ok := child.(map[string]any); ok {
				for _, key := range []string{"type", "name", "mountPath"} {
					if s, ok := m[key].(string); ok {
						name = s
						break
					}
				}
			}
			flattenInto(flat, path+"["+name+"]", child)
		}
	default:
		flat[path] = fmt.Sprint(v)
	}
}

func join2(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// setAside are fields of which only counts that they are there.
var setAside = map[string]bool{
	"startTime": true, "lastProbeTime": true, "lastTransitionTime": true, "startedAt": true, "finishedAt": true,
	"containerID": true, "podIP": true, "ip": true, "hostIP": true,
}

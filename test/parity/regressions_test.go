package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A scenario of the kubelet's and podd's that agree, and an entry of the list that
// they are known to differ in. Everything below is something that podd may come to
// do wrong, and the comparer must say so.

const knownInSelfTest = `
- {scenarios: [s], field: status.hostIP, kubelet: (none), podd: set, why: w}
- {scenarios: [s], field: event Warning FailedMount, kubelet: "no dir", podd: "no dir: it is a file", why: w}
- {scenarios: [s], field: trace, kubelet: GET compressed, podd: GET plain, why: w}
`

func span(state string, seconds float64) Span {
	d := time.Duration(seconds * float64(time.Second))
	return Span{State: state, For: d, Looks: looks(d)}
}

// since is what was seen since a start of the agent.
func since(starts int, spans ...Span) []Span {
	all := slices.Clone(spans)
	for i := range all {
		all[i].Starts = starts
	}
	return all
}

func last(spans ...Span) []Span {
	spans[len(spans)-1].Last = true
	return spans
}

func endOf(state string, seconds float64, same string) Span {
	s := span(state, seconds)
	s.Same = same
	return s
}

// phases are those of a pod that runs, is restarted, and runs on while the agent is
// started again, three times.
func phases(first, second, third []Span) []Span {
	return last(slices.Concat([]Span{span("#0 Pending", 3), span("#0 Running", 20), span("#1 Running", 5)},
		since(1, first...), since(2, second...), since(3, third...))...)
}

func pending(seconds float64) []Span {
	return []Span{span("#1 Pending", seconds), span("#1 Running", 5)}
}

var straight = []Span{span("#1 Running", 5)}

// agreed is the record of a pod that waits for its volume, runs, becomes ready,
// ends, waits for the back-off and runs again, whatever happens to the agent.
func agreed() *Record {
	return &Record{
		Scenario: "s",
		Pods: map[string][]*Series{"s": {{
			Axes: map[string][]Span{
				"phase": phases(pending(0.3), straight, pending(3)),
				"Ready": last(span("#0 False ContainersNotReady", 4), span("#0 True", 8), span("#0 False ContainersNotReady", 10), span("#1 True", 5)),
				"app": last(span("#0 waiting:ContainerCreating", 3), span("#0 running", 9),
					endOf("#0 terminated:Error:3", 10, "#0 ended:Error:3"), span("#1 running", 5)),
				"app ready":   last(span("#0 false", 4), span("#0 true", 8), span("#0 false", 10), span("#1 true", 5)),
				"app started": last(span("#0 false", 3), span("#0 true", 9), span("#0 false", 10), span("#1 true", 5)),
			},
			Final: map[string]string{
				"phase": "Running", "qosClass": "BestEffort", "podIP": "set", "startTime": "set",
				"conditions[Ready].status":                                "True",
				"containerStatuses[app].ready":                            "true",
				"containerStatuses[app].restartCount":                     "1",
				"containerStatuses[app].lastState.terminated.exitCode":    "3",
				"containerStatuses[app].lastState.terminated.message":     "because",
				"containerStatuses[app].state.running.startedAt":          "set",
				"containerStatuses[app].volumeMounts[/v].readOnly":        "true",
				"containerStatuses[app].user.linux.supplementalGroups[0]": "5",
				"containerStatuses[app].lastState.terminated.reason":      "Error",
			},
		}}},
		Events: map[string][]Event{"s": {
			{"", "Warning", "FailedMount", "no dir", 4},
			{"", "Warning", "NodeAffinity", "m", 1},
			{"", "Normal", "Sandbox", "changed", 1},
			{"spec.containers{app}", "Normal", "Pulled", "present", 2},
			{"spec.containers{app}", "Normal", "Created", "created", 2},
			{"spec.containers{app}", "Normal", "Started", "started", 2},
			{"spec.containers{app}", "Warning", "Unhealthy", "Readiness probe failed: 503", 6},
			{"spec.containers{app}", "Warning", "BackOff", "back-off 10s", 3},
		}},
		Trace: []string{"start", "GET compressed", "term", "start"},
	}
}

// goodPodd is podd's record of it: other where the list says so, and where two
// agents may be.
func goodPodd() *Record {
	r := agreed()
	s := r.Pods["s"][0]
	s.Final["hostIP"] = "set"
	r.Events["s"][0].Message = "no dir: it is a file"
	r.Events["s"][0].Count = 1
	r.Trace[1] = "GET plain"
	r.phases(straight, pending(0.05), pending(0.05))
	s.Axes["app"] = slices.Insert(s.Axes["app"], 1, span("#0 waiting:PodInitializing", 0.2))
	return r
}

func (r *Record) phases(first, second, third []Span) {
	r.Pods["s"][0].Axes["phase"] = phases(first, second, third)
}

func (r *Record) axis(name string, spans ...Span) { r.Pods["s"][0].Axes[name] = last(spans...) }

var regressions = map[string]func(r *Record){
	"no FailedMount at all":                        func(r *Record) { r.Events["s"] = r.Events["s"][1:] },
	"a FailedMount without podd's addition":        func(r *Record) { r.Events["s"][0].Message = "no dir" },
	"a FailedMount that says something else":       func(r *Record) { r.Events["s"][0].Message = "no dir: hm" },
	"an event too many":                            func(r *Record) { r.Events["s"] = append(r.Events["s"], Event{"", "Warning", "Rejected", "m", 1}) },
	"a warning that became normal":                 func(r *Record) { r.Events["s"][6].Type = "Normal" },
	"an event of another reason":                   func(r *Record) { r.Events["s"][6].Reason = "ProbeFailed" },
	"an event at the pod, not at the container":    func(r *Record) { r.Events["s"][7].Path = "" },
	"another message":                              func(r *Record) { r.Events["s"][7].Message = "back-off 20s" },
	"created before it is pulled":                  func(r *Record) { e := r.Events["s"]; e[3], e[4] = e[4], e[3] },
	"another order beside one that is excused":     func(r *Record) { e := r.Events["s"]; e[0], e[1] = e[1], e[0] },
	"an order of the pod's behind its FailedMount": func(r *Record) { e := r.Events["s"]; e[1], e[2] = e[2], e[1] },
	"started twice, told twice":                    func(r *Record) { r.Events["s"][5].Count = 3 },
	"pulled fifty times":                           func(r *Record) { r.Events["s"][3].Count = 50 },
	"Unhealthy told 6,000 times":                   func(r *Record) { r.Events["s"][6].Count = 6000 },
	"BackOff told 3,000 times":                     func(r *Record) { r.Events["s"][7].Count = 3000 },
	"the pod's event after all of the container's": func(r *Record) {
		e := r.Events["s"]
		r.Events["s"] = slices.Concat(e[:2], e[3:], e[2:3])
	},
	"no event at all": func(r *Record) { r.Events["s"] = nil },
	"readiness that flaps for 2 s again and again": func(r *Record) {
		r.axis("app ready", span("#0 false", 4), span("#0 true", 2), span("#0 false", 2), span("#0 true", 2), span("#0 false", 2), span("#0 true", 2), span("#0 false", 10), span("#1 true", 5))
	},
	"the Ready condition flaps for 50 ms": func(r *Record) {
		r.axis("Ready", span("#0 False ContainersNotReady", 4), span("#0 True", 4), span("#0 False ContainersNotReady", 0.05), span("#0 True", 4), span("#0 False ContainersNotReady", 10), span("#1 True", 5))
	},
	"never ready before the restart": func(r *Record) { r.axis("app ready", span("#0 false", 22), span("#1 true", 5)) },
	"ready too early, for good":      func(r *Record) { r.axis("app ready", span("#0 true", 12), span("#0 false", 10), span("#1 true", 5)) },
	"ready for 40 s instead of 8": func(r *Record) {
		r.axis("Ready", span("#0 False ContainersNotReady", 4), span("#0 True", 40), span("#0 False ContainersNotReady", 10), span("#1 True", 5))
	},
	"ready for 1 s instead of 8": func(r *Record) {
		r.axis("app ready", span("#0 false", 4), span("#0 true", 1), span("#0 false", 10), span("#1 true", 5))
	},
	"not ready for 2 s instead of 10": func(r *Record) {
		r.axis("app ready", span("#0 false", 4), span("#0 true", 8), span("#0 false", 2), span("#1 true", 5))
	},
	"not ready for 30 s instead of 10": func(r *Record) {
		r.axis("Ready", span("#0 False ContainersNotReady", 4), span("#0 True", 8), span("#0 False ContainersNotReady", 30), span("#1 True", 5))
	},
	"not ready for 9 s instead of 1 once it runs": func(r *Record) {
		r.axis("app ready", span("#0 false", 12), span("#0 true", 8), span("#0 false", 10), span("#1 true", 5))
	},
	"Pending is never shown":           func(r *Record) { a := r.Pods["s"][0].Axes; a["phase"] = a["phase"][1:] },
	"ContainerCreating is never shown": func(r *Record) { a := r.Pods["s"][0].Axes; a["app"] = a["app"][2:] },
	"ready throughout":                 func(r *Record) { r.axis("app ready", span("#0 true", 22), span("#1 true", 5)) },
	"an end that is Failed for a moment": func(r *Record) {
		axes := r.Pods["s"][0].Axes
		axes["phase"] = slices.Insert(axes["phase"], 2, span("#0 Failed", 0.1))
	},
	"a reason that nobody knows, for a moment": func(r *Record) {
		r.axis("app", span("#0 waiting:Starting", 1), span("#0 waiting:ContainerCreating", 3), span("#0 running", 9), endOf("#0 terminated:Error:3", 10, "#0 ended:Error:3"), span("#1 running", 5))
	},
	"one restart more": func(r *Record) {
		r.axis("app", span("#0 waiting:ContainerCreating", 3), span("#0 running", 9), endOf("#0 terminated:Error:3", 10, "#0 ended:Error:3"), span("#1 running", 1), endOf("#1 terminated:Error:3", 1, "#1 ended:Error:3"), span("#2 running", 5))
	},
	"no restart": func(r *Record) {
		r.axis("app", span("#0 waiting:ContainerCreating", 3), span("#0 running", 9), endOf("#0 terminated:Error:3", 10, "#0 ended:Error:3"))
	},
	"another exit code": func(r *Record) {
		r.axis("app", span("#0 waiting:ContainerCreating", 3), span("#0 running", 9), endOf("#0 terminated:Error:137", 10, "#0 ended:Error:137"), span("#1 running", 5))
	},
	"a back-off of 32 s instead of 10": func(r *Record) {
		r.axis("app", span("#0 waiting:ContainerCreating", 3), span("#0 running", 9), endOf("#0 terminated:Error:3", 32, "#0 ended:Error:3"), span("#1 running", 5))
	},
	"a back-off of 2.6 s instead of 10": func(r *Record) {
		r.axis("app", span("#0 waiting:ContainerCreating", 3), span("#0 running", 9), endOf("#0 terminated:Error:3", 2.6, "#0 ended:Error:3"), span("#1 running", 5))
	},
	"a hot crash loop": func(r *Record) {
		r.axis("app", span("#0 waiting:ContainerCreating", 3), span("#0 running", 9), endOf("#0 terminated:Error:3", 0.1, "#0 ended:Error:3"), span("#1 running", 5))
	},
	"a running container that is looked at as waiting": func(r *Record) {
		r.axis("app", span("#0 waiting:ContainerCreating", 12), endOf("#0 terminated:Error:3", 10, "#0 ended:Error:3"), span("#1 running", 5))
	},

	// What an agent shows that has been started again.
	"a phase that is wrong at two looks after a start": func(r *Record) { r.phases(straight, pending(0.1), pending(0.05)) },
	"… for a second after a start":                     func(r *Record) { r.phases(straight, pending(1), pending(0.05)) },
	"… for good after a start":                         func(r *Record) { r.phases(straight, pending(0.05), []Span{span("#1 Pending", 5)}) },
	"… at a look after a start, and at a later one":    func(r *Record) { r.phases(straight, slices.Concat(pending(0.05), pending(0.05)), pending(0.05)) },
	"… at a later look after a start only":             func(r *Record) { r.phases(straight, slices.Concat(straight, pending(0.05)), pending(0.05)) },
	"… twice after a start, the kubelet's once":        func(r *Record) { r.phases(straight, pending(0.05), slices.Concat(pending(0.05), pending(0.05))) },
	"Failed at a look after a start": func(r *Record) {
		r.phases(straight, []Span{span("#1 Failed", 0.05), span("#1 Running", 5)}, pending(0.05))
	},
	"a start of the agent that restarts the container": func(r *Record) {
		r.phases(straight, []Span{span("#1 Pending", 0.05), span("#2 Running", 5)}, pending(0.05))
	},
	"what the kubelet shows for seconds after a start": func(r *Record) { r.phases(straight, pending(0.05), straight) },
	"nothing is shown after a start":                   func(r *Record) { r.phases(nil, nil, nil) },

	"an end before its start":             func(r *Record) { r.Pods["s"][0].Contradictions = []string{"app finished before it started"} },
	"another phase at the end":            func(r *Record) { r.Pods["s"][0].Final["phase"] = "Failed" },
	"a restart that is not counted":       func(r *Record) { r.Pods["s"][0].Final["containerStatuses[app].restartCount"] = "0" },
	"no message of the end":               func(r *Record) { delete(r.Pods["s"][0].Final, "containerStatuses[app].lastState.terminated.message") },
	"no address":                          func(r *Record) { delete(r.Pods["s"][0].Final, "podIP") },
	"a field that upstream has not":       func(r *Record) { r.Pods["s"][0].Final["reason"] = "Hm" },
	"the node's address is gone again":    func(r *Record) { delete(r.Pods["s"][0].Final, "hostIP") },
	"a condition that podd has not":       func(r *Record) { delete(r.Pods["s"][0].Axes, "Ready") },
	"a condition of podd's own":           func(r *Record) { r.axis("Splendid", span("#0 True", 9)) },
	"a pod that is never listed":          func(r *Record) { r.Pods = nil },
	"a second pod that nobody asked for":  func(r *Record) { r.Pods["s"] = append(r.Pods["s"], agreed().Pods["s"][0]) },
	"containers started in another order": func(r *Record) { r.Trace[2], r.Trace[3] = r.Trace[3], r.Trace[2] },
	"no SIGTERM":                          func(r *Record) { r.Trace = slices.Delete(r.Trace, 2, 3) },
	"run twice":                           func(r *Record) { r.Trace = append(r.Trace, "start") },
	"a request that is another":           func(r *Record) { r.Trace[1] = "POST plain" },
	"nothing was run":                     func(r *Record) { r.Trace = nil },
	"podd does not come through":          func(r *Record) { r.Failed = "line 2, wait Ready=True: not within 30s" },
}

func complaintsOf(t *testing.T, upstream, ours *Record) []string {
	t.Helper()
	known, err := listOf(t, knownInSelfTest)
	if err != nil {
		t.Fatal(err)
	}
	open, _ := sortOut(compare(upstream, ours, asKubelet), known)
	r := outcome{Name: "s", Open: open}
	if upstream.Failed == "" && ours.Failed == "" {
		r.Expired = expired(known, "s", asKubelet)
	}
	return r.complaints()
}

func TestEveryRegressionIsDetected(t *testing.T) {
	if got := complaintsOf(t, agreed(), goodPodd()); len(got) != 0 {
		t.Fatalf("a podd that is as it should be: %q", got)
	}
	if len(regressions) < 25 {
		t.Errorf("got %d regressions, want at least 25", len(regressions))
	}
	for name, spoil := range regressions {
		bad := goodPodd()
		spoil(bad)
		if got := complaintsOf(t, agreed(), bad); len(got) == 0 {
			t.Errorf("%s: nothing is told", name)
		}
	}
}

// TestStatesThatPoddHardlyEverShowsAreTold: in one scenario podd may have been too quick.
func TestStatesThatPoddHardlyEverShowsAreTold(t *testing.T) {
	record := func(phase, app string) *Record {
		return &Record{Pods: map[string][]*Series{"s": {{Axes: map[string][]Span{
			"phase": last(span(phase, 0.3), span("#0 Running", 5)), "app": last(span(app, 0.2), span("#0 running", 5)),
		}}}}}
	}
	theirs := record("#0 Pending", "#0 waiting:ContainerCreating")
	for name, c := range map[string]struct {
		ours  func(i int) *Record
		pods  int
		wants []string
	}{
		"always": {func(int) *Record { return theirs }, 20, nil},
		"now and then not": {func(i int) *Record {
			if i%5 == 0 {
				return record("#0 Running", "#0 running")
			}
			return theirs
		}, 20, nil},
		"Pending never":           {func(int) *Record { return record("#0 Running", "#0 waiting:ContainerCreating") }, 20, []string{"Pending: the kubelet shows it 20 times, podd 0"}},
		"ContainerCreating never": {func(int) *Record { return record("#0 Pending", "#0 running") }, 20, []string{"waiting:ContainerCreating: the kubelet shows it 20 times, podd 0"}},
		"of too few":              {func(int) *Record { return record("#0 Running", "#0 running") }, 9, nil},
	} {
		all := starts{}
		for i := range c.pods {
			all.add(theirs, c.ours(i))
		}
		if got := all.rarely(); !slices.Equal(got, c.wants) {
			t.Errorf("%s: got %q, want %q", name, got, c.wants)
		}
	}
}

func TestAScenarioThatFailsOnBothSidesIsAnError(t *testing.T) {
	a, b := agreed(), goodPodd()
	a.Failed, b.Failed = "line 1: not within 30s", "line 1: not within 30s"
	if got := complaintsOf(t, a, b); len(got) != 1 || !strings.Contains(got[0], "script") {
		t.Errorf("got %q, want one complaint about the script", got)
	}
	b.Failed = ""
	if got := complaintsOf(t, a, b); len(got) != 1 {
		t.Errorf("the kubelet alone: got %q, want one complaint", got)
	}
}

// TestEveryFieldOfTheRecordDecides changes one leaf of podd's record after the
// other: nothing in it may be looked past, but for what doc.go sets aside.
func TestEveryFieldOfTheRecordDecides(t *testing.T) {
	for i := range goodPodd().Events["s"] {
		for _, change := range []func(*Event){
			func(e *Event) { e.Path += "x" }, func(e *Event) { e.Type += "x" }, func(e *Event) { e.Reason += "x" }, func(e *Event) { e.Message += "x" },
		} {
			bad := goodPodd()
			change(&bad.Events["s"][i])
			if len(complaintsOf(t, agreed(), bad)) == 0 {
				t.Errorf("event %+v: nothing is told", bad.Events["s"][i])
			}
		}
	}
	for path := range goodPodd().Pods["s"][0].Final {
		bad := goodPodd()
		bad.Pods["s"][0].Final[path] += "x"
		if len(complaintsOf(t, agreed(), bad)) == 0 {
			t.Errorf("%s: nothing is told", path)
		}
	}
	for axis, spans := range goodPodd().Pods["s"][0].Axes {
		for i, s := range spans {
			bad := goodPodd()
			bad.Pods["s"][0].Axes[axis][i].State, bad.Pods["s"][0].Axes[axis][i].Same = s.State+"x", ""
			if len(complaintsOf(t, agreed(), bad)) == 0 {
				t.Errorf("%s: %s: nothing is told", axis, bad.Pods["s"][0].Axes[axis][i].State)
			}
		}
	}
	// That something was seen once, and at the start of an agent, excuses it.
	for i, s := range goodPodd().Pods["s"][0].Axes["phase"] {
		if s.State != "#1 Pending" || s.Starts != 2 {
			continue
		}
		for name, change := range map[string]func(*Span){
			"looks": func(s *Span) { s.Looks++ }, "starts before": func(s *Span) { s.Starts-- }, "starts after": func(s *Span) { s.Starts++ },
		} {
			bad := goodPodd()
			change(&bad.Pods["s"][0].Axes["phase"][i])
			if len(complaintsOf(t, agreed(), bad)) == 0 {
				t.Errorf("phase: %s of %+v: nothing is told", name, bad.Pods["s"][0].Axes["phase"][i])
			}
		}
	}
	for i := range goodPodd().Trace {
		bad := goodPodd()
		bad.Trace[i] += "x"
		if len(complaintsOf(t, agreed(), bad)) == 0 {
			t.Errorf("trace %q: nothing is told", bad.Trace[i])
		}
	}
}

// TestRecordsSurviveTheirFile keeps -agent=none, which compares records of an
// earlier run, as strict as a run.
func TestRecordsSurviveTheirFile(t *testing.T) {
	o := options{keep: t.TempDir()}
	if err := o.save("podd", agreed()); err != nil {
		t.Fatal(err)
	}
	got, err := o.load("podd", "s")
	if err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(got)
	y, _ := json.Marshal(agreed())
	if string(x) != string(y) || len(compare(agreed(), got, asKubelet)) != 0 {
		t.Errorf("got %s, want %s", x, y)
	}
	if _, err := (options{keep: fmt.Sprint(o.keep, "/none")}).load("podd", "s"); err == nil {
		t.Error("no record: got no error")
	}
}

package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// spans reads "state seconds | state seconds*", the star being the end of the
// script. A state "down/x" counts as x, "1~x" is x after a restart of its container,
// "^x" is x after a start of the agent.
func spans(t *testing.T, text string) []Span {
	t.Helper()
	var all []Span
	starts := 0
	for part := range strings.SplitSeq(text, "|") {
		state, length, ok := strings.Cut(strings.TrimSpace(part), " ")
		if !ok {
			t.Fatalf("%q is not of the form: state seconds", part)
		}
		last := strings.HasSuffix(length, "*")
		d, err := time.ParseDuration(strings.TrimSuffix(length, "*") + "s")
		if err != nil {
			t.Fatal(err)
		}
		for strings.HasPrefix(state, "^") {
			starts, state = starts+1, state[1:]
		}
		life := "#0 "
		if n, rest, ok := strings.Cut(state, "~"); ok {
			life, state = "#"+n+" ", rest
		}
		_, same, _ := strings.Cut(state, "/")
		if same != "" {
			same = "#0 ended:" + same
		}
		all = append(all, Span{State: life + state, Same: same, For: d, Looks: looks(d), Starts: starts, Last: last})
	}
	return all
}

// looks is how often the poller sees a state that lasts so long.
func looks(d time.Duration) int { return int(max(1, d/tick)) }

func TestSequences(t *testing.T) {
	for name, c := range map[string]struct {
		kubelet, podd string
		want          []string
	}{
		"alike":                                {"a 5 | b 5*", "a 1 | b 9*", nil},
		"a blink on one side":                  {"running 5 | b 5*", "running 5 | waiting:PodInitializing 0.2 | b 5*", nil},
		"a blink on the other":                 {"a 5 | waiting:CrashLoopBackOff 1 | b 5*", "a 5 | b 5*", nil},
		"a blink of what never passes":         {"a 5 | b 5*", "a 5 | Failed 0.2 | b 5*", []string{"sequence x: (none) | #0 Failed after #0 a"}},
		"what lasts must be on both":           {"a 5 | b 5*", "a 5 | running 4 | b 5*", []string{"sequence x: (none) | #0 running after #0 a"}},
		"what the kubelet shows must be, too":  {"a 5 | running 8 | b 5*", "a 5 | b 5*", []string{"sequence x: #0 running after #0 a | (none)"}},
		"what the kubelet is late to leave":    {"a 5 | running 4 | b 5*", "a 5 | b 5*", nil},
		"a blink there matches what lasts":     {"a 5 | running 4 | b 5*", "a 5 | running 0.1 | b 5*", nil},
		"another end":                          {"a 5 | b 0.1*", "a 5 | c 0.1*", []string{"sequence x: #0 b after #0 a, at the end | (none)", "sequence x: (none) | #0 c after #0 a, at the end"}},
		"another order":                        {"a 5 | b 5 | c 5*", "b 5 | a 5 | c 5*", []string{"sequence x: #0 a | (none)", "sequence x: (none) | #0 a after #0 b"}},
		"a blink that splits a state":          {"true 9 | b 5*", "true 4 | false 0.3 | true 4 | b 5*", []string{"sequence x: (none) | #0 true after #0 false", "entries of x: #0 true: 1 | #0 true: 2"}},
		"flaps of 2 s":                         {"true 9*", "true 2 | false 2 | true 2 | false 2 | true 2*", []string{"entries of x: #0 false: 0 | #0 false: 2", "entries of x: #0 true: 1 | #0 true: 3"}},
		"flaps that are as many":               {"true 1 | false 1 | true 9*", "true 3 | false 2 | true 9*", nil},
		"up and down within a blink":           {"false 9*", "false 3 | true 0.1 | false 5*", nil},
		"up and down again and again":          {"false 9*", "false 3 | true 0.1 | false 5 | true 0.1 | false 5*", []string{"sequence x: (none) | #0 false after #0 true", "sequence x: (none) | #0 false after #0 true, at the end", "entries of x: #0 false: 1 | #0 false: 3", "entries of x: #0 true: 0 | #0 true: 2"}},
		"down for a blink":                     {"true 9*", "true 3 | false 0.1 | true 5*", []string{"sequence x: (none) | #0 true after #0 false, at the end", "entries of x: #0 true: 1 | #0 true: 2"}},
		"down for a blink before a restart":    {"false 3 | true 9 | 1~true 3*", "false 3 | true 9 | false 1 | 1~true 3*", nil},
		"the kubelet is late after a restart":  {"true 9 | 1~true 1 | 1~false 3 | 1~true 3*", "true 9 | 1~false 3 | 1~true 3*", nil},
		"it is very late":                      {"true 9 | 1~true 3 | 1~false 3 | 1~true 3*", "true 9 | 1~false 3 | 1~true 3*", []string{"entries of x: #1 true: 2 | #1 true: 1"}},
		"podd is late after a restart":         {"true 9 | 1~false 3 | 1~true 3*", "true 9 | 1~true 1 | 1~false 3 | 1~true 3*", []string{"entries of x: #1 true: 1 | #1 true: 2"}},
		"down for longer before a restart":     {"false 3 | true 9 | 1~true 3*", "false 3 | true 9 | false 8 | 1~true 3*", []string{"sequence x: (none) | #0 false after #0 true", "entries of x: #0 false: 1 | #0 false: 2"}},
		"down, and no restart":                 {"false 3 | true 9*", "false 3 | true 9 | false 1 | true 3*", []string{"sequence x: (none) | #0 true after #0 false, at the end", "entries of x: #0 false: 1 | #0 false: 2", "entries of x: #0 true: 1 | #0 true: 2"}},
		"a flap of the kubelet's":              {"true 3 | false 1 | true 3*", "true 9*", []string{"sequence x: #0 true after #0 false, at the end | (none)", "entries of x: #0 true: 2 | #0 true: 1"}},
		"a glimpse between two states":         {"false 1 | true 3 | false 0.1 | failed 2*", "false 1 | true 3 | failed 2*", nil},
		"two glimpses":                         {"false 1 | true 3 | false 0.1 | failed 2 | false 0.1 | over 3*", "false 1 | true 3 | failed 2 | over 3*", []string{"entries of x: #0 false: 3 | #0 false: 1"}},
		"more than a glimpse":                  {"false 1 | true 3 | failed 2*", "false 1 | true 3 | false 0.6 | failed 2*", []string{"entries of x: #0 false: 1 | #0 false: 2"}},
		"two words for one state":              {"run 5 | end/down 9 | run2 5*", "run 5 | end/down 0.1 | back-off/down 9 | run2 5*", nil},
		"a back-off that is none":              {"run 5 | end/down 12 | run2 5*", "run 5 | end/down 1 | run2 5*", []string{"time of x: #0 ended:down for 12s | #0 ended:down for 1s"}},
		"a back-off that the kubelet prolongs": {"run 5 | end/down 22 | run2 5*", "run 5 | end/down 10 | run2 5*", nil},
		"an agent that is started again":       {"Failed 5 | ^Failed 3*", "Failed 5 | ^Failed 3*", nil},
		"a start that podd hid":                {"Failed 5 | ^Pending 0.4 | Failed 3*", "Failed 5 | ^Failed 3*", nil},
		"a start that the kubelet hid":         {"Failed 5 | ^Failed 3*", "Failed 5 | ^Pending 0.05 | Failed 3*", nil},
		"a start that both show":               {"Failed 5 | ^Pending 3 | Failed 3*", "Failed 5 | ^Pending 0.05 | Failed 3*", nil},
		"two starts":                           {"Failed 5 | ^Pending 0.4 | Failed 3 | ^Failed 3*", "Failed 5 | ^Failed 3 | ^Pending 0.05 | Failed 3*", nil},
		"a start that leads on":                {"Pending 5 | ^Pending 0.4 | True 3*", "Pending 5 | ^True 3*", nil},
		"two looks after a start":              {"Failed 5 | ^Failed 3*", "Failed 5 | ^Pending 0.1 | Failed 3*", []string{"sequence x: (none) | #0 Failed after #0 Pending, at the end", "entries of x: #0 Failed: 1 | #0 Failed: 2"}},
		"the kubelet's second after a start":   {"Failed 5 | ^Pending 1 | Failed 3*", "Failed 5 | ^Failed 3*", []string{"sequence x: #0 Failed after #0 Pending, at the end | (none)", "entries of x: #0 Failed: 2 | #0 Failed: 1"}},
		"one look, and no start":               {"Failed 5 | ^Failed 3*", "Failed 5 | ^Failed 1 | Pending 0.05 | Failed 3*", []string{"sequence x: (none) | #0 Failed after #0 Pending, at the end", "entries of x: #0 Failed: 1 | #0 Failed: 2"}},
		"one look, before a start":             {"Failed 5 | ^Failed 3*", "Failed 5 | Pending 0.05 | ^Failed 3*", []string{"sequence x: (none) | #0 Failed after #0 Pending, at the end", "entries of x: #0 Failed: 1 | #0 Failed: 2"}},
		"another look after a start":           {"Failed 5 | ^Failed 3*", "Failed 5 | ^Pending 0.05 | Failed 1 | Pending 0.05 | Failed 3*", []string{"sequence x: (none) | #0 Failed after #0 Pending, at the end", "entries of x: #0 Failed: 1 | #0 Failed: 2"}},
		"one look at what never passes":        {"True 5 | ^True 3*", "True 5 | ^Failed 0.05 | True 3*", []string{"sequence x: (none) | #0 Failed after #0 True", "sequence x: (none) | #0 True after #0 Failed, at the end", "entries of x: #0 True: 1 | #0 True: 2"}},
		"one look, and then something else":    {"Failed 5 | ^Failed 3*", "Failed 5 | ^Pending 0.05 | Lost 3*", []string{"sequence x: (none) | #0 Lost after #0 Pending, at the end"}},
		"one look at the end":                  {"Failed 5 | ^Failed 3*", "Failed 5 | ^Pending 0.05*", []string{"sequence x: (none) | #0 Pending after #0 Failed, at the end"}},
		"one look, and the next start":         {"Failed 5 | ^Failed 3 | ^Failed 3*", "Failed 5 | ^Pending 0.05 | ^Failed 3*", []string{"sequence x: (none) | #0 Failed after #0 Pending, at the end", "entries of x: #0 Failed: 1 | #0 Failed: 2"}},
		"one look, the other's at none":        {"Failed 5 | ^^Failed 3*", "Failed 5 | ^Pending 0.05 | Failed 1 | ^Failed 3*", []string{"sequence x: (none) | #0 Failed after #0 Pending, at the end", "entries of x: #0 Failed: 1 | #0 Failed: 2"}},
		"one look at a start of its own":       {"Failed 5 | ^Failed 3*", "Failed 5 | ^Failed 3 | ^Pending 0.05 | Failed 3*", []string{"sequence x: (none) | #0 Failed after #0 Pending, at the end", "entries of x: #0 Failed: 1 | #0 Failed: 2"}},
		"nothing seen":                         {"a 5*", "a 5 | b 5*", []string{"sequence x: (none) | #0 b after #0 a, at the end"}},
	} {
		var got []string
		for _, p := range compareSpans("x", spans(t, c.kubelet), spans(t, c.podd)) {
			got = append(got, p.field+": "+p.kubelet+" | "+p.podd)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestEventsAreComparedByPathInOrder(t *testing.T) {
	app := func(reason string) Event { return Event{"spec.containers{app}", "Normal", reason, "m", 1} }
	says := func(reason, message string) Event { return Event{"spec.containers{app}", "Normal", reason, message, 1} }
	side := func(reason string) Event { return Event{"spec.containers{side}", "Normal", reason, "m", 1} }
	often := func(reason string, n int) Event { return Event{"", "Normal", reason, "m", n} }
	for name, c := range map[string]struct {
		kubelet, podd []Event
		want          []string
	}{
		"across paths any order": {[]Event{app("Pulled"), side("Pulled")}, []Event{side("Pulled"), app("Pulled")}, nil},
		"within a path in order": {[]Event{app("Pulled"), app("Created")}, []Event{app("Created"), app("Pulled")},
			[]string{"order of events app: Pulled, Created | Created, Pulled"}},
		"order beside one that says something else": {
			[]Event{says("Failed", "x"), app("Pulled"), app("Created")}, []Event{says("Failed", "y"), app("Created"), app("Pulled")},
			[]string{"event app Normal Failed: x | y", "order of events app: Failed, Pulled, Created | Failed, Created, Pulled"}},
		"order beside one that is missing": {
			[]Event{says("Failed", "x"), app("Pulled"), app("Created")}, []Event{app("Created"), app("Pulled")},
			[]string{"event app Normal Failed: x | (none)", "order of events app: Pulled, Created | Created, Pulled"}},
		"another place in the order":        {[]Event{says("F", "x"), app("P")}, []Event{app("P"), says("F", "y")}, []string{"event app Normal F: x | y", "order of events app: F, P | P, F"}},
		"repeats of what hangs on looking":  {[]Event{often("BackOff", 9)}, []Event{often("BackOff", 2)}, nil},
		"a start too many":                  {[]Event{often("Started", 1)}, []Event{often("Started", 2)}, []string{"count of event Normal Started: 1 | 2"}},
		"one too few":                       {[]Event{app("Pulled"), app("Created")}, []Event{app("Pulled")}, []string{"event app Normal Created: m | (none)"}},
		"another path":                      {[]Event{app("Pulled")}, []Event{side("Pulled")}, []string{"event app Normal Pulled: m | (none)", "event side Normal Pulled: (none) | m"}},
		"what says the same is the partner": {[]Event{says("U", "a"), says("U", "b")}, []Event{says("U", "b")}, []string{"event app Normal U: a | (none)"}},
	} {
		var got []string
		for _, p := range compareEvents(c.kubelet, c.podd, true) {
			got = append(got, p.field+": "+p.kubelet+" | "+p.podd)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestEventsThatSayTheSameAreGathered(t *testing.T) {
	got := gather([]Event{{"p", "N", "A", "m", 1}, {"p", "N", "B", "m", 1}, {"p", "N", "A", "m", 2}})
	if want := []Event{{"p", "N", "A", "m", 3}, {"p", "N", "B", "m", 1}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLinesThatStandAloneInOnePlaceAreOneThatDiffers(t *testing.T) {
	lines := strings.Fields
	for name, c := range map[string]struct {
		kubelet, podd string
		want          []pair
	}{
		"alike":     {"a b c", "a b c", nil},
		"another":   {"a x c", "a y c", []pair{{"trace", "x", "y"}}},
		"missing":   {"a b c", "a c", []pair{{"trace", "b", none}}},
		"too many":  {"a c", "a c c", []pair{{"trace", none, "c"}}},
		"order":     {"a b", "b a", []pair{{"trace", none, "a"}, {"trace", "a", none}}},
		"empty":     {"", "a", []pair{{"trace", none, "a"}}},
		"the start": {"x b", "y z b", []pair{{"trace", "x", "y"}, {"trace", none, "z"}}},
	} {
		got := compareLines("trace", lines(c.kubelet), lines(c.podd))
		slices.SortFunc(got, func(a, b pair) int { return strings.Compare(a.kubelet, b.kubelet) })
		slices.SortFunc(c.want, func(a, b pair) int { return strings.Compare(a.kubelet, b.kubelet) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// TestScenariosAreWhole reads all of them as a run would, manifests included.
func TestScenariosAreWhole(t *testing.T) {
	all, err := loadScenarios("scenarios", "")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 240 {
		t.Errorf("got %d scenarios, want at least 240", len(all))
	}
	values := map[string]string{"OUT": "/o", "TOOLS": "/t", "REGISTRY": "r:1", "REGISTRYPORT": "1", "PORT": "1", "PORT2": "2"}
	for _, s := range all {
		values["NAME"] = s.Name
		for file := range s.Files {
			text, err := s.manifest(file, file, values)
			if err != nil {
				t.Errorf("%s: %v", s.Name, err)
			} else if names, err := s.podNames(file, text); err != nil || (len(names) == 0) != onlyObjects(text) {
				t.Errorf("%s: %s: pods %v, %v", s.Name, file, names, err)
			} else if i := strings.Index(text, "@"); i >= 0 {
				t.Errorf("%s: %s: a placeholder that nobody fills: %.20s", s.Name, file, text[i:])
			}
		}
	}
}

func TestScenariosThatAreNone(t *testing.T) {
	const manifest = "-- pod.yaml --\nspec: {}\n"
	for text, want := range map[string]string{
		"wait pod x=y\n" + manifest:                   "says what it is about",
		"# about\n" + manifest:                        "says what it is about",
		"# about\nwait pod x=y\n":                     "says what it is about",
		"# about\ndance\n" + manifest:                 "dance: unknown command",
		"# about\nserve b.yaml\n" + manifest:          "no manifest b.yaml",
		"# about\nwait\n" + manifest:                  "wait: wants POD",
		"# about\nwait pod and b x\n" + manifest:      "POD[/CONTAINER] FACT",
		"# about\nremove b.yaml\n" + manifest:         "no manifest b.yaml",
		"# about\nsleep long\n" + manifest:            "duration",
		"# about\nwait pod a='b\n" + manifest:         "unterminated quote",
		"# about\nwait pod a=b within x\n" + manifest: "duration",
	} {
		if _, err := parseScenario("s", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

// What the kubelet has lost of an evicted pod is no difference; that podd loses it is one, and so
// is what hangs on nothing lost.
func TestContainersThatTheKubeletLostByAnEviction(t *testing.T) {
	const state, code = "containerStatuses[app].state.terminated.reason", "containerStatuses[app].state.terminated.exitCode"
	of := func(reason, ended, exit string) *Series {
		return &Series{
			Axes:  map[string][]Span{"phase": last(span("#0 Running", 5), span("#0 Failed "+reason, 5)), "app": last(span("#0 running", 5), span("#0 terminated:"+ended, 5))},
			Final: map[string]string{"phase": "Failed", "reason": reason, state: ended, code: exit, "initContainerStatuses[side].restartCount": "0"},
		}
	}
	lost, told := of("Evicted", "ContainerStatusUnknown", "137"), of("Evicted", "Error", "4")
	if got := compareSeries(lost, told); got != nil {
		t.Errorf("lost by the kubelet: got %v", got)
	}
	if got := compareSeries(told, lost); len(got) < 3 {
		t.Errorf("lost by podd: got %v, want the sequence and two fields", got)
	}
	if got := compareSeries(of("Lost", "ContainerStatusUnknown", "137"), of("Lost", "Error", "4")); len(got) < 3 {
		t.Errorf("lost without an eviction: got %v, want the sequence and two fields", got)
	}
	told.Final["initContainerStatuses[side].restartCount"] = "1"
	if got := compareSeries(lost, told); len(got) != 1 {
		t.Errorf("another container restarted: got %v, want one field", got)
	}
}

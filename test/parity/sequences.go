package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// blink is how long a state of podd's must last that the kubelet has to show, too,
// and late that of the kubelet's that podd has to show: what podd passes through in
// a moment the kubelet shows from one look to another, seconds on a busy machine. With
// 1.5 s a whole run beside other work told eleven scenarios more, in all of which the
// kubelet was late to show that a container runs, or has ended.
// A glimpse is what either may show or not, whoever was quicker.
const (
	glimpse = 500 * time.Millisecond
	blink   = 2500 * time.Millisecond
	late    = 3 * blink
)

// passing are the states that a pod may pass through unseen: the kubelet looks
// once a second, podd when something happens. Any other state (an end of the pod,
// an unknown reason) is a difference however short it was.
var passing = regexp.MustCompile(`^#\d+ (` + strings.Join([]string{
	`Pending`, `Running`, // phases
	`True`, `False`, `(True|False) (ContainersNotReady|ContainersNotInitialized|ReadinessGatesNotReady)`, // conditions
	`true`, `false`, `unset`, // ready, started
	`running`, `terminated:(Completed|Error|OOMKilled|StartError):\d+`,
	`waiting:(ContainerCreating|PodInitializing|CrashLoopBackOff|ErrImagePull|ImagePullBackOff|PostStartHookError|RestartingAllContainers)`,
}, "|") + `)$`)

// starting are those of them that every start takes, on podd too, by more than the poller
// takes from look to look.
var starting = regexp.MustCompile(`^#0 (Pending|waiting:(ContainerCreating|PodInitializing))$`)

func (s Span) lasted() bool { return s.Last || s.For >= blink }

// key is what a state counts as.
func (s Span) key() string { return cmp.Or(s.Same, s.State) }

// compareSpans compares the states of one axis; doc.go has the rule.
func compareSpans(axis string, a, b []Span) []pair {
	a, b = started(a, b, hasty[0]), started(b, a, hasty[1])
	if axis == string(v1.PodReadyToStartContainers) {
		a, b = begun(a), begun(b)
	}
	a, b = current(merge(a)), merge(b)
	a, b = unseen(a, b), unseen(b, a)
	kept := align(a, b)
	var all []pair
	paired := [2]map[int]bool{{}, {}}
	for _, k := range kept {
		paired[0][k[0]], paired[1][k[1]] = true, true
		all = append(all, compareTimes(axis, a[k[0]], b[k[1]])...)
	}
	glimpses := [2]map[string]int{{}, {}}
	for side, spans := range [][]Span{a, b} {
		for i, s := range spans {
			if paired[side][i] {
				continue
			}
			limit := [...]time.Duration{late, blink}[side]
			if starting.MatchString(s.State) {
				limit = blink
			}
			brief := !s.Last && s.For < limit
			if brief && passing.MatchString(s.State) {
				if i > 0 && s.For < glimpse {
					glimpses[side][s.key()]++
				}
				continue
			}
			p := pair{"sequence " + axis, none, none}
			if side == 0 {
				p.kubelet = described(spans, i)
			} else {
				p.podd = described(spans, i)
			}
			all = append(all, p)
		}
	}
	return append(all, compareEntries(axis, a, b, glimpses)...)
}

// current leaves out what the kubelet shows of a container's last life for a moment when
// it counts the next one already: that it is ready. podd counts and shows both at once.
func current(spans []Span) []Span {
	var all []Span
	for i, s := range spans {
		stale := i > 0 && i+1 < len(spans) && s.For < blink && lives(spans[i-1]) != lives(s) && lives(s) == lives(spans[i+1]) &&
			strings.HasSuffix(spans[i-1].State, " true") && strings.HasSuffix(s.State, " true") && strings.HasSuffix(spans[i+1].State, " false")
		if !stale {
			all = append(all, s)
		}
	}
	return all
}

// begun leaves out that there is no sandbox at the start: how long it takes hangs on
// the machine, and podd's is often there before anybody looks.
func begun(spans []Span) []Span {
	for len(spans) > 1 && spans[0].State == "#0 False" {
		spans = spans[1:]
	}
	return spans
}

// described is a state with the one before it.
func described(spans []Span, i int) string {
	what := spans[i].State
	if i > 0 {
		what += " after " + spans[i-1].State
	}
	if spans[i].Last {
		what += ", at the end"
	}
	return what
}

// up are the states of a container, and of its pod, that ran for a moment.
var up = regexp.MustCompile(`^#\d+ (True|true|running)$`)

// down are those of one that is between two of its lives.
var down = regexp.MustCompile(`^(#\d+ )?(False( ContainersNotReady)?|false|Pending|ended:\w+:\d+)$`)

// between is how long that may last unseen: the kubelet makes a whole restart in
// one go, stop included, and shows nothing of it.
const between = late

// lives is the number of restarts that a state begins with.
func lives(s Span) string {
	n, _, _ := strings.Cut(s.State, " ")
	return n
}

// betweenLives says whether a state is the last before a restart or the first
// after it.
func betweenLives(spans []Span, i int) bool {
	return i+1 < len(spans) && lives(spans[i]) != lives(spans[i+1]) || i > 0 && i+1 < len(spans) && lives(spans[i-1]) != lives(spans[i])
}

// unseen takes out of a sequence what the other side may have missed for good: a
// container that came up and ended again within a blink, once in each of its
// lives, and one that was down between two of them. A container that was down
// within a life is nothing to miss.
func unseen(spans, other []Span) []Span {
	shown, there := map[string]int{}, map[string]int{}
	for _, s := range spans {
		shown[s.State]++
	}
	for _, s := range other {
		there[s.State]++
	}
	missed := func(i int) bool {
		s := spans[i]
		if i > 0 && !s.Last && s.For < between && down.MatchString(s.key()) && betweenLives(spans, i) {
			return there[s.State] < shown[s.State] // else the other side has not missed it
		}
		return !s.lasted() && up.MatchString(s.State) && shown[s.State] == 1 && there[s.State] == 0
	}
	var all []Span
	for i, s := range spans {
		if !missed(i) {
			all = append(all, s)
		}
	}
	return merge(all)
}

// compareEntries says which state was entered more often on one side. One that a
// side never showed is the alignment's matter, unless the other shows it again and
// again; so is a single glimpse of a state (glimpses, by side and state) between two
// others.
func compareEntries(axis string, a, b []Span, glimpses [2]map[string]int) []pair {
	entered := func(spans []Span) map[string]int {
		by := map[string]int{}
		for _, s := range spans {
			by[s.key()]++
		}
		return by
	}
	x, y := entered(a), entered(b)
	var all []pair
	for _, state := range keys(x, y) {
		m, n := x[state], y[state]
		once := m == n+1 && glimpses[0][state] == 1 || n == m+1 && glimpses[1][state] == 1
		if m != n && max(m, n) > 1 && !once {
			all = append(all, pair{"entries of " + axis, fmt.Sprintf("%s: %d", state, m), fmt.Sprintf("%s: %d", state, n)})
		}
	}
	return all
}

// compareTimes compares how long two things lasted: an end, with the back-off after it,
// until the next start, and that something is ready or not. The kubelet looks late, by up
// to as long as either is; podd shows a change when it comes, or a moment later on a busy
// machine. Other times hang on the machine and on the script.
func compareTimes(axis string, a, b Span) []pair {
	if a.Last || b.Last {
		return nil
	}
	x, y, early := a.For-a.start, b.For-b.start, 2*time.Second
	switch {
	case strings.Contains(a.Same, " ended:"):
	case isReadiness(axis):
		early = blink
	default:
		return nil
	}
	if y <= x+2*blink && y >= x/2-early {
		return nil
	}
	text := func(s Span, d time.Duration) string { return fmt.Sprintf("%s for %v", s.key(), d.Round(time.Second)) }
	return []pair{{"time of " + axis, text(a, x), text(b, y)}}
}

// isReadiness says whether an axis tells what is ready: the pod, or one of its containers.
func isReadiness(axis string) bool {
	return axis == string(v1.PodReady) || axis == string(v1.ContainersReady) || strings.HasSuffix(axis, " ready")
}

// withoutStart returns an axis of readiness on which the first state has noted how much of
// it was the start: a container's until it ran for the first time, and of the pod, which
// waits for several, all of it.
func withoutStart(axes map[string][]Span, axis string) []Span {
	all := slices.Clone(axes[axis])
	if !isReadiness(axis) || len(all) == 0 {
		return all
	}
	all[0].start = all[0].For
	if container, ok := strings.CutSuffix(axis, " ready"); ok {
		all[0].start = 0
		for _, s := range axes[container] {
			if up.MatchString(s.State) {
				break
			}
			all[0].start += s.For
		}
		all[0].start = min(all[0].start, all[0].For)
	}
	return all
}

// align pairs the states of two sequences so that the fewest that lasted, and
// then the fewest others, stay without a partner.
func align(a, b []Span) [][2]int {
	price := func(s Span) int {
		if s.lasted() {
			return 1000
		}
		return 1
	}
	// cost[i][j] is that of a[i:] against b[j:].
	cost := make([][]int, len(a)+1)
	for i := len(a); i >= 0; i-- {
		cost[i] = make([]int, len(b)+1)
		for j := len(b); j >= 0; j-- {
			var choices []int
			if i < len(a) {
				choices = append(choices, cost[i+1][j]+price(a[i]))
			}
			if j < len(b) {
				choices = append(choices, cost[i][j+1]+price(b[j]))
			}
			if i < len(a) && j < len(b) && a[i].key() == b[j].key() {
				choices = append(choices, cost[i+1][j+1])
			}
			if len(choices) > 0 {
				cost[i][j] = slices.Min(choices)
			}
		}
	}
	var kept [][2]int
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i].key() == b[j].key() && cost[i][j] == cost[i+1][j+1]:
			kept = append(kept, [2]int{i, j})
			i, j = i+1, j+1
		case cost[i][j] == cost[i+1][j]+price(a[i]):
			i++
		default:
			j++
		}
	}
	return kept
}

// merge makes one of neighbours that count as the same.
func merge(spans []Span) []Span {
	var all []Span
	for _, s := range spans {
		if n := len(all); n > 0 && s.key() == all[n-1].key() {
			all[n-1].For += s.For
			all[n-1].State, all[n-1].Last = s.State, s.Last
			continue
		}
		all = append(all, s)
	}
	return all
}

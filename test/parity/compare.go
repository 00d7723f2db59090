package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Columns of the table.
const (
	colStatuses = "statuses"
	colEvents   = "events"
	colTrace    = "trace"
)

// none stands on the side that has nothing there.
const none = "(none)"

// empty stands where a side has a field that says nothing.
const empty = "(empty)"

// fieldScript is the field of what no entry of differences.yaml excuses: a
// script that did not come through.
const fieldScript = "script"

// Difference is one field that is not the same on both sides.
type Difference struct {
	Scenario, Column string
	// As is the name under which podd ran: kubelet or podd.
	As string
	// Pod is the manifest whose pod it is, without its ending: "pod", "b", and
	// "pod#2" for the second manifest of that name. Empty for traces and scripts.
	Pod string
	// Field is one of
	//
	//	script                               the steps of the scenario
	//	listed                               whether the agent ever showed the pod
	//	sequence AXIS                        a state that one side did not show
	//	entries of AXIS                      how often a state was entered
	//	time of AXIS                         how long a back-off, ready or not ready lasted
	//	status.PATH                          the last status
	//	event [CONTAINER] TYPE REASON        what an event says, or that there is one
	//	count of event [CONTAINER] TYPE REASON
	//	order of events [pod and] [CONTAINER]
	//	trace                                a line that containers wrote
	//	contradiction                        what a side showed that cannot be
	Field string
	// Kubelet and Podd are what the sides have there; none for nothing.
	Kubelet, Podd string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s%s: kubelet %s | podd %s", called(d.Scenario, d.As), strings.TrimPrefix(d.Pod+": ", ": "), d.Field, d.Kubelet, d.Podd)
}

// called is a scenario with the name under which podd played it, if that is its own.
func called(scenario, as string) string {
	if as == asPodd {
		return scenario + " (podd run)"
	}
	return scenario
}

// pair is a field of one pod or trace that differs.
type pair struct{ field, kubelet, podd string }

// compare lists what differs between the kubelet's record of a scenario and one of podd's,
// which ran under the name as.
func compare(upstream, ours *Record, as string) []Difference {
	var all []Difference
	add := func(column, pod string, pairs ...pair) {
		for _, p := range pairs {
			all = append(all, Difference{ours.Scenario, column, as, pod, p.field, p.kubelet, p.podd})
		}
	}
	if upstream.Failed != "" || ours.Failed != "" {
		const through = "came through"
		add(colStatuses, "", pair{fieldScript, cmp.Or(upstream.Failed, through), cmp.Or(ours.Failed, through)})
		return all // the rest follows from it
	}
	for _, name := range keys(upstream.Pods, ours.Pods) {
		a, b := upstream.Pods[name], ours.Pods[name]
		for i := range max(len(a), len(b)) {
			pod := name
			if i > 0 {
				pod += "#" + strconv.Itoa(i+1)
			}
			add(colStatuses, pod, compareSeries(at(a, i), at(b, i))...)
		}
		add(colEvents, name, compareEvents(upstream.Events[name], ours.Events[name], !ours.Cut)...)
	}
	add(colTrace, "", compareLines("trace", upstream.Trace, ours.Trace)...)
	return all
}

// at is the series of a manifest; nil where a side has none.
func at(all []*Series, i int) *Series {
	if i < len(all) {
		return all[i]
	}
	return nil
}

func keys[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

func compareSeries(a, b *Series) []pair {
	if listed(a) != listed(b) {
		return []pair{{"listed", listed(a), listed(b)}}
	}
	if a == nil || b == nil {
		return nil
	}
	lost := lostContainer(a)
	var all []pair
	for _, axis := range keys(a.Axes, b.Axes) {
		if lost != nil && axis != "phase" {
			continue
		}
		all = append(all, compareSpans(axis, withoutStart(a.Axes, axis), withoutStart(b.Axes, axis))...)
	}
	for _, c := range b.Contradictions { // the kubelet's are upstream's
		all = append(all, pair{"contradiction", none, c})
	}
	for _, path := range keys(a.Final, b.Final) {
		x, inA := a.Final[path]
		y, inB := b.Final[path]
		if lost != nil && lost.MatchString(path) {
			continue
		}
		if x != y || inA != inB {
			all = append(all, pair{"status." + path, orNone(x, inA), orNone(y, inB)})
		}
	}
	return all
}

// endUnknown is the last status of a container that the kubelet could not locate.
var endUnknown = regexp.MustCompile(`^((?:initC|c)ontainerStatuses\[[^]]+\])\.state\.terminated\.reason$`)

// lostContainer matches the paths of the containers whose end the kubelet does not know, of a pod
// that it evicted; nil if there are none. It removes a container of such a pod as soon as it
// notices that it has ended, which may be before it reads how.
func lostContainer(s *Series) *regexp.Regexp {
	if s.Final["reason"] != "Evicted" {
		return nil
	}
	var lost []string
	for path, value := range s.Final {
		if m := endUnknown.FindStringSubmatch(path); m != nil && value == "ContainerStatusUnknown" {
			lost = append(lost, regexp.QuoteMeta(m[1]))
		}
	}
	if lost == nil {
		return nil
	}
	return regexp.MustCompile(`^(` + strings.Join(lost, "|") + `)\.`)
}

func listed(s *Series) string {
	if s == nil || len(s.Axes) == 0 {
		return "never shown"
	}
	return "shown"
}

func orNone(value string, there bool) string {
	switch {
	case !there:
		return none
	case value == "":
		return empty
	}
	return value
}

// compareLines aligns two lists so that the fewest lines stay without a partner.
// Lines that stand alone in the same place are one line that differs.
func compareLines(field string, a, b []string) []pair {
	kept := common(a, b, func(x, y string) bool { return x == y })
	var all []pair
	gap := func(x, y []string) {
		for i := range max(len(x), len(y)) {
			p := pair{field, none, none}
			if i < len(x) {
				p.kubelet = x[i]
			}
			if i < len(y) {
				p.podd = y[i]
			}
			all = append(all, p)
		}
	}
	i, j := 0, 0
	for _, k := range kept {
		gap(a[i:k[0]], b[j:k[1]])
		i, j = k[0]+1, k[1]+1
	}
	gap(a[i:], b[j:])
	return all
}

// common are the indexes of a longest common subsequence.
func common[T any](a, b []T, same func(x, y T) bool) [][2]int {
	length := make([][]int, len(a)+1)
	for i := len(a); i >= 0; i-- {
		length[i] = make([]int, len(b)+1)
		for j := len(b) - 1; j >= 0 && i < len(a); j-- {
			length[i][j] = max(length[i+1][j], length[i][j+1])
			if same(a[i], b[j]) {
				length[i][j] = length[i+1][j+1] + 1
			}
		}
	}
	var kept [][2]int
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case same(a[i], b[j]):
			kept = append(kept, [2]int{i, j})
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			i++
		default:
			j++
		}
	}
	return kept
}

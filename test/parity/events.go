package main

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// counted are the reasons of which there is one event for each thing done. How
// often others were told hangs on the moment of looking, within reason.
var counted = []string{"Created", "Started", "Killing"}

// farApart says that counts differ. Of what is not counted exactly it is a multiple that
// no moment of looking explains: the kubelet looks once a second, at most.
func farApart(reason string, m, n int, counts bool) bool {
	if counts && slices.Contains(counted, reason) {
		return m != n
	}
	return max(m, n) > 3*min(m, n)+5
}

// compareEvents says which events one side alone has, what differs in those of both, and
// where they did not come in the same order: among themselves those of the pod and those of
// each container, and between the two. The order between containers hangs on the moment of
// looking.
func compareEvents(a, b []Event, counts bool) []pair {
	partners := pairEvents(a, b)
	var all []pair
	for i, e := range a {
		kind := e.where() + " " + e.Type + " " + e.Reason
		j, ok := partners[i]
		if !ok {
			all = append(all, pair{"event" + kind, e.Message, none})
			continue
		}
		if e.Message != b[j].Message {
			all = append(all, pair{"event" + kind, e.Message, b[j].Message})
		}
		if m, n := e.Count, b[j].Count; farApart(e.Reason, m, n, counts) {
			all = append(all, pair{"count of event" + kind, strconv.Itoa(m), strconv.Itoa(n)})
		}
	}
	paired := slices.Collect(maps.Values(partners))
	for j, e := range b {
		if !slices.Contains(paired, j) {
			all = append(all, pair{"event" + e.where() + " " + e.Type + " " + e.Reason, none, e.Message})
		}
	}
	return append(all, compareOrders(a, b, partners)...)
}

// where is a blank and the container's name, or empty for the pod.
func (e Event) where() string {
	_, container, _ := strings.Cut(strings.TrimSuffix(e.Path, "}"), "{")
	return strings.TrimSuffix(" "+container, " ")
}

// compareOrders compares the order of the events that both sides have.
func compareOrders(a, b []Event, partners map[int]int) []pair {
	var all []pair
	inOrder := func(which string, of func(Event) bool) bool {
		var theirs, ours []int // as indexes of a
		for i, e := range a {
			if _, ok := partners[i]; ok && of(e) {
				theirs = append(theirs, i)
			}
		}
		ours = slices.SortedFunc(slices.Values(theirs), func(i, k int) int { return cmp.Compare(partners[i], partners[k]) })
		same := slices.Equal(theirs, ours)
		if !same {
			mixed := slices.ContainsFunc(theirs, func(i int) bool { return a[i].Path != a[theirs[0]].Path })
			all = append(all, pair{"order of events" + which, told(a, theirs, mixed), told(a, ours, mixed)})
		}
		return same
	}
	wheres := map[string]bool{}
	for _, e := range a {
		wheres[e.where()] = true
	}
	same := inOrder("", func(e Event) bool { return e.where() == "" })
	for _, where := range slices.Sorted(maps.Keys(wheres)) {
		if where == "" {
			continue
		}
		if inOrder(where, func(e Event) bool { return e.where() == where }) && same {
			inOrder(" pod and"+where, func(e Event) bool { return e.where() == where || e.where() == "" })
		}
	}
	return all
}

// told are the reasons of events, with the container of each if they are not of one place.
func told(events []Event, which []int, mixed bool) string {
	var all []string
	for _, i := range which {
		what := events[i].Reason
		if mixed {
			what += events[i].where()
		}
		all = append(all, what)
	}
	return strings.Join(all, ", ")
}

// pairEvents finds each event's partner: of the same path, type and reason, and of
// several the one that says the same, else the next in line.
func pairEvents(a, b []Event) map[int]int {
	partners, taken := map[int]int{}, make([]bool, len(b))
	for _, exact := range []bool{true, false} {
		for i, x := range a {
			if _, ok := partners[i]; ok {
				continue
			}
			for j, y := range b {
				same := x.Path == y.Path && x.Type == y.Type && x.Reason == y.Reason
				if !taken[j] && same && (x.Message == y.Message || !exact) {
					partners[i], taken[j] = j, true
					break
				}
			}
		}
	}
	return partners
}

// gather makes one of events that say the same, at the place of the first, with
// the sum of their counts.
func gather(events []Event) []Event {
	var all []Event
	for _, e := range events {
		same := func(o Event) bool { o.Count = e.Count; return o == e }
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i].Count += e.Count
			continue
		}
		all = append(all, e)
	}
	return all
}

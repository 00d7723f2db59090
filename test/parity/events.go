package main

import (
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

// compareEvents compares path by path: which events there are, what they say, and
// in which order they came first.
func compareEvents(a, b []Event, counts bool) []pair {
	x, y := byPath(a), byPath(b)
	var all []pair
	for _, path := range keys(x, y) {
		_, container, _ := strings.Cut(strings.TrimSuffix(path, "}"), "{")
		all = append(all, compareEventsAt(strings.TrimSuffix(" "+container, " "), x[path], y[path], counts)...)
	}
	return all
}

func byPath(events []Event) map[string][]Event {
	by := map[string][]Event{}
	for _, e := range events {
		by[e.Path] = append(by[e.Path], e)
	}
	return by
}

// compareEventsAt compares the events of one path; where is a blank and the
// container's name, or empty for the pod.
func compareEventsAt(where string, a, b []Event, counts bool) []pair {
	partners := pairEvents(a, b)
	var all []pair
	var order [2][]string // of those that both sides have
	taken := make([]bool, len(b))
	for i, e := range a {
		j, ok := partners[i]
		kind := where + " " + e.Type + " " + e.Reason
		if !ok {
			all = append(all, pair{"event" + kind, e.Message, none})
			continue
		}
		taken[j] = true
		if e.Message != b[j].Message {
			all = append(all, pair{"event" + kind, e.Message, b[j].Message})
		}
		if m, n := e.Count, b[j].Count; farApart(e.Reason, m, n, counts) {
			all = append(all, pair{"count of event" + kind, strconv.Itoa(m), strconv.Itoa(n)})
		}
		order[0] = append(order[0], e.Reason+"/"+strconv.Itoa(i))
	}
	for j, e := range b {
		if !taken[j] {
			all = append(all, pair{"event" + where + " " + e.Type + " " + e.Reason, none, e.Message})
			continue
		}
		for i, of := range partners {
			if of == j {
				order[1] = append(order[1], e.Reason+"/"+strconv.Itoa(i))
			}
		}
	}
	if !slices.Equal(order[0], order[1]) {
		all = append(all, pair{"order of events" + where, reasons(order[0]), reasons(order[1])})
	}
	return all
}

func reasons(order []string) string {
	var all []string
	for _, o := range order {
		reason, _, _ := strings.Cut(o, "/")
		all = append(all, reason)
	}
	return strings.Join(all, ", ")
}

// pairEvents finds each event's partner: of the same type and reason, and of
// several the one that says the same, else the next in line.
func pairEvents(a, b []Event) map[int]int {
	partners, taken := map[int]int{}, make([]bool, len(b))
	for _, exact := range []bool{true, false} {
		for i, x := range a {
			if _, ok := partners[i]; ok {
				continue
			}
			for j, y := range b {
				if !taken[j] && x.Type == y.Type && x.Reason == y.Reason && (x.Message == y.Message || !exact) {
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

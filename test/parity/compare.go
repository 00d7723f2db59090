package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// blink is how long a state must last that both sides have to show.
const blink = 2500 * time.Millisecond

// Columns of the table.
const (
	colStatuses = "statuses"
	colEvents   = "events"
	colTrace    = "trace"
)

// Difference is one thing that is not the same on both sides.
type Difference struct {
	Scenario, Column, What string
}

func (d Difference) String() string { return d.Scenario + ": " + d.Column + ": " + d.What }

// compare lists what differs between the two records of a scenario.
func compare(upstream, ours *Record) []Difference {
	var all []Difference
	add := func(column, format string, args ...any) {
		all = append(all, Difference{ours.Scenario, column, fmt.Sprintf(format, args...)})
	}
	if upstream.Failed != ours.Failed {
		add(colStatuses, "script: kubelet %s | podd %s", cmp.Or(upstream.Failed, "came through"), cmp.Or(ours.Failed, "came through"))
	}
	for _, name := range keys(upstream.Pods, ours.Pods) {
		a, b := upstream.Pods[name], ours.Pods[name]
		for i := range max(len(a), len(b)) {
			if i >= len(a) || i >= len(b) {
				add(colStatuses, "%s: generation %d on one side only", name, i)
				continue
			}
			where := name
			if len(a) > 1 {
				where = fmt.Sprintf("%s (manifest %d)", name, i+1)
			}
			for _, what := range compareSeries(a[i], b[i]) {
				add(colStatuses, "%s: %s", where, what)
			}
		}
		for _, what := range compareEvents(upstream.Events[name], ours.Events[name]) {
			add(colEvents, "%s: %s", name, what)
		}
	}
	for _, what := range compareLists(upstream.Trace, ours.Trace) {
		add(colTrace, "%s", what)
	}
	return all
}

func keys[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

func compareSeries(a, b *Series) []string {
	var all []string
	for _, axis := range keys(a.Axes, b.Axes) {
		for _, what := range compareSpans(a.Axes[axis], b.Axes[axis]) {
			all = append(all, axis+": "+what)
		}
	}
	for _, path := range keys(a.Final, b.Final) {
		x, inA := a.Final[path]
		y, inB := b.Final[path]
		if x != y || inA != inB {
			all = append(all, fmt.Sprintf("final %s: kubelet %s | podd %s", path, orNone(x, inA), orNone(y, inB)))
		}
	}
	return all
}

func orNone(value string, there bool) string {
	if !there {
		return "(none)"
	}
	return fmt.Sprintf("%q", value)
}

// compareSpans aligns two sequences so that the fewest states which lasted stay
// without a partner, and lists those.
func compareSpans(a, b []Span) []string {
	a, b = merge(a), merge(b)
	same := func(x, y Span) bool { return cmp.Or(x.Same, x.State) == cmp.Or(y.Same, y.State) }
	lasted := func(s Span) bool { return s.Last || s.For >= blink }
	price := func(spans []Span, i int) int {
		if !lasted(spans[i]) {
			return 1
		}
		// A state that came back after a blink is no other state.
		for before := i - 1; before >= 0; before-- {
			if lasted(spans[before]) {
				if same(spans[before], spans[i]) {
					return 1
				}
				break
			}
		}
		return 1000
	}
	// cost[i][j] is that of a[i:] against b[j:].
	cost := make([][]int, len(a)+1)
	for i := len(a); i >= 0; i-- {
		cost[i] = make([]int, len(b)+1)
		for j := len(b); j >= 0; j-- {
			switch {
			case i == len(a) && j == len(b):
			case i == len(a):
				cost[i][j] = cost[i][j+1] + price(b, j)
			case j == len(b):
				cost[i][j] = cost[i+1][j] + price(a, i)
			default:
				cost[i][j] = min(cost[i+1][j]+price(a, i), cost[i][j+1]+price(b, j))
				if same(a[i], b[j]) {
					cost[i][j] = min(cost[i][j], cost[i+1][j+1])
				}
			}
		}
	}
	var all []string
	only := func(side string, spans []Span, i int) {
		if price(spans, i) == 1 {
			return
		}
		what := fmt.Sprintf("only %s: %s", side, spans[i].State)
		if i > 0 {
			what += fmt.Sprintf(" (after %s)", spans[i-1].State)
		}
		if spans[i].Last {
			what += ", at the end"
		}
		all = append(all, what)
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && same(a[i], b[j]) && cost[i][j] == cost[i+1][j+1]:
			i, j = i+1, j+1
		case i < len(a) && cost[i][j] == cost[i+1][j]+price(a, i):
			only("kubelet", a, i)
			i++
		default:
			only("podd", b, j)
			j++
		}
	}
	return all
}

// merge makes one of neighbours that count as the same.
func merge(spans []Span) []Span {
	var all []Span
	for _, s := range spans {
		if n := len(all); n > 0 && s.Same != "" && s.Same == all[n-1].Same {
			all[n-1].For += s.For
			all[n-1].State, all[n-1].Last = s.State, s.Last
			continue
		}
		all = append(all, s)
	}
	return all
}

// compareEvents compares path by path.
func compareEvents(a, b []Event) []string {
	group := func(events []Event) map[string][]string {
		by := map[string][]string{}
		for _, e := range events {
			if line := e.String(); !slices.Contains(by[e.Path], line) {
				by[e.Path] = append(by[e.Path], line)
			}
		}
		return by
	}
	x, y := group(a), group(b)
	var all []string
	for _, path := range keys(x, y) {
		for _, what := range compareLists(x[path], y[path]) {
			all = append(all, strings.TrimPrefix(path+": "+what, ": "))
		}
	}
	return all
}

// compareLists says what is on one side only, and if nothing is, what comes in
// another order.
func compareLists(a, b []string) []string {
	var all []string
	only := func(side string, list, other []string) {
		left := slices.Clone(other)
		for _, line := range list {
			if i := slices.Index(left, line); i >= 0 {
				left = slices.Delete(left, i, i+1)
				continue
			}
			all = append(all, "only "+side+": "+line)
		}
	}
	only("kubelet", a, b)
	only("podd", b, a)
	if len(all) > 0 {
		return all
	}
	for i := range a {
		if a[i] != b[i] {
			return []string{fmt.Sprintf("order: kubelet %s first, podd %s", a[i], b[i])}
		}
	}
	return nil
}

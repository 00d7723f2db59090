package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// The rows of the table, in its order.
const (
	rowOne       = "one pod: manifest to first instruction"
	rowInit      = "pod with 3 init containers: to the main one's first instruction"
	rowStatus    = "status shown after the container's start"
	rowBurst     = "burst of 50: all at their first instruction"
	rowRestart   = "first restart after a crash"
	rowDelete    = "delete of 5: no container runs"
	rowDeleteAll = "delete of 5: no sandbox is left"
	rowIdle      = "idle CPU at 58 pods: agent"
	rowIdleAll   = "idle CPU at 58 pods: agent, containerd, shims"
	rowRSS       = "resident memory at 58 pods: agent"
)

// rowInfo is a row's unit and bar: the column "must" of the design's numbers
// to hold, over the floor or in the row's unit. A bar of 0 is none.
type rowInfo struct {
	name    string
	unit    string
	scale   float64 // from the sample to the unit
	bar     float64
	overFlr bool
}

var rowList = []rowInfo{
	{rowOne, "ms", 1000, 1.25, true},
	{rowInit, "ms", 1000, 1.15, true},
	{rowStatus, "ms", 1000, 20, false},
	{rowBurst, "s", 1, 1.2, true},
	{rowRestart, "ms", 1000, 200, false},
	{rowDelete, "ms", 1000, 0, false},
	{rowDeleteAll, "ms", 1000, 0, false},
	{rowIdle, "millicores", 1, 3, false},
	{rowIdleAll, "millicores", 1, 10, false},
	{rowRSS, "MiB", 1, 45, false},
}

// stat is a column's value in one row, in the row's unit.
type stat struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
	// OverFloor is Median over the floor's median, 0 without a floor.
	OverFloor float64 `json:"overFloor,omitempty"`
}

// result is one row.
type result struct {
	Row     string          `json:"row"`
	Unit    string          `json:"unit"`
	Columns map[string]stat `json:"columns"`
	// Bar says what podd must hold, Verdict whether it does: pass, fail or
	// empty when there is no bar or podd was not measured.
	Bar     string `json:"bar,omitempty"`
	Verdict string `json:"verdict,omitempty"`
}

func statOf(samples []float64, scale float64) stat {
	s := slices.Sorted(slices.Values(samples))
	n := len(s)
	return stat{Median: (s[(n-1)/2] + s[n/2]) / 2 * scale, Min: s[0] * scale, Max: s[n-1] * scale, N: n}
}

func (b *bench) results() []result {
	var list []result
	for _, row := range rowList {
		samples := b.samples[row.name]
		if len(samples) == 0 {
			continue
		}
		list = append(list, makeResult(row, samples))
	}
	return list
}

func makeResult(row rowInfo, samples map[string][]float64) result {
	r := result{Row: row.name, Unit: row.unit, Columns: map[string]stat{}}
	for column, values := range samples {
		r.Columns[column] = statOf(values, row.scale)
	}
	if floor, ok := r.Columns[colFloor]; ok && floor.Median > 0 {
		for column, s := range r.Columns {
			if column != colFloor {
				s.OverFloor = s.Median / floor.Median
				r.Columns[column] = s
			}
		}
	}
	if row.bar == 0 {
		return r
	}
	r.Bar = fmt.Sprintf("≤ %g %s", row.bar, row.unit)
	podd, measured := r.Columns[colPodd]
	value := podd.Median
	if row.overFlr {
		r.Bar = fmt.Sprintf("≤ %g × floor", row.bar)
		value = podd.OverFloor
		measured = measured && value > 0
	}
	if measured {
		r.Verdict = map[bool]string{true: "pass", false: "fail"}[value <= row.bar]
	}
	return r
}

func missedBars(results []result) []string {
	var missed []string
	for _, r := range results {
		if r.Verdict == "fail" {
			missed = append(missed, r.Row)
		}
	}
	return missed
}

func printResults(w io.Writer, opts options, results []result) error {
	if opts.output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(results)
	}
	columns := []string{colFloor}
	for _, c := range []string{colPodd, colKubelet} {
		if slices.ContainsFunc(results, func(r result) bool { _, ok := r.Columns[c]; return ok }) {
			columns = append(columns, c)
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(tw, "median (min–max, n)\tunit\t%s\tbar for podd\t\n", strings.Join(columns, "\t"))
	for _, r := range results {
		_, _ = fmt.Fprintf(tw, "%s\t%s", r.Row, r.Unit)
		for _, c := range columns {
			_, _ = fmt.Fprintf(tw, "\t%s", cell(r.Columns, c))
		}
		_, _ = fmt.Fprintf(tw, "\t%s\t%s\n", r.Bar, strings.ToUpper(r.Verdict))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, footnote)
	return err
}

// footnote is what a reader of the table must know.
const footnote = `
A start is counted from the rename of the manifest into place (floor: from the first call)
to the first instruction of the container, which makes a file. A deletion is counted from
the removal of the manifests (floor: from the call that stops the containers). podd takes a
removed manifest for gone 50 ms after its deletion, since editors delete a file and write it
anew; these 50 ms are in its deletions.
`

func cell(columns map[string]stat, column string) string {
	s, ok := columns[column]
	if !ok {
		return "–"
	}
	text := fmt.Sprintf("%s (%s–%s, %d)", number(s.Median), number(s.Min), number(s.Max), s.N)
	if s.N == 1 {
		text = number(s.Median)
	}
	if s.OverFloor > 0 {
		text += fmt.Sprintf(" %.2f×", s.OverFloor)
	}
	return text
}

func number(v float64) string {
	if v < 20 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

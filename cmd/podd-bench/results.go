package main

import (
	"cmp"
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
	rowShim      = "proportional memory at 58 pods: each shim"

	rowVolumes     = "pod with 10 volumes: manifest to first instruction"
	rowVolumesMore = "10 volumes: what they add to a pod's start"
	rowIdleObjects = "idle CPU at 58 pods with 50 objects: agent"
	rowRSSObjects  = "resident memory at 58 pods with 50 objects: agent"
	rowIdleControl = "idle CPU at 58 pods: the same agent, then without objects"
	rowRSSControl  = "resident memory at 58 pods: the same agent, then without objects"
	rowUpdate      = "a changed ConfigMap: read in a container"
	rowUpdatesLast = "a ConfigMap changed 1,000 times a second: the last version read"
	rowUpdatesCPU  = "a ConfigMap changed 1,000 times a second: agent's CPU"

	rowBound           = "one pod of a cluster: creation to first instruction"
	rowBoundAfter      = "one pod of a cluster: the scheduler's binding to first instruction"
	rowDeployment      = "a Deployment of 50: all Ready in the cluster"
	rowScaled          = "a Deployment of 50 scaled to 0: no pod and no sandbox is left"
	rowRSSCluster      = "resident memory at 58 pods of a cluster with 50 Secrets: agent"
	rowIdleCluster     = "idle CPU at 58 pods of a cluster with 50 Secrets: agent"
	rowRequestsCluster = "requests of an idle node in 5 minutes, besides its lease"

	rowMore50   = "one pod more beside 50: manifest to first instruction"
	rowMore300  = "one pod more beside 300: manifest to first instruction"
	rowMore1000 = "one pod more beside 1,000: manifest to first instruction"
	rowOwn50    = "share of a start beside 50: podd's own"
	rowOwn300   = "share of a start beside 300: podd's own"
	rowOwn1000  = "share of a start beside 1,000: podd's own"

	rowShareRuntime = "share of a start: in the runtime's three calls"
	rowShareOwn     = "share of a start: podd's own"
	rowShareLooks   = "share of a start: of podd's own, the runtime's answers to questions"

	rowShareVolumesRuntime = "share of a start with 10 volumes: in the runtime's three calls"
	rowShareVolumesOwn     = "share of a start with 10 volumes: podd's own"
)

// rowInfo is a row's unit and its bars.
type rowInfo struct {
	name  string
	unit  string
	scale float64 // from the sample to the unit
	bars  []bar
}

// bar is what podd's median must not exceed: in the row's unit, or as a
// multiple of the floor's median, or of podd's own in another row.
type bar struct {
	limit   float64
	ofFloor bool
	ofRow   string
	// other is how the other row is named in the bar; "without" if empty.
	other string
	// from says whose number it is: the design's "podd must", or an issue's.
	from string
}

func (b bar) text(unit string) string {
	if b.ofFloor {
		return fmt.Sprintf("≤ %g × floor", b.limit)
	}
	if b.ofRow != "" {
		return fmt.Sprintf("≤ %g × %s", b.limit, cmp.Or(b.other, "without"))
	}
	return fmt.Sprintf("≤ %g %s", b.limit, unit)
}

// alike is what two nodes at rest that are the same may differ by in a figure.
const alike = 1.1

var rowList = []rowInfo{
	{rowOne, "ms", 1000, []bar{{limit: 1.25, ofFloor: true, from: "design"}}},
	{rowInit, "ms", 1000, []bar{{limit: 1.15, ofFloor: true, from: "the pod's whole life"}}},
	{rowStatus, "ms", 1000, []bar{{limit: 20, from: "design"}}},
	{rowBurst, "s", 1, []bar{{limit: 1.2, ofFloor: true, from: "design"}}},
	{rowRestart, "ms", 1000, []bar{{limit: 200, from: "design"}, {limit: 100, from: "the pod's whole life"}}},
	{rowDelete, "ms", 1000, nil},
	{rowDeleteAll, "ms", 1000, nil},
	{rowIdle, "millicores", 1, []bar{{limit: 3, from: "design"}}},
	{rowIdleAll, "millicores", 1, []bar{{limit: 10, from: "design"}}},
	{rowRSS, "MiB", 1, []bar{{limit: 45, from: "design"}}},
	{rowShim, "MiB", 1, nil},
	{rowVolumes, "ms", 1000, nil},
	{rowVolumesMore, "ms", 1000, []bar{{limit: 20, from: "volumes"}}},
	{rowIdleObjects, "millicores", 1, []bar{{limit: alike, ofRow: rowIdleControl, from: "volumes"}}},
	{rowIdleControl, "millicores", 1, nil},
	{rowRSSObjects, "MiB", 1, []bar{{limit: alike, ofRow: rowRSSControl, from: "volumes"}}},
	{rowRSSControl, "MiB", 1, nil},
	{rowUpdate, "ms", 1000, []bar{{limit: 100, from: "volumes"}}},
	{rowUpdatesLast, "ms", 1000, []bar{{limit: 100, from: "volumes"}}},
	{rowUpdatesCPU, "millicores", 1, []bar{{limit: 500, from: "volumes"}}},
	{rowBound, "ms", 1000, nil},
	{rowBoundAfter, "ms", 1000, nil},
	{rowDeployment, "s", 1, []bar{{limit: 1.2, ofFloor: true, from: "the cluster's node"}}},
	{rowScaled, "s", 1, nil},
	{rowRSSCluster, "MiB", 1, []bar{{limit: 55, from: "the cluster's node"}}},
	{rowIdleCluster, "millicores", 1, nil},
	{rowRequestsCluster, "requests", 1, []bar{{limit: 1, from: "the cluster's node"}}},
	{rowMore50, "ms", 1000, []bar{{limit: 1.25, ofFloor: true, from: "design"}}},
	{rowMore300, "ms", 1000, []bar{{limit: 1.25, ofFloor: true, from: "design"}}},
	{rowMore1000, "ms", 1000, []bar{{limit: 1.25, ofFloor: true, from: "design"}}},
	{rowOwn50, "ms", 1000, nil},
	{rowOwn300, "ms", 1000, nil},
	{rowOwn1000, "ms", 1000, []bar{{limit: 2, ofRow: rowOwn50, other: "beside 50", from: "many pods"}}},
	{rowShareRuntime, "ms", 1000, nil},
	{rowShareOwn, "ms", 1000, nil},
	{rowShareLooks, "ms", 1000, nil},
	{rowShareVolumesRuntime, "ms", 1000, nil},
	{rowShareVolumesOwn, "ms", 1000, nil},
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
	// Bars say what podd must hold.
	Bars []verdict `json:"bars,omitempty"`
}

// verdict is whether podd holds a bar: "pass", "fail", or empty when it, or
// the floor that the bar is a multiple of, was not measured.
type verdict struct {
	Bar     string `json:"bar"`
	From    string `json:"from"`
	Verdict string `json:"verdict"`
}

func statOf(samples []float64, scale float64) stat {
	s := slices.Sorted(slices.Values(samples))
	n := len(s)
	return stat{Median: (s[(n-1)/2] + s[n/2]) / 2 * scale, Min: s[0] * scale, Max: s[n-1] * scale, N: n}
}

func (b *bench) results() []result {
	var list []result
	for _, row := range rowList {
		if len(b.samples[row.name]) > 0 {
			list = append(list, makeResult(row, b.samples))
		}
	}
	return list
}

// makeResult is a row of all samples, by row and column.
func makeResult(row rowInfo, all map[string]map[string][]float64) result {
	r := result{Row: row.name, Unit: row.unit, Columns: map[string]stat{}}
	for column, values := range all[row.name] {
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
	for _, bar := range row.bars {
		podd, measured := r.Columns[colPodd]
		value := podd.Median
		if bar.ofFloor {
			value = podd.OverFloor
			measured = measured && value > 0
		}
		if bar.ofRow != "" {
			others := all[bar.ofRow][colPodd]
			if measured = measured && len(others) > 0; measured {
				value /= statOf(others, row.scale).Median
			}
		}
		v := verdict{Bar: bar.text(row.unit), From: bar.from}
		if measured {
			v.Verdict = map[bool]string{true: "pass", false: "fail"}[value <= bar.limit]
		}
		r.Bars = append(r.Bars, v)
	}
	return r
}

func missedBars(results []result) []string {
	var missed []string
	for _, r := range results {
		for _, v := range r.Bars {
			if v.Verdict == "fail" {
				missed = append(missed, fmt.Sprintf("%s (%s)", r.Row, v.Bar))
			}
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
	columns := columnsOf(results)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(tw, "median (min–max, n)\tunit\t%s\tbar for podd\t\n", strings.Join(columns, "\t"))
	for _, r := range results {
		_, _ = fmt.Fprintf(tw, "%s\t%s", r.Row, r.Unit)
		for _, c := range columns {
			_, _ = fmt.Fprintf(tw, "\t%s", cell(r.Columns, c))
		}
		bars, verdicts := r.bars()
		_, _ = fmt.Fprintf(tw, "\t%s\t%s\n", bars, strings.ToUpper(verdicts))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, "\n"+footnote)
	return err
}

// bars are the row's, with commas between, and their verdicts likewise.
func (r result) bars() (bars, verdicts string) {
	var all, how []string
	for _, v := range r.Bars {
		all = append(all, v.Bar)
		if v.Verdict != "" {
			how = append(how, v.Verdict)
		}
	}
	return strings.Join(all, ", "), strings.Join(how, ", ")
}

func columnsOf(results []result) []string {
	columns := []string{colFloor}
	for _, c := range []string{colPodd, colKubelet} {
		if slices.ContainsFunc(results, func(r result) bool { _, ok := r.Columns[c]; return ok }) {
			columns = append(columns, c)
		}
	}
	return columns
}

// footnote is what a reader of the table must know.
const footnote = `How to read the table:

- The floor is the raw calls that a pod cannot do without. No agent runs beside it. The sandboxes of the floor and of the kubelet
  have the runtime's default seccomp profile. Those of podd have a smaller one (ADR 0029).
- A start counts from the rename of the manifest into place (floor: from the first call) to the first instruction of the
  container, which makes a file.
- A deletion counts from the removal of the manifests (floor: from the call that stops the containers) to the runtime's event.
  podd waits 50 ms before it takes a removed manifest for gone, because editors delete a file and write it anew. These 50 ms are
  in its deletions. Under the name kubelet podd does not wait, as the kubelet does not.
- Five of the ten volumes are ConfigMaps, three are Secrets, one is projected and one is an emptyDir. The floor mounts as many
  directories that exist already. What volumes add is the difference to a pod without them, started in turn with it.
- A kubelet takes no pod with ConfigMaps from a file. In the two rows of ten volumes it gets its pods from a kube-apiserver beside
  it, bound to its node. There a start counts from the request that creates the pod.
- The shares of a start are measured apart, behind a relay that times podd's calls. The relay costs some tenths of a millisecond
  for each call. One pod more beside many is measured in the same way: raw calls and podd take turns beside the same pods of podd.
- In the rows of a cluster each agent is the node of a cluster of its own on the same machine. The work of the apiserver,
  controller manager and scheduler is in the agents' figures. It is not in the floor's, which are raw pods without a cluster. A
  watch of the apiserver says when a pod was bound, and when all pods are Ready.
- Everything that is measured has its files on an ext4 of the benchmark's own, in memory, so that no figure is one of the
  machine's disk (-dir names another directory).
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

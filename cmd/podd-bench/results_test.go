package main

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestABarIsHeldOrMissedByItsMedian(t *testing.T) {
	for _, c := range []struct {
		row         string
		floor, podd []float64
		want        string
	}{
		{rowOne, []float64{0.100}, []float64{0.124, 0.9, 0.110}, "pass"}, // 1.24 × at the median
		{rowOne, []float64{0.100}, []float64{0.126}, "fail"},
		{rowOne, nil, []float64{0.126}, ""}, // no floor, no verdict
		{rowOne, []float64{0.100}, nil, ""},
		{rowRestart, []float64{0.01}, []float64{0.1}, "pass, pass"}, // in ms, not over the floor
		{rowRestart, []float64{0.01}, []float64{0.2}, "pass, fail"},
		{rowRestart, []float64{0.01}, []float64{0.201}, "fail, fail"},
		{rowRSS, nil, []float64{45.1}, "fail"},
		{rowDelete, []float64{0.1}, []float64{9}, ""}, // no bar
	} {
		var info rowInfo
		for _, r := range rowList {
			if r.name == c.row {
				info = r
			}
		}
		samples := map[string][]float64{}
		if c.floor != nil {
			samples[colFloor] = c.floor
		}
		if c.podd != nil {
			samples[colPodd] = c.podd
		}
		if _, got := makeResult(info, map[string]map[string][]float64{c.row: samples}).bars(); got != c.want {
			t.Errorf("%s, floor %v, podd %v: got %q, want %q", c.row, c.floor, c.podd, got, c.want)
		}
	}
}

func TestABarMayBeAnotherRowOfPodds(t *testing.T) {
	for _, c := range []struct {
		without, with []float64
		want          string
	}{
		{[]float64{0.5}, []float64{0.54}, "pass"},
		{[]float64{0.5, 0.4, 0.6}, []float64{0.56}, "fail"},
		{nil, []float64{0.54}, ""},
		{[]float64{0.5}, nil, ""},
	} {
		all := map[string]map[string][]float64{rowIdle: {colPodd: c.without}, rowIdleObjects: {}}
		if c.with != nil {
			all[rowIdleObjects][colPodd] = c.with
		}
		if _, got := makeResult(rowInfo{rowIdleObjects, "millicores", 1, []bar{{limit: 1.1, ofRow: rowIdle}}}, all).bars(); got != c.want {
			t.Errorf("%v and %v: got %q, want %q", c.without, c.with, got, c.want)
		}
	}
}

func TestTheMedianOfAnEvenNumberIsBetween(t *testing.T) {
	got := statOf([]float64{4, 1, 3, 2}, 10)
	if want := (stat{Median: 25, Min: 10, Max: 40, N: 4}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTheTableNamesEveryColumnThatWasMeasured(t *testing.T) {
	b := &bench{samples: map[string]map[string][]float64{
		rowOne: {colFloor: {0.1}, colPodd: {0.12}, colKubelet: {0.4}},
	}}
	var out bytes.Buffer
	if err := printResults(&out, options{output: "table"}, b.results()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"floor", "podd", "kubelet", "100", "1.20×", "4.00×", "PASS"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestPoddsOwnTimeIsWhatIsInNoCallThatMakesAPod(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	calls := []call{
		{"RunPodSandbox", at(2), at(82)},
		{"ImageStatus", at(70), at(85)},        // 3 ms after the sandbox
		{"CreateContainer", at(86), at(96)},    // 1 ms of podd's before
		{"StartContainer", at(97), at(150)},    // the mark is made at 140
		{"ContainerStatus", at(151), at(153)},  // after the mark
		{"PodSandboxStatus", at(-20), at(-10)}, // before the manifest
	}
	own, looks := ownTime(calls, begin, at(140))
	if want := 7 * time.Millisecond; own != want { // 0-2, 82-86, 96-97
		t.Errorf("own: got %v, want %v", own, want)
	}
	if want := 3 * time.Millisecond; looks != want {
		t.Errorf("of it in questions: got %v, want %v", looks, want)
	}
}

func TestTheReportHasTableChartAndMachine(t *testing.T) {
	b := &bench{samples: map[string]map[string][]float64{
		rowOne:  {colFloor: {0.1}, colPodd: {0.12}, colKubelet: {0.4}},
		rowIdle: {colPodd: {0.5}, colKubelet: {28}},
	}}
	m := machine{Date: "2026-01-02", Processor: "<A & B>", Cores: 2, MemoryGiB: 24, Kernel: "6.18", Versions: map[string]string{"podd": "1.0"}}
	dir := t.TempDir()
	if err := saveReport(dir, m, b.results()); err != nil {
		t.Fatal(err)
	}
	for file, wants := range map[string][]string{
		"bench.md":   {"2026-01-02; 2 × <A & B>, 24 GiB", "| floor | podd | kubelet |", "1.20×", "pass"},
		"bench.json": {`"median": 120`, `"kernel": "6.18"`},
		"bench.svg":  {"&lt;A &amp; B&gt;", "120 ms", "28 millicores", "400 ms"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %q:\n%s", file, want, text)
			}
		}
	}
	var svg struct{}
	text, _ := os.ReadFile(filepath.Join(dir, "bench.svg"))
	if err := xml.Unmarshal(text, &svg); err != nil {
		t.Errorf("bench.svg is no XML: %v", err)
	}
}

func TestThePagesTableIsReplaced(t *testing.T) {
	b := &bench{samples: map[string]map[string][]float64{rowOne: {colFloor: {0.1}, colPodd: {0.12}}}}
	page := filepath.Join(t.TempDir(), "performance.md")
	for _, c := range []struct{ before, after string }{
		{"a\n" + pageBegin + "old\n" + pageEnd + "z\n", ""},
		{"a\n" + pageEnd + pageBegin, "no lines"},
		{"a\n", "no lines"},
	} {
		if err := os.WriteFile(page, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		err := updatePage(page, machine{Date: "2026-01-02"}, b.results())
		text, _ := os.ReadFile(page)
		if c.after != "" {
			if err == nil || !strings.Contains(err.Error(), c.after) || string(text) != c.before {
				t.Errorf("%q: got %v and %q, want an error and the page as it was", c.before, err, text)
			}
			continue
		}
		if err != nil || !strings.HasPrefix(string(text), "a\n"+pageBegin+"2026-01-02") ||
			!strings.HasSuffix(string(text), pageEnd+"z\n") || strings.Contains(string(text), "old") {
			t.Errorf("got %v and %q", err, text)
		}
	}
}

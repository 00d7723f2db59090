package main

import (
	"bytes"
	"strings"
	"testing"
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
		{rowRestart, []float64{0.01}, []float64{0.2}, "pass"}, // in ms, not over the floor
		{rowRestart, []float64{0.01}, []float64{0.201}, "fail"},
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
		if got := makeResult(info, samples).Verdict; got != c.want {
			t.Errorf("%s, floor %v, podd %v: got %q, want %q", c.row, c.floor, c.podd, got, c.want)
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

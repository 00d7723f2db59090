package main

import (
	"bytes"
	"fmt"
	"html"
	"slices"
)

// The chart shows these rows, each with a scale of its own.
var chartRows = []struct{ row, title string }{
	{rowOne, "One pod: manifest to its first instruction"},
	{rowBurst, "Burst of 50 pods: until all run"},
	{rowRestart, "First restart after a crash"},
	{rowIdle, "Idle with 58 pods: processor time of the agent"},
	{rowRSS, "Idle with 58 pods: memory of the agent"},
}

// Measures of the chart, in pixels. It has a background of its own, so that it
// reads on light and dark pages alike.
const (
	chartWidth, chartMargin, chartLabel, chartValue = 760, 20, 70, 110
	titleHeight, barHeight, barGap, rowGap          = 24, 18, 4, 18
	chartStyle                                      = "<style>text{font:13px system-ui,sans-serif;fill:#1f2328}.t{font-weight:600}.s{fill:#59636e;font-size:11px}</style>\n"
)

var chartColours = map[string]string{colFloor: "#9aa4af", colPodd: "#1a7f5a", colKubelet: "#326ce5"}

// chart draws the medians as bars.
func chart(m machine, results []result) []byte {
	var body bytes.Buffer
	y := chartMargin
	for _, c := range chartRows {
		i := slices.IndexFunc(results, func(r result) bool { return r.Row == c.row })
		if i < 0 {
			continue
		}
		y = chartRow(&body, c.title, results[i], y)
	}
	fmt.Fprintf(&body, "<text class=\"s\" x=\"%d\" y=\"%d\">%s</text>\n", chartMargin, y+4, html.EscapeString(m.String()))
	height := y + chartMargin
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n", chartWidth, height, chartWidth, height)
	b.WriteString("<title>podd, the raw runtime calls and the kubelet on one machine; shorter is better</title>\n" + chartStyle)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#ffffff\"/>\n", chartWidth, height)
	b.Write(body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// chartRow draws one row's bars below y and returns where the next begins.
func chartRow(b *bytes.Buffer, title string, r result, y int) int {
	fmt.Fprintf(b, "<text class=\"t\" x=\"%d\" y=\"%d\">%s</text>\n", chartMargin, y+12, html.EscapeString(title))
	y += titleHeight
	longest := 0.0
	for _, s := range r.Columns {
		longest = max(longest, s.Median)
	}
	for _, column := range []string{colFloor, colPodd, colKubelet} {
		s, ok := r.Columns[column]
		if !ok {
			continue
		}
		width := 1.0
		if longest > 0 {
			width = max(1, s.Median/longest*(chartWidth-2*chartMargin-chartLabel-chartValue))
		}
		x := chartMargin + chartLabel
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">%s</text>", chartMargin, y+13, column)
		fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\" fill=\"%s\"/>", x, y, width, barHeight, chartColours[column])
		fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\">%s %s</text>\n", float64(x)+width+6, y+13, number(s.Median), r.Unit)
		y += barHeight + barGap
	}
	return y + rowGap
}

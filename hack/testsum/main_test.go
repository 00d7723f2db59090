package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestReportShowsFailuresAndCountsAll(t *testing.T) {
	const events = `{"Action":"output","Package":"p","Test":"TestGood","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"bad_test.go:1: got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Test":"TestLater","Output":"needs root\n"}
{"Action":"skip","Package":"p","Test":"TestLater"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
{"ImportPath":"q","Action":"build-output","Output":"q.go:1: syntax error\n"}
{"Action":"fail","Package":"q","FailedBuild":"q"}
`
	var out bytes.Buffer
	got, err := report(strings.NewReader(events), &out)
	if want := (counts{Passed: 1, Failed: 2, Skipped: 1}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for text, want := range map[string]bool{"noise": false, "got 1, want 2": true, "needs root": true, "FAIL\tp": true, "syntax error": true} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("%q shown: want %t in\n%s", text, want, &out)
		}
	}
}

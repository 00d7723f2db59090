package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestReportShowsFailuresAndCountsAll(t *testing.T) {
	const events = `{"Action":"output","Package":"p","Test":"TestGood","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"pass","Package":"p","Test":"TestGood/one"}
{"Action":"pass","Package":"p","Test":"TestGood/two"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"    bad_test.go:1: got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Test":"TestLater","Output":"needs root\n"}
{"Action":"skip","Package":"p","Test":"TestLater"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
{"ImportPath":"q","Action":"build-output","Output":"q.go:1: syntax error\n"}
{"Action":"fail","Package":"q","FailedBuild":"q"}
`
	var out bytes.Buffer
	got, err := report(strings.NewReader(events), &out, how{})
	want := counts{
		Passed: 1, Failed: 2, Skipped: 1, Cases: &counts{Passed: 2},
		Complaints: []string{"failed: p TestBad\n    bad_test.go:1: got 1, want 2", "failed to build: q"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for text, want := range map[string]bool{"noise": false, "got 1, want 2": true, "needs root": true, "FAIL\tp": true, "syntax error": true} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("%q shown: want %t in\n%s", text, want, &out)
		}
	}
}

// TestLiveOutputIsShownOnceAndBeforeTheResult and only of tests, not of their cases.
func TestLiveOutputIsShownOnceAndBeforeTheResult(t *testing.T) {
	const events = `{"Action":"output","Package":"a/p","Test":"TestLong","Output":"=== RUN   TestLong\n"}
{"Action":"output","Package":"a/p","Test":"TestLong","Output":"    first\n"}
{"Action":"output","Package":"a/p","Test":"TestLong/good","Output":"    of a good case\n"}
{"Action":"pass","Package":"a/p","Test":"TestLong/good"}
{"Action":"output","Package":"a/p","Test":"TestLong/bad","Output":"    of a bad case\n"}
`
	const end = `{"Action":"fail","Package":"a/p","Test":"TestLong/bad"}
{"Action":"output","Package":"a/p","Test":"TestLong","Output":"    last\n"}
{"Action":"fail","Package":"a/p","Test":"TestLong"}
`
	for events, want := range map[string]string{
		events:       "    first\n",
		events + end: "    first\n    of a bad case\n    last\n",
	} {
		var out bytes.Buffer
		if _, err := report(strings.NewReader(events), &out, how{live: true}); err != nil || out.String() != want {
			t.Errorf("got %q, %v, want %q", &out, err, want)
		}
	}
}

// TestAComplaintIsWhatTheTestSaid and not the log around it.
func TestAComplaintIsWhatTheTestSaid(t *testing.T) {
	for _, c := range []struct {
		name    string
		printed []string
		want    string
	}{
		{"nothing", nil, "failed: p TestX"},
		{
			"an error before a log", []string{"=== RUN   TestX\n", "    x_test.go:9: got 1\n", "    env_test.go:5: the end of podd's log:\n", "        a\n", "        b\n", "        c\n", "--- FAIL: TestX\n"},
			"failed: p TestX\n    x_test.go:9: got 1\n    env_test.go:5: the end of podd's log:\n    a\n    b",
		},
		{
			"a message of two lines", []string{"    x_test.go:9: got 1\n        want 2\n", "--- FAIL: TestX\n"},
			"failed: p TestX\n    x_test.go:9: got 1\n    want 2",
		},
		{"a panic", []string{"panic: index out of range\n", "\n", "goroutine 1:\n", "more\n"}, "failed: p TestX\n    panic: index out of range\n    goroutine 1:\n    more"},
	} {
		if got := complaint("p TestX", c.printed); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	many := complaint("p TestX", slices.Repeat([]string{"    x_test.go:9: again\n"}, 1000))
	if n := strings.Count(many, "\n"); n != longestComplaint {
		t.Errorf("got %d lines, want %d", n, longestComplaint)
	}
}

func TestWhatDidNotRunIsNoPass(t *testing.T) {
	for _, c := range []struct {
		all  counts
		root bool
		want string
	}{
		{counts{Passed: 9, Skipped: 1}, true, ""}, // for want of a virtual machine, say
		{counts{Passed: 9, Skipped: 1}, false, "run it as root"},
		{counts{Passed: 9}, false, "run it as root"},
		{counts{}, true, "not everything passed"},
		{counts{Passed: 9, Failed: 1}, true, "not everything passed"},
		{counts{Passed: 9, Cases: &counts{Failed: 1}}, true, "not everything passed"},
	} {
		err := verdict(c.all, c.root)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v, root %t: got %v, want %q", c.all, c.root, err, c.want)
		}
	}
	a, b := counts{Passed: 1, Cases: &counts{Passed: 2}}, counts{Passed: 3, Skipped: 1}
	if got := a.plus(b).plus(a); got.Passed != 5 || got.Skipped != 1 || got.Cases.Passed != 4 {
		t.Errorf("got %+v", got)
	}
}

func TestRunsBesideOneAnotherLoseNoCount(t *testing.T) {
	total := filepath.Join(t.TempDir(), "total.json")
	var runs sync.WaitGroup
	for range 50 {
		runs.Go(func() {
			if _, err := add(total, counts{Passed: 2, Cases: &counts{Skipped: 1}}); err != nil {
				t.Error(err)
			}
		})
	}
	runs.Wait()
	if got, err := add(total, counts{}); err != nil || got.Passed != 100 || deref(got.Cases).Skipped != 50 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestASkippedTestThatIsNotListedFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skips.txt")
	const list = "# tests\n\np TestListed needs a printer\np TestCases/one needs two\np TestAll needs three\n"
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	allowed, err := readSkips(file, true)
	if err != nil {
		t.Fatal(err)
	}
	const events = `{"Action":"skip","Package":"p","Test":"TestListed"}
{"Action":"skip","Package":"p","Test":"TestCases/one"}
{"Action":"skip","Package":"p","Test":"TestCases/two"}
{"Action":"skip","Package":"p","Test":"TestAll/any"}
{"Action":"skip","Package":"q","Test":"TestListed"}
{"Action":"output","Package":"p","Test":"TestNew","Output":"    new_test.go:1: no printer\n"}
{"Action":"skip","Package":"p","Test":"TestNew"}
`
	var out bytes.Buffer
	got, err := report(strings.NewReader(events), &out, how{skips: allowed})
	if err != nil {
		t.Fatal(err)
	}
	want := counts{Skipped: 1, Failed: 2, Cases: &counts{Skipped: 2, Failed: 1}}
	complaints := strings.Join(got.Complaints, "\n")
	got.Complaints = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, cases %+v", got, got.Cases)
	}
	for _, want := range []string{"p TestCases/two was skipped", "q TestListed was skipped", "p TestNew was skipped, and is not among the tests that may be\n    new_test.go:1: no printer"} {
		if !strings.Contains(complaints, want) {
			t.Errorf("%q is not in\n%s", want, complaints)
		}
	}
	if err := os.WriteFile(file, []byte("p TestListed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readSkips(file, true); err == nil || !strings.Contains(err.Error(), "skips.txt:1: ") {
		t.Errorf("a row without a reason: got %v", err)
	}
	if any, err := readSkips(file, false); err != nil || !any.mayBe(name{"p", "TestNew"}) {
		t.Errorf("without root: %v", err)
	}
}

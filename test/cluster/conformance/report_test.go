package conformance

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// report is ginkgo's, as short as it can be.
const report = `[{"SpecReports": [
  {"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
  {"ContainerHierarchyTexts": ["[sig-node] Pods", ""], "LeafNodeType": "It", "LeafNodeText": "should run", "State": "passed"},
  {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "should end", "State": "failed", "RunTime": 3000000000,
   "Failure": {"Message": "\ntimed out waiting\nfor the pod"}},
  {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "should fly", "State": "timedout", "Failure": {"Message": "no wings"}},
  {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "should swim", "State": "passed"},
  {"LeafNodeType": "It", "LeafNodeText": "not chosen", "State": "skipped"},
  {"LeafNodeType": "It", "LeafNodeText": "not for this system", "State": "skipped", "Failure": {"Message": "Windows only"}},
  {"LeafNodeType": "It", "LeafNodeText": "not yet", "State": "pending"}
]}, {"SpecReports": [{"LeafNodeType": "SynchronizedAfterSuite", "State": "panicked", "Failure": {"Message": "oh"}}]}]`

const list = `
# Two.
[sig-node] Pods should fly # pods have no wings
[sig-node] Pods should swim # pods have no fins
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func judged(t *testing.T, report, list string) *result {
	t.Helper()
	specs, err := readReport(write(t, report))
	if err != nil {
		t.Fatal(err)
	}
	expected, err := readExpected(write(t, list))
	if err != nil {
		t.Fatal(err)
	}
	return judge(specs, expected)
}

func TestATestThatFailsIsToldWithItsFirstComplaint(t *testing.T) {
	r := judged(t, report, list)
	var out strings.Builder
	r.print(&out)
	want := `
2 passed, 2 failed, 1 failed as expected, 1 skipped themselves, in 0s

owner     passed  failed  as expected  skipped
(none)    0       1       0            1
sig-node  2       1       1            0

FAILED [sig-node] Pods should end (3 s)
  timed out waiting for the pod

FAILED [SynchronizedAfterSuite] (0 s)
  oh

failed as expected: [sig-node] Pods should fly
  no wings
  because: pods have no wings

PASSED, though it is listed as one that cannot: [sig-node] Pods should swim
  listed because: pods have no fins
`
	if out.String() != want {
		t.Errorf("got %s\nwant %s", out.String(), want)
	}
	if err := r.err(); err == nil {
		t.Error("a run with failed tests is a success")
	}
}

func TestARunSucceedsIfOnlyWhatIsListedFails(t *testing.T) {
	one := `[{"SpecReports": [
	{"LeafNodeType": "It", "LeafNodeText": "a", "State": "passed"},
	{"LeafNodeType": "It", "LeafNodeText": "b", "State": "failed", "Failure": {"Message": "no"}}]}]`
	if err := judged(t, one, "b # it cannot").err(); err != nil {
		t.Errorf("got %v", err)
	}
	if err := judged(t, `[{"SpecReports": [{"LeafNodeType": "It", "State": "skipped"}]}]`, "").err(); err == nil {
		t.Error("a run without a test is a success")
	}
	if err := judged(t, one, "a # it cannot\nb # it cannot").err(); err == nil || !strings.Contains(err.Error(), "1 of upstream's tests passed that") {
		t.Errorf("a test passed that is listed as one that cannot: got %v", err)
	}
	for atLeast, want := range map[int]string{2: "", 3: "2 of upstream's tests ran, and there are at least 3"} {
		r := judged(t, one, "b # it cannot")
		r.atLeast = atLeast
		if err := r.err(); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("two tests, at least %d wanted: got %v, want %q", atLeast, err, want)
		}
	}
}

func TestATestMayBeListedForSomeMachines(t *testing.T) {
	conditions["it rains"] = func() (bool, error) { return true, nil }
	conditions["it snows"] = func() (bool, error) { return false, nil }
	t.Cleanup(func() { delete(conditions, "it rains"); delete(conditions, "it snows") })
	got, err := readExpected(write(t, "a # where it rains # it gets wet\nb # where it snows # it gets cold\nc # always\n"))
	if want := map[string]string{"a": "it gets wet", "c": "always"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for list, want := range map[string]string{"a # where it hails # b": `no condition "it hails"`, "a # where it rains": "has no reason"} {
		if _, err := readExpected(write(t, list)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", list, err, want)
		}
	}
}

func TestAListedTestMustHaveAReason(t *testing.T) {
	if _, err := readExpected(write(t, "[sig-node] Pods should fly\n")); err == nil || !strings.Contains(err.Error(), "has no reason") {
		t.Errorf("got %v", err)
	}
}

func TestTheListsOfTheRepositoryCanBeRead(t *testing.T) {
	for _, path := range []string{"expected.txt", "../../kubeadm/expected.txt", "../../kubeadm/nodesuite.txt"} {
		if _, err := readExpected(path); err != nil {
			t.Error(err)
		}
	}
}

func TestProgressCountsTestsAndTellsOfThoseThatFail(t *testing.T) {
	var out strings.Builder
	p := &progress{out: &out}
	text := "Will run 11 of 7579 specs\n" + strings.Repeat("------\n• [5.1 seconds]\n[sig-node] Pods should run\n", 9) + `------
[SynchronizedBeforeSuite] PASSED [0.040 seconds]
[SynchronizedBeforeSuite] 
------
• [FAILED] [12.3 seconds]
[sig-node] Pods [It] should end
  • [a line of the test's own]
------
S [SKIPPED] [0.1 seconds]
[sig-node] Pods [It] should swim
`
	for line := range strings.Lines(text) {
		p.line(strings.TrimSuffix(line, "\n"))
	}
	want := "11 tests\nFAILED [sig-node] Pods [It] should end\n10 of 11 done, 1 failed so far\n"
	if out.String() != want || p.done != 11 {
		t.Errorf("got %d and %q, want %q", p.done, out.String(), want)
	}
}

package manifest

import (
	"strings"
	"testing"
)

// TestABoundIsReportedWhateverWasWrongBefore has texts of which podd reads a part: it
// says so, though it has said much already, and the last good set stays.
func TestABoundIsReportedWhateverWasWrongBefore(t *testing.T) {
	broken := strings.Repeat("---\nkind: Pod\n", 2*maxProblems)
	container := "{name: c, image: i}"
	for name, tc := range map[string]struct{ text, want string }{
		"documents":    {broken + strings.Repeat("---\n~\n", maxDocuments), "more than 10000 documents"},
		"JSON objects": {strings.Repeat("{}", maxDocuments+1), "more than 10000 documents"},
		"pods":         {broken + strings.Repeat("---\n"+podFlow("a"), MaxPods+1), "more than 2000 pods"},
		"items":        {broken + "---\napiVersion: v1\nkind: PodList\nitems: [" + strings.Repeat("{},", MaxPods+1) + "]\n", "more than 2000 pods"},
		"values": {broken + strings.Repeat("---\n"+strings.Replace(podFlow("a"), container, container+strings.Repeat(","+container, 3000), 1), 40),
			"more than 64.0 MiB of memory"},
	} {
		r := Decode([]byte(tc.text), options("x"))
		if len(r.Pods) > 0 || len(r.Failed) != 1 || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Message, tc.want) || r.Problems[0].Warning {
			t.Errorf("%s: got %d pods, %d failures, %v, want a problem with %q alone", name, len(r.Pods), len(r.Failed), r.Problems, tc.want)
		}
	}
}

// TestAPodBeyondABoundIsOneProblem has the others of its file run.
func TestAPodBeyondABoundIsOneProblem(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"containers":  {strings.Replace(podFlow("a"), "image: i}", "image: i}"+strings.Repeat(",{}", 20_000), 1), "the limit of 8.0 MiB of memory"},
		"nodes":       {"a: [" + strings.Repeat("[],[],[],[],[],[],[],[],[],[],", maxMarks/10) + "]\n", "more than 300000 lines, fields"},
		"JSON nodes":  {`{"a":[1` + strings.Repeat(",1", maxNodes) + "]}", "more than 250000 values"},
		"long alias":  {"a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 20) + "]\n", "expand to more than"},
		"alias chain": {"a: [&a0 [x]" + aliasChain(maxDepth+1) + "]\n", "nested more than 1000"},
	} {
		r := Decode([]byte(podFlow("before")+"---\n"+tc.text+"---\n"+podFlow("behind")), options("x"))
		if tc.text[0] == '{' {
			r = Decode([]byte(podFlow("before")+"---\n"+tc.text+"\n---\n"+podFlow("behind")), options("x"))
		}
		if len(r.Pods) != 2 || len(r.Failed) != 1 || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Message, tc.want) {
			t.Errorf("%s: got %d pods, %v, want a problem with %q alone", name, len(r.Pods), r.Problems, tc.want)
		}
	}
	// Of a pod with many faults some are told, and that there are more.
	r := Decode([]byte(strings.Replace(podFlow("a"), "image: i}", "image: i}"+strings.Repeat(",{}", 500), 1)), options("x"))
	if n := len(r.Problems); n != maxProblems+1 || !strings.Contains(r.Problems[n-1].Message, "more problems") {
		t.Errorf("got %d problems, the last %v", n, r.Problems[n-1])
	}
}

func aliasChain(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(", &a" + itoa(int64(i+1)) + " [*a" + itoa(int64(i)) + "]")
	}
	return b.String()
}

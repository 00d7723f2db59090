package admission

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// stock answers for device plugins, and counts.
type stock struct {
	waits           string
	err             error
	asked, released int
}

func (s *stock) Admit(*v1.Pod) (string, error) { s.asked++; return s.waits, s.err }
func (s *stock) Release(pod.UID)               { s.released++ }

func TestDevicesAreAskedLast(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := &stock{}
	g := NewGate(aNode(), s, reg)
	fits, tooBig := tolerating(aPod("a", "cpu", "1")), tolerating(aPod("a", "cpu", "3"))
	crit := with(aPod("crit", "cpu", "2"), fromFile)
	for name, tc := range map[string]struct {
		stock           stock
		pod             *v1.Pod
		others          []*v1.Pod
		want            pod.Verdict
		asked, released int
	}{
		"given":     {pod: fits, asked: 1},
		"to come":   {stock: stock{waits: "a plugin"}, pod: fits, want: pod.Verdict{PendingReason: "a plugin"}, asked: 1},
		"not there": {stock: stock{err: errors.New("no gpu")}, pod: fits, want: pod.Verdict{Reason: "UnexpectedAdmissionError", Message: "Allocate failed due to no gpu, which is unexpected"}, asked: 1},
		"rejected before, and nothing is reserved":   {pod: tooBig, want: pod.Verdict{Reason: "OutOfcpu"}, released: 1},
		"not before those that it preempts are gone": {pod: crit, others: []*v1.Pod{aPod("b", "cpu", "2")}, want: pod.Verdict{Preempt: []pod.UID{"uid-b"}, PreemptFor: "cpu"}},
	} {
		*s = tc.stock
		got := g.Admit(tc.pod, tc.others)
		if got.Reason != tc.want.Reason || got.PendingReason != tc.want.PendingReason || len(got.Preempt) != len(tc.want.Preempt) || tc.want.Message != "" && got.Message != tc.want.Message {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
		if s.asked != tc.asked || s.released != tc.released {
			t.Errorf("%s: asked %d times, released %d times", name, s.asked, s.released)
		}
		if tc.want.PendingReason != "" && got.Admitted() {
			t.Errorf("%s: it is admitted", name)
		}
	}
	want := `# HELP kubelet_admission_rejections_total Pods that were rejected on this node, by reason; an extended resource counts as OutOfExtendedResources.
# TYPE kubelet_admission_rejections_total counter
kubelet_admission_rejections_total{reason="OutOfcpu"} 1
kubelet_admission_rejections_total{reason="UnexpectedAdmissionError"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kubelet_admission_rejections_total"); err != nil {
		t.Error(err)
	}
}

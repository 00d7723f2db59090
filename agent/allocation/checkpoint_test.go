package allocation_test

import (
	"encoding/json"
	"strings"
	"testing"

	"podd/agent/allocation"
	"podd/internal/pod"
)

func TestACheckpointIsReadAsItWasWritten(t *testing.T) {
	for _, cpus := range []string{"100m", "0.1", "1e3", "1000000n"} {
		d := wants(cpus, 1)
		own := cpuOf("2")
		d.Pod.Spec.Resources = &own
		text, err := json.Marshal(allocation.CheckpointOf(d))
		if err != nil {
			t.Fatal(err)
		}
		read := func(text string) (allocation.Checkpoint, error) {
			var c allocation.Checkpoint
			if err := json.Unmarshal([]byte(text), &c); err != nil {
				t.Fatal(err)
			}
			return c, c.Check()
		}
		c, err := read(string(text))
		if err != nil || !c.Resources.Match(d.Pod) || c.UID != d.UID() || c.Source != d.Source {
			t.Errorf("%s: got %+v, %v", text, c, err)
		}
		for _, other := range []string{
			strings.Replace(string(text), `"cpu":"2"`, `"cpu":"3"`, 1),
			strings.Replace(string(text), `"uid":"u1"`, `"uid":"u2"`, 1),
			strings.Replace(string(text), `"source":"api"`, `"source":"file"`, 1),
			`{"uid":"u1","source":"api","resources":{}}`,
		} {
			if _, err := read(other); err == nil || other == string(text) {
				t.Errorf("%s: want an error", other)
			}
		}
	}
}

// TestARestartGrantsNothing: what was granted before is what the pod has, and what
// its source desires meanwhile is a proposal.
func TestARestartGrantsNothing(t *testing.T) {
	c := allocation.CheckpointOf(wants("100m", 1))
	same := wants("100m", 2)
	a := c.Restore(same)
	if a, ask := a.Propose(allocation.Proposal{Desired: same, Now: noon}); ask || a.Granted != same || a.ResizePending() {
		t.Errorf("nothing changed: got %+v, ask %v", a, ask)
	}
	a = c.Restore(wants("200m", 2))
	if got := cpu(a.Granted); got != "100m" {
		t.Errorf("got %s granted, want 100m", got)
	}
	if a, ask := a.Propose(allocation.Proposal{Desired: wants("200m", 2), Now: noon}); !ask || cpu(a.Granted) != "100m" {
		t.Errorf("more: got %s granted, ask %v", cpu(a.Granted), ask)
	}
}

func TestWhoseAllocationIsKept(t *testing.T) {
	orphan := &pod.Desired{Pod: wants("100m", 1).Pod.DeepCopy(), Source: pod.SourceAPIServer}
	orphan.Pod.Spec.Containers = nil
	static := wants("100m", 1)
	static.Source = pod.SourceFile
	for name, c := range map[string]struct {
		d    *pod.Desired
		want bool
	}{"an apiserver's": {wants("100m", 1), true}, "a file's": {static, false}, "without a manifest": {orphan, false}} {
		if got := allocation.NeedsCheckpoint(c.d); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

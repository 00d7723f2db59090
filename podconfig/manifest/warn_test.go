package manifest

import (
	"strings"
	"testing"
)

// TestWarningsLeaveTheirPodAlone: a pod with warnings runs, and its warnings are
// not taken for a reason to keep an old version.
func TestWarningsLeaveTheirPodAlone(t *testing.T) {
	odd := `{apiVersion: v1, kind: Pod, metadata: {name: odd, annotations: {podd/restart-backoff-max: soon}}, spec: {containers: [{name: a, image: i}]}}`
	bad := `{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: [{name: a, imagee: i}]}}`
	r := Decode([]byte(odd+"\n---\n"+bad), options("x.yaml"))
	if len(r.Pods) != 1 || len(r.Failed) != 1 || len(r.Problems) != 2 {
		t.Fatalf("got %d pods, %d failures, problems %v", len(r.Pods), len(r.Failed), r.Problems)
	}
	w := r.Problems[0]
	if !w.Warning || w.Pod != "default/odd-node1" || !strings.Contains(w.String(), "x.yaml:1: warning: metadata.annotations[podd/restart-backoff-max]: ") {
		t.Errorf("got %+v", w)
	}
	old := Decode([]byte(strings.ReplaceAll(bad, "imagee", "image")), options("x.yaml")).Content
	MarkRetained(r.Problems, Retain(r.Content, old, r.Failed), r.Failed, old)
	if r.Problems[0].LastGoodInUse || !r.Problems[1].LastGoodInUse || r.Problems[1].Warning {
		t.Errorf("got %+v, want the broken pod kept and the odd one not", r.Problems)
	}
}

// As the kubelet, which keeps the field in what it makes of a manifest: static pods of
// OpenShift's nodes have their grace period there.
func TestDeletionGracePeriodSecondsOfAManifestIsKept(t *testing.T) {
	decode := func(meta, hook string) Result {
		return Decode([]byte("{apiVersion: v1, kind: Pod, metadata: {name: vip, creationTimestamp: null"+meta+"}, spec: {terminationGracePeriodSeconds: 60, containers: [{name: a, image: i"+hook+"}]}}"), options("x.yaml"))
	}
	r := decode(", deletionGracePeriodSeconds: 45", "")
	if len(r.Pods) != 1 || len(r.Problems) != 0 {
		t.Fatalf("got %d pods, problems %v", len(r.Pods), r.Problems)
	}
	if s := r.Pods[0].Pod.DeletionGracePeriodSeconds; s == nil || *s != 45 || r.Pods[0].Pod.DeletionTimestamp != nil {
		t.Errorf("got %+v", r.Pods[0].Pod.ObjectMeta)
	}
	// What it was when the field was dropped: the pod is not another one.
	if uid := r.Pods[0].UID(); uid != "239a5af046710b652d43c8f61ade0e26" {
		t.Errorf("got UID %s", uid)
	}
	for seconds, want := range map[string]string{"5": "metadata.deletionGracePeriodSeconds above 5", "0": "deletionGracePeriodSeconds is 0", "45": ""} {
		r := decode(", deletionGracePeriodSeconds: "+seconds, ", lifecycle: {preStop: {sleep: {seconds: 5}}}")
		text := ""
		for _, p := range r.Problems {
			text += p.String() + p.Hint
		}
		if len(r.Pods) != 1 || want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("a hook of 5 s and a grace period of %s s: got %q, want %q", seconds, text, want)
		}
	}
}

// The rest of the metadata that is dropped is told, in one sentence.
func TestDroppedMetadataIsTold(t *testing.T) {
	for meta, want := range map[string]string{
		"":                          "",
		", creationTimestamp: null": "",
		", uid: abc":                "an apiserver sets in the metadata of a pod: uid",
		", resourceVersion: '1', generation: 2, deletionTimestamp: 2026-01-02T03:04:05Z": "resourceVersion, generation, deletionTimestamp",
	} {
		r := Decode([]byte("{apiVersion: v1, kind: Pod, metadata: {name: web"+meta+"}, spec: {containers: [{name: a, image: i}]}}"), options("x.yaml"))
		got := ""
		for _, p := range r.Problems {
			got += p.String()
		}
		if len(r.Pods) != 1 || len(r.Problems) > 1 || (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %d pods and %q, want a warning with %q", meta, len(r.Pods), got, want)
		}
		for _, p := range r.Problems {
			if !p.Warning {
				t.Errorf("got %+v, want a warning", p)
			}
		}
	}
}

func TestHostPortsOfOnePodThatOverlapAreTold(t *testing.T) {
	for ports, want := range map[string]string{
		"{containerPort: 1, hostPort: 53}, {containerPort: 1, hostPort: 53, protocol: UDP}":                         "",
		"{containerPort: 1, hostPort: 53, hostIP: 127.0.0.1}, {containerPort: 1, hostPort: 53, hostIP: 192.0.2.1}":  "",
		"{containerPort: 1, hostPort: 53}, {containerPort: 2, hostPort: 53, hostIP: 127.0.0.1}":                     "spec.containers[0].ports[1].hostPort: host port 127.0.0.1:53/TCP overlaps with 53/TCP (spec.containers[0].ports[0].hostPort)",
		"{containerPort: 1, hostPort: 53, hostIP: '::1'}, {containerPort: 2, hostPort: 53, hostIP: '::'}":           "overlaps with ::1:53/TCP",
		"{containerPort: 1, hostPort: 53, hostIP: 192.0.2.1}, {containerPort: 2, hostPort: 54}, {containerPort: 3}": "",
	} {
		r := Decode([]byte("{apiVersion: v1, kind: Pod, metadata: {name: dns}, spec: {containers: [{name: a, image: i, ports: ["+ports+"]}]}}"), options("x.yaml"))
		got := ""
		for _, p := range r.Problems {
			if got += p.String(); !p.Warning {
				t.Errorf("%s: got %s, want a warning", ports, p)
			}
		}
		if len(r.Pods) != 1 || (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %d pods and %q, want %q", ports, len(r.Pods), got, want)
		}
	}
}

// The kubelet of 1.37 logs a warning in the same cases (getStaticPodPriorityWarning). Without a
// cluster, only a class without a priority matters.
func TestThePriorityOfAStaticPodIsWarnedOf(t *testing.T) {
	for name, tc := range map[string]struct {
		spec             string
		alone, inCluster string // what is said, and how to mend it; empty for nothing
	}{
		"no priority":              {"", "", ""},
		"upstream's static pods":   {"priority: 2000001000, priorityClassName: system-node-critical, ", "", ""},
		"a class that is known":    {"priorityClassName: system-cluster-critical, ", "spec.priorityClassName: the pod has no priority|give the pod priority: 2000000000, too", "mirror pod|give the pod priority: 2000000000, too"},
		"a class of the cluster's": {"priorityClassName: mine, ", "spec.priorityClassName: the pod has no priority|give the pod the priority of the class", "mirror pod|priority of the class"},
		"no class":                 {"priority: 7, ", "", "spec.priority: the apiserver refuses the mirror pod if the cluster's default priority is not 7|priorityClassName of a class"},
		"zero without a class":     {"priority: 0, ", "", "default priority is not 0|priorityClassName of a class"},
		"another priority":         {"priority: 7, priorityClassName: mine, ", "", "spec.priority: the cluster may evict the mirror pod|give the pod priority: 2000001000 with priorityClassName: system-node-critical"},
		"the other system class":   {"priority: 2000000000, priorityClassName: system-cluster-critical, ", "", "may evict the mirror pod|system-node-critical"},
	} {
		for mirrored, want := range map[bool]string{false: tc.alone, true: tc.inCluster} {
			opt := options("x.yaml")
			opt.Mirrored = mirrored
			r := Decode([]byte("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {"+tc.spec+"containers: [{name: a, image: i}]}}"), opt)
			if len(r.Pods) != 1 || len(r.Problems) > 1 || (len(r.Problems) == 1) != (want != "") {
				t.Errorf("%s, mirrored %v: got %d pods, problems %v", name, mirrored, len(r.Pods), r.Problems)
				continue
			}
			message, hint, _ := strings.Cut(want, "|")
			for _, p := range r.Problems {
				if !p.Warning || !strings.Contains(p.String(), message) || !strings.Contains(p.Hint, hint) {
					t.Errorf("%s, mirrored %v: got %+v, want a warning with %q and %q", name, mirrored, p, message, hint)
				}
			}
		}
	}
}

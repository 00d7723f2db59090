package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"podd/inspect"
	"podd/internal/pod"
	"podd/server"
)

// TestInspectIsATableWithItsDifferencesMarked uses a container as containerd reports
// it, in a pod whose manifest differs in two places, and one that does not exist yet.
func TestInspectIsATableWithItsDifferencesMarked(t *testing.T) {
	read := func(name string, into any) {
		text, err := os.ReadFile("../inspect/testdata/" + name)
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var info struct {
		Spec *specs.Spec `json:"runtimeSpec"`
	}
	p := &v1.Pod{}
	read("pod.yaml", p)
	read("containerd-bound.json", &info)
	p.Spec.SecurityContext.RunAsUser, p.Spec.Containers[0].VolumeMounts[0].ReadOnly = new(int64), true
	p.Annotations = map[string]string{pod.AnnotationBackOffInitial: "100ms", pod.AnnotationBackOffMax: "1m", pod.AnnotationRestartOnChange: "true", pod.AnnotationProbeUntilSuccess: "50ms"}
	rows := inspect.Compare(inspect.Input{Pod: p, Container: &p.Spec.Containers[0], Spec: info.Spec})
	var out strings.Builder
	err := writeInspection(&out, inspect.Pod{Namespace: "default", Name: "inspect-vm", UID: "uid", Runtime: "containerd v2.4.2", Settings: inspect.Settings(p), Containers: []inspect.Container{
		{Name: "bound", ID: "c98bc50e52a2", State: "running", PID: 16196, Rows: rows},
		{Name: "late", Message: "there is no container yet\x1b"},
	}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "inspect", out.String())
	if b, _ := json.Marshal(rows); !strings.Contains(string(b), `"differs":true`) {
		t.Errorf("the JSON lacks the differences: %s", b)
	}
}

// TestInspectTakesOnePod: the newer of two generations, and no ambiguous prefix.
func TestInspectTakesOnePod(t *testing.T) {
	at := func(name string, ending bool) server.PodInfo {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if ending {
			p.DeletionTimestamp = &metav1.Time{}
		}
		return server.PodInfo{Pod: p}
	}
	l := server.Listing{Pods: []server.PodInfo{at("web", true), at("web", false), at("db-1", false), at("db-2", false)}}
	for name, want := range map[string]string{"web": "", "db-1": "", "db": "means 2 pods: give one of default/db-1, default/db-2", "x": "no pod x"} {
		info, err := podName{"", name}.selectOne(l)
		switch {
		case want == "" && (err != nil || info.Pod.Name != name || info.Pod.DeletionTimestamp != nil):
			t.Errorf("%s: got %v, %v", name, info.Pod, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

package cli

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"podd/server"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// aDescription reads a pod of testdata/describe; times are printed in UTC.
func aDescription(t *testing.T, file string) *description {
	t.Helper()
	zone := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = zone })
	text, err := os.ReadFile(filepath.Join("testdata/describe", file+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d := &description{PodInfo: server.PodInfo{Pod: &v1.Pod{}}, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	if err := yaml.UnmarshalStrict(text, d.Pod); err != nil {
		t.Fatal(err)
	}
	return d
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got)\n%s", path, d)
	}
}

// TestDescribeHasKubectlsFieldsAndLayout, for every part of a pod: kubectl 1.36
// prints the same lines for the same file, except for podd's own (Bound To,
// Manifest), the indentation of VolumeAttributes, and a limit of ephemeral storage
// that is not set.
func TestDescribeHasKubectlsFieldsAndLayout(t *testing.T) {
	d := aDescription(t, "everything")
	d.Origin = "/etc/podd/manifests/shop.yaml"
	d.volumes = []server.Volume{
		{Name: "scratch", Path: "/var/lib/podd/pods/8d4c1c5e/volumes/kubernetes.io~empty-dir/scratch", Source: "tmpfs", FSType: "tmpfs"},
		{Name: "plain", Path: "/var/lib/podd/pods/8d4c1c5e/volumes/kubernetes.io~empty-dir/plain"},
		{Name: "database", Message: "not set up"},
		{Name: "host", Path: "/srv"},
		{Name: "share", Path: "/var/lib/podd/pods/8d4c1c5e/volumes/kubernetes.io~nfs/share", Source: "nas.test:/export", FSType: "nfs4"},
	}
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(d.now.Add(-ago)) }
	d.events = []v1.Event{
		{Type: "Normal", Reason: "Started", Message: "Container started\n", Count: 1, FirstTimestamp: at(time.Hour), LastTimestamp: at(time.Hour),
			InvolvedObject: v1.ObjectReference{FieldPath: "spec.containers{web}"}, Source: v1.EventSource{Component: "kubelet"}},
		{Type: "Warning", Reason: "Unhealthy", Message: "Liveness probe failed", Count: 3, FirstTimestamp: at(50 * time.Minute), LastTimestamp: at(time.Minute),
			Source: v1.EventSource{Component: "kubelet"}},
	}
	var out strings.Builder
	if err := d.write(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "describe/everything", out.String())
}

// TestDescribeSaysWhyAPodIsNotAllRight: why containers wait or are not ready, and
// what is wrong with the manifest.
func TestDescribeSaysWhyAPodIsNotAllRight(t *testing.T) {
	d := aDescription(t, "waiting")
	d.Causes = map[string]string{"b": "Readiness probe failed: \x1b[31mno"}
	d.problems = []string{"/etc/podd/manifests/late.yaml:3: spec.nodename: unknown field; the last good version keeps running"}
	var out strings.Builder
	if err := d.write(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "describe/waiting", out.String())
}

// TestANameThatNoPodHasIsAPrefix, as in kubectl describe.
func TestANameThatNoPodHasIsAPrefix(t *testing.T) {
	var all []server.PodInfo
	for _, name := range []string{"default/web", "default/web-2", "apps/web-3", "apps/static-vm"} {
		ns, n, _ := strings.Cut(name, "/")
		all = append(all, server.PodInfo{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: n}, Spec: v1.PodSpec{NodeName: "vm"}}})
	}
	for _, tt := range []struct{ asked, namespace, want string }{
		{"web", "", "default/web"},
		{"we", "", "default/web default/web-2 apps/web-3"},
		{"we", "apps", "apps/web-3"},
		{"web", "apps", "apps/web-3"},
		{"static", "", "apps/static-vm"},
		{"stat", "", "apps/static-vm"},
		{"x", "", ""},
		{"", "", ""},
	} {
		var got []string
		for _, info := range (podName{tt.namespace, tt.asked}).find(all) {
			got = append(got, info.Pod.Namespace+"/"+info.Pod.Name)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q of namespace %q: got %v, want %s", tt.asked, tt.namespace, got, tt.want)
		}
	}
}

func TestDescribeNamesDevicesAndTheirHealth(t *testing.T) {
	s := newSheet()
	writeDevices(s, &v1.ContainerStatus{})
	writeDevices(s, &v1.ContainerStatus{AllocatedResourcesStatus: []v1.ResourceStatus{{
		Name: "example.com/gpu", Resources: []v1.ResourceHealth{{ResourceID: "a\n\x1b[31m", Health: v1.ResourceHealthStatusHealthy}, {ResourceID: "b", Health: v1.ResourceHealthStatusUnknown, Message: new("hot\n\x1b[31m")}},
	}}})
	var out strings.Builder
	if err := s.writeTo(&out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "Devices:\n") || !strings.Contains(text, "example.com/gpu:  a") || !strings.Contains(text, " (Healthy), b (Unknown: hot") || strings.Contains(text, "\x1b") {
		t.Errorf("got %q", text)
	}
}

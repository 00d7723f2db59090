package status

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGoldenStatus compares whole statuses with files that were read against
// what upstream's kubelet prints for the same pod.
func TestGoldenStatus(t *testing.T) {
	limits := func(s *scene) {
		s.spec().Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
		s.spec().Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
		s.spec().Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: true}}
	}
	for name, opts := range map[string][]option{
		"running":   {with("web", running(0, 2)), limits},
		"crashloop": {with("web", exited(2, 1, 40), exited(1, 1, 20)), waits("web", "CrashLoopBackOff")},
		"completed": {policy(never), withInit("setup", exited(0, 0, 3)), with("job", exited(0, 0, 9))},
		"creating":  {noSandbox(), with("web"), waits("web", "ContainerCreating")},
		"initializing": {withInit("setup", exited(0, 0, 3)), withSidecar("proxy", running(0, 3)), withInit("migrate", exited(1, 2, 20), exited(0, 2, 9)),
			waits("migrate", "CrashLoopBackOff"), with("web"), started(true, "proxy")},
		"sidecar":  {withSidecar("proxy", running(0, 3)), with("web", running(0, 4)), limits, stops("SIGQUIT")},
		"resizing": {with("web", running(0, 2)), limits, granted("web", "32Mi"), holds("web", 32<<20), resizing},
		"refused":  {noSandbox(), with("web"), failed("NodeAffinity")},
	} {
		o := Options{HostIPs: []string{"192.0.2.7"}}
		got, err := json.MarshalIndent(o.Compute(aScene(opts...), v1.PodStatus{}), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		file := filepath.Join("testdata", name+".json")
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Errorf("%s: (-want +got)\n%s", file, d)
		}
	}
}

package podapi

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func plainPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "web", Image: "localhost/web:1"}}},
	}
}

func TestDefaultFillsWhatTheAPIServerFills(t *testing.T) {
	p := plainPod()
	Default(p)
	c := p.Spec.Containers[0]
	if p.Spec.RestartPolicy != v1.RestartPolicyAlways || c.ImagePullPolicy != v1.PullIfNotPresent ||
		c.TerminationMessagePath != "/dev/termination-log" || *p.Spec.TerminationGracePeriodSeconds != 30 {
		t.Errorf("got %+v, want the API's defaults", p.Spec)
	}
	if errs := Validate(p); len(errs) > 0 {
		t.Errorf("a plain pod: got %v, want no objection", errs)
	}
}

// TestResourcesOfAPodAreDefaultedAsAnApiserverStoresThem: since 1.37 what reads a pod does
// not do so any more.
func TestResourcesOfAPodAreDefaultedAsAnApiserverStoresThem(t *testing.T) {
	list := func(cpu string) v1.ResourceList {
		if cpu == "" {
			return nil
		}
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	}
	for name, c := range map[string]struct {
		requests, limits, container, wantRequests, wantLimits string
	}{
		"limits alone":                  {limits: "2", wantRequests: "2", wantLimits: "2"},
		"limits, and a container's":     {limits: "2", container: "500m", wantRequests: "500m", wantLimits: "2"},
		"requests alone":                {requests: "1", wantRequests: "1"},
		"requests, containers' limits":  {requests: "100m", container: "500m", wantRequests: "100m", wantLimits: "500m"},
		"none, which stay as they were": {},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: list(c.requests), Limits: list(c.limits)}, Containers: []v1.Container{{Name: "c"}}}}
		if c.container != "" {
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list(c.container), Limits: list(c.container)}
		}
		Default(p)
		Default(p)
		if r := p.Spec.Resources; r == nil || !equality.Semantic.DeepEqual(r.Requests, list(c.wantRequests)) || !equality.Semantic.DeepEqual(r.Limits, list(c.wantLimits)) {
			t.Errorf("%s: got %v, want %s and %s", name, r, c.wantRequests, c.wantLimits)
		}
	}
}

func TestValidateSpeaksInTheAPIServersWords(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*v1.Pod)
		want  string
	}{
		"no containers": {func(p *v1.Pod) { p.Spec.Containers = nil },
			"spec.containers: Required value"},
		"bad policy": {func(p *v1.Pod) { p.Spec.RestartPolicy = "Sometimes" },
			`spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`},
		"port": {func(p *v1.Pod) {
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 70000, Protocol: "TCP"}}
		},
			"spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"},
	} {
		t.Run(name, func(t *testing.T) {
			p := plainPod()
			tc.spoil(p)
			Default(p)
			got := Validate(p).ToAggregate()
			if got == nil || !strings.Contains(got.Error(), tc.want) {
				t.Errorf("got %v, want %q", got, tc.want)
			}
		})
	}
}

func TestValidateLeavesThePodAlone(t *testing.T) {
	p := plainPod()
	Default(p)
	p.Annotations = map[string]string{"pod.beta.kubernetes.io/init-containers": "[]"}
	before := p.DeepCopy()
	Validate(p)
	if _, err := APIReference(p); err != nil {
		t.Fatal(err)
	}
	if len(p.Annotations) != len(before.Annotations) {
		t.Errorf("annotations: got %v, want %v", p.Annotations, before.Annotations)
	}
}

func TestPrivilegedContainersAreValid(t *testing.T) {
	p := plainPod()
	yes := true
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: &yes}
	Default(p)
	if errs := Validate(p); len(errs) > 0 {
		t.Errorf("got %v, want no objection", errs)
	}
}

func TestAPIReference(t *testing.T) {
	p := plainPod()
	Default(p)
	if got, err := APIReference(p); got != "" || err != nil {
		t.Errorf("a plain pod: got %q, %v", got, err)
	}
	p.Spec.ServiceAccountName = "builder"
	if got, _ := APIReference(p); got != "serviceaccounts" {
		t.Errorf("serviceAccountName: got %q, want serviceaccounts", got)
	}
}

func BenchmarkDefaultAndValidate(b *testing.B) {
	for b.Loop() {
		p := plainPod()
		Default(p)
		if errs := Validate(p); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

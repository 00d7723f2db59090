package podapi

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
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

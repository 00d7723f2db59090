package podenv

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDownwardFieldsOfVolumes(t *testing.T) {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "u1",
			Labels: map[string]string{"b": "2", "a": "1"}, Annotations: map[string]string{"note": "two\nlines"},
		},
		Spec: v1.PodSpec{NodeName: "n"},
	}
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "shop", "metadata.uid": "u1",
		"metadata.labels":              "a=\"1\"\nb=\"2\"",
		"metadata.annotations":         `note="two\nlines"`,
		"metadata.labels['a']":         "1",
		"metadata.labels['none']":      "",
		"metadata.annotations['note']": "two\nlines",
	} {
		if got, err := (Downward{}).Field(p, path); err != nil || got != want {
			t.Errorf("%s: got %q (%v), want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"spec.nodeName", "status.podIP", "metadata.generation", ""} {
		if got, err := (Downward{}).Field(p, path); err == nil || !strings.Contains(err.Error(), "unsupported fieldPath: "+path) {
			t.Errorf("%s: got %q (%v), want an error", path, got, err)
		}
	}
}

func TestDownwardResourcesOfVolumes(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	d := Downward{Allocatable: list("4", "8Gi")}
	p := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{
			{Name: "bound", Resources: v1.ResourceRequirements{Limits: list("1500m", "64Mi"), Requests: list("250m", "32Mi")}},
			{Name: "free"},
		},
		InitContainers: []v1.Container{{Name: "init"}},
		Resources:      &v1.ResourceRequirements{Limits: list("2", "1Gi")},
	}}
	for _, c := range []struct{ container, resource, divisor, want string }{
		{"bound", "limits.cpu", "", "2"},
		{"bound", "limits.cpu", "1m", "1500"},
		{"bound", "limits.memory", "1Mi", "64"},
		{"bound", "requests.cpu", "1m", "250"},
		{"bound", "requests.memory", "", "33554432"},
		{"free", "limits.cpu", "", "4"},
		{"free", "limits.memory", "1Gi", "8"},
		{"free", "requests.cpu", "", "0"},
		{"free", "limits.hugepages-2Mi", "", "0"},
		{"init", "limits.cpu", "", "4"},
	} {
		ref := &v1.ResourceFieldSelector{ContainerName: c.container, Resource: c.resource}
		if c.divisor != "" {
			ref.Divisor = resource.MustParse(c.divisor)
		}
		if got, err := d.Resource(p, ref); err != nil || got != c.want {
			t.Errorf("%s of %s in %q: got %q (%v), want %q", c.resource, c.container, c.divisor, got, err, c.want)
		}
	}
	for _, ref := range []v1.ResourceFieldSelector{{ContainerName: "none", Resource: "limits.cpu"}, {ContainerName: "free", Resource: "limits.pods"}, {ContainerName: "free", Resource: "cpu"}} {
		if got, err := d.Resource(p, &ref); err == nil {
			t.Errorf("%+v: got %q, want an error", ref, got)
		}
	}
}

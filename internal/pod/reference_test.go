package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "B": "$(A)", "EMPTY": ""}
	value := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	for in, want := range map[string]string{
		"plain":         "plain",
		"$(A)":          "1",
		"x$(A)y$(A)":    "x1y1",
		"$(B)":          "$(A)", // a value is not expanded again
		"$(EMPTY)x":     "x",
		"$(NONE)":       "$(NONE)",
		"$$(A)":         "$(A)",
		"$$$(A)":        "$1",
		"$$":            "$",
		"$":             "$",
		"a$":            "a$",
		"$A":            "$A",
		"$(A":           "$(A",
		"$()":           "$()",
		"$$$$(A)$(A)$$": "$$(A)1$",
		"$($(A))":       "$($(A))",
		"${A}":          "${A}",
	} {
		if got := Expand(in, value); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestField(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "web", UID: "u1",
		Labels: map[string]string{"b": `say "x"`, "a/b": "1"}, Annotations: map[string]string{"note": "two\nlines"},
	}}
	p.Spec.NodeName, p.Spec.ServiceAccountName = "node1", "robot"
	for path, want := range map[string]string{
		"metadata.name":                "web",
		"metadata.namespace":           "ns",
		"metadata.uid":                 "u1",
		"metadata.labels":              "a/b=\"1\"\nb=\"say \\\"x\\\"\"",
		"metadata.labels['a/b']":       "1",
		"metadata.labels['none']":      "",
		"metadata.annotations":         `note="two\nlines"`,
		"metadata.annotations['note']": "two\nlines",
		"spec.nodeName":                "node1",
		"spec.serviceAccountName":      "robot",
	} {
		if got, ok := FieldPathValue(p, path); !ok || got != want {
			t.Errorf("%s: got %q (%v), want %q", path, got, ok, want)
		}
	}
	for _, path := range []string{"", "metadata.name['x']", "status.podIP", "spec.priority", "metadata"} {
		if got, ok := FieldPathValue(p, path); ok || got != "" {
			t.Errorf("%q: got %q (%v), want no field", path, got, ok)
		}
	}
}

package cli

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestTheObjectOfAnEventIsNamed(t *testing.T) {
	for want, o := range map[string]v1.ObjectReference{
		"Node/vm":            {Kind: "Node", Name: "vm"},
		"default/web":        {Kind: "Pod", Namespace: "default", Name: "web"},
		"default/web/main":   {Kind: "Pod", Namespace: "default", Name: "web", FieldPath: "spec.containers{main}"},
		"default/data-claim": {Kind: "PersistentVolumeClaim", Namespace: "default", Name: "data-claim"},
	} {
		if got := objectName(&v1.Event{InvolvedObject: o}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

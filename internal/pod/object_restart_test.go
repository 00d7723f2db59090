package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestRestartOnChange(t *testing.T) {
	for value, want := range map[string]struct{ yes, bad bool }{
		"true": {true, false}, "false": {}, "": {}, "True": {false, true}, "1": {false, true},
	} {
		p := &v1.Pod{}
		p.Annotations = map[string]string{AnnotationRestartOnChange: value}
		if got, err := RestartOnChange(p); got != want.yes || (err != nil) != want.bad {
			t.Errorf("%q: got %v, %v", value, got, err)
		}
	}
	if got, err := RestartOnChange(&v1.Pod{}); got || err != nil {
		t.Errorf("not said: got %v, %v", got, err)
	}
}

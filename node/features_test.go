package node

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/features"
)

func TestTheMetricOfFeatureGates(t *testing.T) {
	on, _ := features.New(map[string]bool{"EmptyDirVolumeMode": true})
	reg := prometheus.NewRegistry()
	registerFeatures(reg, on)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != len(features.Had()) {
		t.Fatalf("got %v, %v", families, err)
	}
	for _, m := range families[0].GetMetric() {
		name, value := m.GetLabel()[0].GetValue(), m.GetGauge().GetValue()
		if spec := m.GetLabel()[1].GetValue(); name == "EmptyDirVolumeMode" && (value != 1 || spec != "ALPHA") || name == "H2CContainerProbe" && value != 0 {
			t.Errorf("got %v", m)
		}
	}
}

// TestAPodOfTheClusterIsToldWhichOfItsFieldsAreIgnored: an apiserver may have gates that this
// node has not.
func TestAPodOfTheClusterIsToldWhichOfItsFieldsAreIgnored(t *testing.T) {
	mode := int32(0o750)
	spec := &v1.PodSpec{Containers: []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "v0", BindMountOptions: []string{"noexec"}}}}}}
	for range 10 {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Mode: &mode}}})
	}
	told := ignoredFields(spec, features.Set{})
	if len(told) != 6 || told[5].Message != "and 6 more fields of this pod have no effect on this node" {
		t.Fatalf("got %v", told)
	}
	for i, want := range []string{
		"spec.containers[0].volumeMounts[0].bindMountOptions has no effect on this node: podd does not support options of bind mounts; remove the field",
		"spec.volumes[0].emptyDir.mode has no effect on this node: podd does not support a mode of emptyDir volumes; switch on the feature gate EmptyDirVolumeMode",
	} {
		if told[i].Reason != reasonUnsupported || !strings.HasPrefix(told[i].Message, want) {
			t.Errorf("got %v, want %s", told[i], want)
		}
	}
	on, _ := features.New(map[string]bool{"EmptyDirVolumeMode": true})
	if told := ignoredFields(spec, on); len(told) != 1 {
		t.Errorf("with the gate on: got %v", told)
	}
	if told := ignoredFields(&v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}, features.Set{}); told != nil {
		t.Errorf("a plain pod: got %v", told)
	}
}

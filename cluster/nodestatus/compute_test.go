package nodestatus

import (
	"errors"
	"maps"
	"reflect"
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestTheNodeShowsWhatTheMachineAndTheRuntimeHave(t *testing.T) {
	yes := true
	f := facts()
	f.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1800m"), v1.ResourceMemory: resource.MustParse("3Gi")}
	f.System.KernelVersion, f.Port, f.StrictGroups, f.DeclaredFeatures = "6.1.0", 10250, true, []string{"A", "B"}
	f.RuntimeHandlers = []v1.NodeRuntimeHandler{{Name: "kata", Features: &v1.NodeRuntimeHandlerFeatures{UserNamespaces: &yes}}}
	registeringAs(t, &server{}, f, func(b *bed) {
		images := []v1.ContainerImage{{Names: []string{"web:1"}, SizeBytes: 7}}
		b.set(State{Images: images, VolumesInUse: []v1.UniqueVolumeName{"csi/v1"}})
		b.Wake()
		time.Sleep(time.Second)
		st := b.node().Status
		info := f.System
		info.OperatingSystem, info.Architecture = "linux", runtime.GOARCH
		for what, both := range map[string][2]any{
			"system":   {st.NodeInfo, info},
			"port":     {st.DaemonEndpoints.KubeletEndpoint.Port, int32(10250)},
			"images":   {st.Images, images},
			"volumes":  {st.VolumesInUse, []v1.UniqueVolumeName{"csi/v1"}},
			"handlers": {st.RuntimeHandlers, f.RuntimeHandlers},
			"features": {st.DeclaredFeatures, []string{"A", "B"}},
			"groups":   {st.Features, &v1.NodeFeatures{SupplementalGroupsPolicy: &yes}},
			"cpu":      {[2]string{st.Capacity.Cpu().String(), st.Allocatable.Cpu().String()}, [2]string{"2", "1800m"}},
			"memory":   {[2]string{st.Capacity.Memory().String(), st.Allocatable.Memory().String()}, [2]string{"4Gi", "3Gi"}},
		} {
			if !reflect.DeepEqual(both[0], both[1]) {
				b.t.Errorf("%s: got %+v, want %+v", what, both[0], both[1])
			}
		}
	})
}

func TestTheNodeIsNotReadyForAllReasonsThereAre(t *testing.T) {
	for _, tt := range []struct {
		lacks []v1.ResourceName
		why   error
		want  string
	}{
		{nil, nil, ""},
		{nil, errors.New("no runtime"), "no runtime"},
		{[]v1.ResourceName{v1.ResourcePods}, nil, "missing node capacity for resources: pods"},
		{[]v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU}, nil, "missing node capacity for resources: cpu, memory"},
		{[]v1.ResourceName{v1.ResourceEphemeralStorage}, errors.New("no runtime"), "[no runtime, missing node capacity for resources: ephemeral-storage]"},
	} {
		f := facts()
		for _, name := range tt.lacks {
			delete(f.Capacity, name)
		}
		status, reason, message := v1.ConditionFalse, "KubeletNotReady", tt.want
		if tt.want == "" {
			status, reason, message = v1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"
		}
		registeringAs(t, &server{}, f, func(b *bed) {
			b.set(State{NotReady: tt.why})
			b.Wake()
			time.Sleep(time.Second)
			if c := b.condition(v1.NodeReady); c.Status != status || c.Reason != reason || c.Message != message {
				b.t.Errorf("without %v, %v: got %+v, want %s, %q", tt.lacks, tt.why, c, status, message)
			}
		})
	}
}

// A node agent may set these labels of its Node, and no others, once it exists.
func TestAnExistingNodeGetsTheConfiguredLabelsThatAnAgentOwns(t *testing.T) {
	f := facts()
	f.Labels = map[string]string{
		v1.LabelHostname: "other", v1.LabelTopologyZone: "zone-b", v1.LabelInstanceTypeStable: "large", "disk": "ssd",
	}
	s := &server{node: existing()}
	s.node.Labels = map[string]string{"disk": "hdd", v1.LabelTopologyZone: "zone-a", v1.LabelTopologyRegion: "region-a", labelArchBeta: "vax"}
	registeringAs(t, s, f, func(b *bed) {
		time.Sleep(time.Second)
		want := map[string]string{
			"disk": "hdd", v1.LabelTopologyZone: "zone-b", v1.LabelTopologyRegion: "region-a", v1.LabelInstanceTypeStable: "large",
			v1.LabelHostname: "other", v1.LabelOSStable: "linux", labelOSBeta: "linux", v1.LabelArchStable: runtime.GOARCH, labelArchBeta: runtime.GOARCH,
		}
		if got := b.node().Labels; !maps.Equal(got, want) {
			b.t.Errorf("got the labels %v, want %v", got, want)
		}
		if got := b.node().Annotations[annotationControllerAttach]; got != "true" {
			b.t.Errorf("%s: got %q, want that the controller attaches volumes", annotationControllerAttach, got)
		}
	})
}

package cri

import (
	"reflect"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/internal/pod"
)

// TestAContainerIsWhatTheRuntimeSays, field by field: each has a value of its own.
func TestAContainerIsWhatTheRuntimeSays(t *testing.T) {
	st := &runtimeapi.ContainerStatus{
		Id: "id", Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: 2}, State: runtimeapi.ContainerState_CONTAINER_EXITED,
		CreatedAt: 1e9, StartedAt: 2e9, FinishedAt: 3e9, ExitCode: 4, Reason: "Error", Message: "words",
		Image: &runtimeapi.ImageSpec{Image: "reg.test/app:1"}, ImageRef: "reg.test/app@sha256:aa", ImageId: "sha256:bb", LogPath: "/log",
		User:      &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 5, Gid: 6, SupplementalGroups: []int64{7}}},
		Resources: &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuShares: 8, CpuQuota: 9, CpuPeriod: 10, MemoryLimitInBytes: 11}},
	}
	want := pod.Container{
		ID: "id", Name: "app", SandboxID: "box", State: pod.ContainerExited, RestartCount: 2,
		CreatedAt: time.Unix(1, 0), StartedAt: time.Unix(2, 0), FinishedAt: time.Unix(3, 0), ExitCode: 4, Reason: "Error", Message: "words",
		Image: "reg.test/app:1", ImageID: "reg.test/app@sha256:aa", LogPath: "/log",
		User:      &pod.User{UID: 5, GID: 6, SupplementalGroups: []int64{7}},
		Resources: &pod.ContainerResources{CPUShares: 8, CPUQuota: 9, CPUPeriod: 10, MemoryLimitInBytes: 11},
	}
	got := fromContainerStatus("box", st)
	want.ContentHashes = got.ContentHashes // of the labels, which are none
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	st.Annotations = map[string]string{spec.AnnotationRestartCount: "12"}
	if got := fromContainerStatus("box", st).RestartCount; got != 12 {
		t.Errorf("the restarts that podd has counted: got %d", got)
	}
	st.State, st.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, 2e9
	if got := fromContainerStatus("box", st); got.State != pod.ContainerRunning || !got.FinishedAt.IsZero() || got.ExitCode != 0 || got.Reason != "" || !got.StartedAt.Equal(time.Unix(2, 0)) {
		t.Errorf("running: got %+v", got)
	}
	st.State = runtimeapi.ContainerState_CONTAINER_CREATED
	if got := fromContainerStatus("box", st); got.State != pod.ContainerCreated || !got.StartedAt.IsZero() {
		t.Errorf("created: got %+v", got)
	}
}

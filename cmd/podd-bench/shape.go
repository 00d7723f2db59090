package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/test/e2e/testnode"
)

// shape is what pods of the benchmark are like.
type shape struct {
	// script is what the container of a pod does, by the name of its mark.
	script func(mark string) string
	// volumes are those of the i-th pod besides /out, each the source of one in YAML,
	// mounted at /v/0 and on; nil for none.
	volumes func(i int) []string
}

// plain is the pod that most rows are about.
var plain = shape{script: script}

// script is what a container of the benchmark does: a mark first, then
// nothing until it is told to end.
func script(mark string) string {
	return ": > /out/" + mark + "; trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"
}

// sources are the volumes of the i-th pod.
func (s shape) sources(i int) []string {
	if s.volumes == nil {
		return nil
	}
	return s.volumes(i)
}

func (b *bench) manifest(name string, of shape, i int) string {
	var mounts, volumes strings.Builder
	for n, source := range of.sources(i) {
		fmt.Fprintf(&mounts, ", {name: v%[1]d, mountPath: /v/%[1]d}", n)
		fmt.Fprintf(&volumes, "  - name: v%d\n    %s\n", n, source)
	}
	return strings.NewReplacer("NAME", name, "IMAGE", testnode.ImageBusybox, "SCRIPT", of.script(name), "OUT", b.out,
		"MOUNTS", mounts.String(), "VOLUMES", volumes.String()).Replace(`apiVersion: v1
kind: Pod
metadata:
  name: NAME
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: IMAGE
    command: ["/bin/sh", "-c", "SCRIPT"]
    volumeMounts: [{name: out, mountPath: /out}MOUNTS]
  volumes:
  - name: out
    hostPath: {path: OUT}
VOLUMES`)
}

// floorPod is the same pod as manifest's, for the raw calls. Its volumes are there
// before: what the runtime needs to mount them is the floor.
func (b *bench) floorPod(name string, of shape, i int) *testnode.FloorPod {
	uid := "floor-" + name
	pod := &testnode.FloorPod{
		Name: name, UID: uid, Image: testnode.ImageBusybox, Command: []string{"/bin/sh", "-c", of.script(name)},
		HostDir:      b.out,
		CgroupParent: b.node.CgroupRoot + "/kubepods/besteffort/pod" + uid,
		LogDir:       filepath.Join(b.node.Dir, "floorlogs", name),
	}
	for n, source := range of.sources(i) {
		pod.Mounts = append(pod.Mounts, &runtimeapi.Mount{
			HostPath: filepath.Join(b.floorVolumes(), fmt.Sprint(n)), ContainerPath: fmt.Sprintf("/v/%d", n),
			Readonly: !strings.HasPrefix(source, "emptyDir"),
		})
	}
	return pod
}

// floorVolumes is where the content of the floor's volumes is.
func (b *bench) floorVolumes() string { return filepath.Join(b.node.Dir, "floorvolumes") }

// layFloorVolumes makes them.
func (b *bench) layFloorVolumes() error {
	for n := range volumesOfTen(0) {
		dir := filepath.Join(b.floorVolumes(), fmt.Sprint(n))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a volume of the floor: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, aKey), []byte("value\n"), 0o644); err != nil {
			return fmt.Errorf("make a volume of the floor: %w", err)
		}
	}
	return nil
}

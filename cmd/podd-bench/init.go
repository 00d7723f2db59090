package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"podd/test/e2e/testnode"
)

// initContainers is how many each pod of the row has; all do next to nothing.
const initContainers = 3

// initPod measures a pod whose main container comes after its init containers,
// one after the other: sandbox, then create, start and exit of each.
func (b *bench) initPod(ctx context.Context, column string, _ int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name := b.name("init-" + column)
	var begin time.Time
	var pods []*testnode.FloorPod
	var err error
	if column == colFloor {
		pod := b.floorPod(name, shape{script: func(string) string { return ":" }}, 0)
		pods, begin = append(pods, pod), time.Now()
		err = b.floorInit(ctx, pod, script(name))
	} else {
		begin, err = b.agents[column].apply(map[string]string{name + ".yaml": b.initManifest(name)})
	}
	if err != nil {
		return errors.Join(err, b.stopPods(ctx, column, []string{name}, pods))
	}
	first, err := b.marks.Wait(ctx, name)
	if err != nil {
		return err
	}
	b.add(rowInit, column, first.Sub(begin).Seconds())
	return b.stopPods(ctx, column, []string{name}, pods)
}

// floorInit makes the calls that no agent can do without.
func (b *bench) floorInit(ctx context.Context, pod *testnode.FloorPod, main string) error {
	if err := pod.Run(ctx, b.node.CRI); err != nil {
		return err
	}
	for i := range initContainers {
		if i > 0 {
			if err := pod.StartContainer(ctx, b.node.CRI); err != nil {
				return err
			}
		}
		if err := b.floorExit(ctx, pod); err != nil {
			return err
		}
	}
	pod.Command = []string{"/bin/sh", "-c", main}
	return pod.StartContainer(ctx, b.node.CRI)
}

// initManifest is manifest's pod with init containers before its own.
func (b *bench) initManifest(name string) string {
	var init strings.Builder
	init.WriteString("  initContainers:\n")
	for i := range initContainers {
		fmt.Fprintf(&init, "  - name: init-%d\n    image: %s\n    command: [\"/bin/sh\", \"-c\", \":\"]\n"+
			"    volumeMounts: [{name: out, mountPath: /out}]\n", i, testnode.ImageBusybox)
	}
	return strings.Replace(b.manifest(name, plain, 0), "  containers:\n", init.String()+"  containers:\n", 1)
}

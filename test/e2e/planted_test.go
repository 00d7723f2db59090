package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// planting is a pod that leaves in its emptyDirs what could lead podd astray: links
// to what is not the pod's, devices, names of podd's own, a tree too deep for a path,
// and places for mounts, at which the host's data itself appears.
const planting = `apiVersion: v1
kind: Pod
metadata: {name: planting}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 4321}
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/sh, -c, "cd /v;
      ln -s ${OUTSIDE} absolute; ln -s ../../../../../../../outside relative; ln -s / root; ln -s . loop; ln -s ${OUTSIDE}/canary file;
      ln -s ${OUTSIDE} ..data; mkdir ..2026_01_01_00_00_00.1; mknod device b 7 0; mknod null c 1 3; mkfifo fifo; ln fifo second;
      mkdir .new-v; ln -s ${OUTSIDE} .new-w;
      mkdir -p mnt more/mnt;
      for n in 2 1; do cd /v && mkdir deep$n && cd deep$n; i=0; while [ $i -lt 150 ]; do mkdir ${LONG} && cd ${LONG} || exit 1; i=$((i+1)); done; done;
      mv /v/deep2 . && : > /out/planted; ${REST}"]
    securityContext: {privileged: true}
    volumeMounts:
    - {name: out, mountPath: /out}
    - {name: v, mountPath: /v}
  - name: again
    image: ${IMAGE}
    command: [/bin/sh, -c, "${REST}"]
    volumeMounts: [{name: v, mountPath: /v}]
  volumes:
  - {name: out, hostPath: {path: ${OUT}, type: Directory}}
  - {name: v, emptyDir: {sizeLimit: 100Mi}}
`

// TestWhatAContainerPlantsInItsVolumesLeadsPoddNowhere: podd that restarts, takes the
// pod's measure and removes it neither changes nor deletes anything outside.
func TestWhatAContainerPlantsInItsVolumesLeadsPoddNowhere(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	outside := e.canaries()
	before := treeOf(t, outside)
	e.write("planting.yaml", e.vars("${OUTSIDE}", outside, "${LONG}", "a-name-of-twenty-letters").Replace(e.vars().Replace(planting)))
	e.mark("planted")
	p := e.ready("planting")
	scratch := filepath.Join(e.node.Root(), "pods", string(p.UID), "volumes/kubernetes.io~empty-dir/v")
	for from, to := range map[string]string{outside: "mnt", outside + "/sub": "more/mnt"} {
		if err := unix.Mount(from, filepath.Join(scratch, to), "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	e.kill()
	e.start()
	e.ready("planting")
	e.remove("planting.yaml")
	e.eventually("the pod goes, and all that it had", func(ctx context.Context) error {
		if p, err := e.pod(ctx, "planting"); err == nil {
			return errors.New(describe(p))
		}
		if left, _ := filepath.Glob(filepath.Join(e.node.Root(), "pods", string(p.UID))); len(left) > 0 {
			return fmt.Errorf("%s is there", left)
		}
		return nil
	})
	if after := treeOf(t, outside); after != before {
		t.Errorf("outside of the volume there was\n%s\nand is\n%s", before, after)
	}
}

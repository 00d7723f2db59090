package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// swapping is a pod that attacks its node: one container exchanges a directory of a
// volume for a link that leads out of it, without a pause, while others with a subPath
// there start again and again. Each of them tells what it was given. The kick is an
// object that the pod names: whatever waits is tried again when that changes.
const swapping = `apiVersion: v1
kind: Pod
metadata:
  name: swapping
  annotations: {podd/restart-backoff-success: 100ms}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 4321}
  initContainers:
  - name: prepare
    image: ${IMAGE}
    command: [/bin/sh, -c, "mkdir -p /v/real/sub; echo mine > /v/real/file; echo mine > /v/real/sub/file; ln -s ${LINK} /v/link"]
    volumeMounts: [{name: v, mountPath: /v}]
  containers:
  - name: swapper
    image: ${IMAGE}
    command: [/swapper, /v/real, /v/link]
    volumeMounts: [{name: v, mountPath: /v}, {name: swapper, mountPath: /swapper, readOnly: true}]
${VICTIMS}
  volumes:
  - name: v
    ${VOLUME}
  - name: out
    hostPath: {path: ${OUT}, type: Directory}
  - name: swapper
    hostPath: {path: ${SWAPPER}, type: File}
`

// victim is a container of it: it says when it sees what is outside.
const victim = `  - name: ${NAME}
    image: ${IMAGE}
    command: [/bin/sh, -c, "if [ -e /m/canary ] || grep -q canary /m 2>/dev/null; then ls -la /m >> /out/escaped; fi; echo ${NAME} >> /out/tries"]
    envFrom: [{configMapRef: {name: kick, optional: true}}]
    volumeMounts: [{name: v, mountPath: /m, subPath: "${SUB}"}, {name: out, mountPath: /out}]
`

// inParallel is how many containers have the same subPath. The first start of each is at
// once; of those that start again, podd lets 28, and then seven in ten seconds.
const inParallel = 9

// TestASubPathThatIsSwappedForALinkWhileItsContainerStartsLeadsNowhere
// (CVE-2017-1002101, CVE-2021-25741): what is outside of the volume never appears in
// a container, nothing is made there, and nothing changes its owner.
func TestASubPathThatIsSwappedForALinkWhileItsContainerStartsLeadsNowhere(t *testing.T) {
	for name, how := range map[string]struct {
		volume string
		link   func(outside string) string
	}{
		"in an emptyDir, by an absolute link": {"emptyDir: {}", func(outside string) string { return outside }},
		"in memory, by an absolute link":      {"emptyDir: {medium: Memory}", func(outside string) string { return outside }},
		"in a hostPath, by a relative link":   {"hostPath: {path: ${DIR}/volume, type: DirectoryOrCreate}", func(string) string { return "../outside" }},
		"by a link through /proc":             {"emptyDir: {}", func(outside string) string { return "/proc/1/root" + outside }},
	} {
		t.Run(name, func(t *testing.T) {
			e := begin(t)
			e.worldWritable()
			outside := e.canaries()
			before := treeOf(t, outside)
			subs := []string{"real", "real/sub", "real/file", "real/sub/file", "real/made", "link", "link/sub", "link/made/deep"}
			var victims strings.Builder
			for i := range inParallel * len(subs) {
				victims.WriteString(strings.NewReplacer("${NAME}", fmt.Sprint("v", i), "${SUB}", subs[i%len(subs)]).Replace(victim))
			}
			e.write("swapping.yaml", e.vars("${VICTIMS}", e.vars().Replace(victims.String()), "${VOLUME}", e.vars().Replace(how.volume),
				"${LINK}", how.link(outside), "${SWAPPER}", swapper).Replace(swapping))
			const tries = 100
			kicks, kicked := 0, time.Time{}
			// What is waited for at a time is little: a slow machine takes long for all of them.
			for enough := tries / 10; enough <= tries; enough += tries / 10 {
				e.eventually("enough containers have started", func(context.Context) error {
					if time.Since(kicked) > 100*time.Millisecond {
						kicks, kicked = kicks+1, time.Now()
						e.write("kick.yaml", fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kick}\ndata: {kick: '%d'}\n", kicks))
					}
					text, _ := os.ReadFile(filepath.Join(e.out, "tries")) // perhaps none got there yet
					all := strings.Count(string(text), "\n")
					if all < enough {
						return fmt.Errorf("%d of %d", all, tries)
					}
					return nil
				})
			}
			if e.marked("escaped") {
				t.Errorf("a container saw what is outside of its volume:\n%s", e.contents("escaped"))
			}
			if after := treeOf(t, outside); after != before {
				t.Errorf("outside of the volume there was\n%s\nand is\n%s", before, after)
			}
			e.event("swapping", "Failed", "points outside the volume")
		})
	}
}

// canaries is a directory of the host beside everything that pods have, with files
// that none of them may see.
func (e *env) canaries() string {
	e.Helper()
	dir := filepath.Join(e.podd.Dir, "outside")
	err := os.MkdirAll(dir+"/sub", 0o700)
	for _, name := range []string{"canary", "file", "sub/canary", "sub/file"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte("canary"), 0o600))
	}
	if err != nil {
		e.Fatal(err)
	}
	return dir
}

// treeOf lists a directory and all below it with owners, modes and times of change.
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var list strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		fmt.Fprintln(&list, path, st.Uid, st.Gid, fmt.Sprintf("%o", st.Mode), st.Ctim)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}

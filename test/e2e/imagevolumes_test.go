package e2e

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
)

// mounting is the manifest of a pod whose containers a and b mount the image
// volume files: all of it, and, in a, one directory.
func (e *env) mounting(name, script, image, subPath string) string {
	return e.vars("${NAME}", name, "${SCRIPT}", script, "${FILES}", image, "${SUB}", subPath).Replace(`apiVersion: v1
kind: Pod
metadata:
  name: ${NAME}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: a
    image: ${IMAGE}
    command:
    - /bin/sh
    - -c
    - |-
      ${SCRIPT}; ${REST}
    volumeMounts:
    - {name: out, mountPath: /out}
    - {name: files, mountPath: /all}
    - {name: files, mountPath: /part, subPath: ${SUB}}
  - name: b
    image: ${IMAGE}
    command:
    - /bin/sh
    - -c
    - |-
      : > /out/${NAME}-b; ${REST}
    volumeMounts: [{name: out, mountPath: /out}, {name: files, mountPath: /all}]
  - name: c
    image: ${IMAGE}
    command:
    - /bin/sh
    - -c
    - |-
      : > /out/${NAME}-c; ${REST}
    volumeMounts: [{name: out, mountPath: /out}]
  volumes:
  - name: out
    hostPath: {path: ${OUT}, type: Directory}
  - name: files
    image: {reference: ${FILES}}
`)
}

// TestAnImageVolumeHasTheFilesOfItsImage and nobody writes to it; it is pulled once
// for two containers, and not again for the one that restarts.
func TestAnImageVolumeHasTheFilesOfItsImage(t *testing.T) {
	e := begin(t)
	var pulls atomic.Int32
	host := e.registryOf(map[string]v1.Image{"shop/files:1": busybox(t, "files")}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/manifests/1") {
				pulls.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	})
	image := host + "/shop/files:1"
	e.forget(image)
	e.write("files.yaml", e.mounting("files",
		`echo x >> /out/files.starts; ls /all > /out/all; ls /part/busybox > /out/part; touch /all/x 2> /out/refused || :; touch /part/x && : > /out/written; [ $(wc -l < /out/files.starts) -gt 1 ] || exit 1; : > /out/second`,
		image, "bin"))
	e.waitPod("files", "restarted", func(p *corev1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			if !c.Ready || c.Name == "a" && c.RestartCount != 1 {
				return errors.New(describe(p))
			}
		}
		return nil
	})
	e.mark("second") // it writes the files anew after its restart was seen
	if got := e.contents("all"); !strings.Contains(got, "bin\n") {
		t.Errorf("the volume has %q, want the image's directories", got)
	}
	if got := e.contents("part"); got != "/part/busybox\n" {
		t.Errorf("the subPath shows %q, want the files of bin", got)
	}
	if got := e.contents("refused"); !strings.Contains(got, "Read-only file system") || e.marked("written") {
		t.Errorf("a write to the volume: got %q", got)
	}
	if got := pulls.Load(); got != 1 {
		t.Errorf("pulled %d times, want once", got)
	}
	e.event("files", "Pulled", "successfully pulled", image)
}

// TestWhatAnImageVolumeLacksIsSaidOfTheContainersThatMountIt, and the others run.
func TestWhatAnImageVolumeLacksIsSaidOfTheContainersThatMountIt(t *testing.T) {
	e := begin(t)
	waits := func(name, reason, words string) {
		t.Helper()
		e.mark(name + "-c")
		p := e.waiting(name, reason)
		for _, c := range p.Status.ContainerStatuses {
			switch w := c.State.Waiting; {
			case c.Name == "c" && c.State.Running == nil, c.Name == "a" && (w == nil || w.Reason != reason || !strings.Contains(w.Message, words)):
				t.Errorf("%s: got %s, want %s with %q", name, describe(p), reason, words)
			}
		}
	}
	text := e.mounting("never", ":", "localhost/nowhere/files:1", "bin")
	e.write("never.yaml", replaced(e, text, "files:1}", "files:1, pullPolicy: Never}"))
	waits("never", "ErrImageNeverPull", `Container image "localhost/nowhere/files:1" is not present with pull policy of Never`)
	e.event("never", "Failed", "Error: ErrImageNeverPull")

	e.write("part.yaml", e.mounting("part", ":", e.vars().Replace("${IMAGE}"), "no/such/directory"))
	waits("part", "CreateContainerError", "no/such/directory")
	e.mark("part-b") // which mounts all of it
}

package e2e

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// starting is a pod that adds what it was given to OUT/NAME.starts at each start, and rests.
const starting = `apiVersion: v1
kind: Pod
metadata:
  name: ${NAME}
  annotations: {podd/restart-backoff-success: 100ms}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/sh, -c, "(${SHOW}) >> /out/${NAME}.starts; ${REST}"]
    volumeMounts: [{name: out, mountPath: /out}, {name: v, mountPath: /v${MOUNT}}]
  volumes:
  - name: out
    hostPath: {path: ${OUT}, type: Directory}
  - name: v
    ${VOLUME}
`

func (e *env) starting(name, show, mount, volume string) {
	e.Helper()
	e.write(name+".yaml", e.vars("${NAME}", name, "${SHOW}", show, "${MOUNT}", mount, "${VOLUME}", volume).Replace(starting))
}

// saw waits until a pod has told what it was given at all of its starts.
func (e *env) saw(name, want string) {
	e.Helper()
	e.waitPod(name, "started with "+want, func(p *v1.Pod) error {
		text, _ := os.ReadFile(filepath.Join(e.out, name+".starts"))
		if string(text) == want {
			return nil
		}
		return errors.New(string(text) + ": " + describe(p))
	})
}

// TestAContainerWaitsForTheSocketOfItsHostPath (kubernetes/kubernetes#128814): the socket goes, the
// container ends, and nothing is made on the host in the socket's place.
func TestAContainerWaitsForTheSocketOfItsHostPath(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	path := filepath.Join(e.podd.Dir, "x.sock")
	listen := func() net.Listener {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := listen()
	e.starting("socket", "[ -S /v ] && echo socket", "", "hostPath: {path: "+path+", type: Socket}")
	e.saw("socket", "socket\n")
	p := e.ready("socket")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	e.terminate(p, "main")
	e.waiting("socket", "CreateContainerConfigError")
	e.event("socket", "Failed", path+" is not a socket file, unable to determine its type: path \""+path+"\" does not exist")
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("something was made in place of the socket (%v)", err)
	}
	l = listen()
	defer func() { _ = l.Close() }()
	e.saw("socket", "socket\nsocket\n")
}

// TestAKeyThatComesLateIsMountedAtTheNextStart (kubernetes/kubernetes#62156): the directory that
// was made for the missing key does not hide it for good.
func TestAKeyThatComesLateIsMountedAtTheNextStart(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata:\n  early: one\n"
	e.write("settings.yaml", settings)
	e.starting("late", "cat /v || echo directory", ", subPath: late", "configMap: {name: settings}")
	e.saw("late", "directory\n")
	e.event("late", "SubPathNotFound", `subPath "late" of volume "v"`)
	p := e.ready("late")
	e.write("settings.yaml", settings+"  late: \"two\\n\"\n")
	key := filepath.Join(e.node.Root(), "pods", string(p.UID), "volumes/kubernetes.io~configmap/v/late")
	e.waitPod("late", "to have the key in its volume", func(*v1.Pod) error {
		_, err := os.ReadFile(key)
		return err
	})
	e.terminate(p, "main")
	e.saw("late", "directory\ntwo\n")
}

// TestASubPathOnADeadMountIsBoundAnew (kubernetes/kubernetes#138856): the server of a volume ends,
// the container too, and waits until the volume is mounted anew.
func TestASubPathOnADeadMountIsBoundAnew(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	path := filepath.Join(e.podd.Dir, "served")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	server := e.serve(path)
	e.starting("sub", "[ -d /v ] && echo served", ", subPath: sub", "hostPath: {path: "+path+"}")
	e.saw("sub", "served\n")
	p := e.ready("sub")
	if err := server.server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.server.Wait() // it was killed
	e.terminate(p, "main")
	e.waiting("sub", "CreateContainerConfigError")
	e.event("sub", "Failed", "once the volume is mounted anew, the container starts")
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	second := e.serve(path)
	e.saw("sub", "served\nserved\n")
	e.remove("sub.yaml")
	e.ended("sub")
	second.gone()
}

package volumes

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// kubernetes/kubernetes#128814: the runtime would make a directory of the host in place
// of what is gone.
func TestTheTypeOfAHostPathHoldsAtEachStartOfAContainer(t *testing.T) {
	m := newMounter(t)
	dir := tempDir(t)
	socket, file := filepath.Join(dir, "x.sock"), filepath.Join(dir, "made/file")
	listen := func() net.Listener {
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := listen()
	p := withMounts(aPod("u1", host("d", filepath.Dir(file), v1.HostPathDirectoryOrCreate), host("f", file, v1.HostPathFileOrCreate),
		host("s", socket, v1.HostPathSocket), host("other", dir, v1.HostPathDirectory)),
		v1.VolumeMount{Name: "f", MountPath: "/f"}, v1.VolumeMount{Name: "s", MountPath: "/s"})
	mustSetUp(t, m, p)
	mustMounts(t, m, p)

	if err := l.Close(); err != nil { // removes the socket
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	mustSetUp(t, m, p) // containers that run are left alone
	for range 2 {
		_, err := mountsOf(m, p)
		mustSay(t, err, `MountVolume.SetUp failed for volume "s" : hostPath type check failed, `+socket+" is not a socket file, unable to determine its type: path "+fmt.Sprintf("%q", socket)+" does not exist", "once that has been put right")
		if pod.ReasonOf(err, "") != pod.ReasonCreateContainerConfigError {
			t.Errorf("got reason %q", pod.ReasonOf(err, ""))
		}
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("something was made in place of the socket (%v)", err)
	}
	mustBe(t, file, "") // made again, below a directory that only another container mounts
	write(t, socket, "a file")
	_, err := mountsOf(m, p)
	mustSay(t, err, "is not a socket file, it's a File")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	defer listen().Close()
	mustMounts(t, m, p)
}

// A container that mounts none of what is gone starts.
func TestTheTypeOfAHostPathHoldsForItsOwnContainersAlone(t *testing.T) {
	m := newMounter(t)
	path := mkdir(t, filepath.Join(tempDir(t), "d"))
	p := withMounts(aPod("u1", host("v", path, v1.HostPathDirectory), empty("e")), v1.VolumeMount{Name: "e", MountPath: "/e"})
	mustSetUp(t, m, p)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	mustMounts(t, m, p)
}

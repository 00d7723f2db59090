package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// kubernetes/kubernetes#138856: the server of a hostPath ends, somebody mounts it anew,
// and the container restarts.
func TestASubPathOnADeadMountIsBoundAnewOnceItsVolumeLives(t *testing.T) {
	for name, change := range map[string]func(m *Mounter, point string, abort func()) error{
		"the server has ended": func(_ *Mounter, _ string, abort func()) error { abort(); return nil },
		"the server hangs":     func(*Mounter, string, func()) error { return nil },
		"the mount is busy": func(_ *Mounter, point string, abort func()) error {
			abort()
			return unix.Mount("tmpfs", point, "tmpfs", 0, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dead, abort := deadMount(t)
			m := newMounter(t)
			volume := tempDir(t)
			p := subPathPod("u1", "sub", host("h", volume, v1.HostPathDirectory))
			mkdir(t, volume+"/sub")
			mustSetUp(t, m, p)
			point := mustMounts(t, m, p)[0].HostPath
			if err := unix.Unmount(point, 0); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount(dead, point, "", unix.MS_BIND, ""); err != nil { // as when the volume was dead's
				t.Fatal(err)
			}
			if err := change(m, point, abort); err != nil {
				t.Fatal(err)
			}
			busy, err := unix.Open(point, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err == nil {
				defer unix.Close(busy)
			}
			write(t, volume+"/sub/file", "lives")
			mustBe(t, mustMounts(t, m, p)[0].HostPath+"/file", "lives")
			if points, _ := mountsBelow(m.PodDir("u1")); len(points) != 1 {
				t.Errorf("got mounts %v, want one", points)
			}
			mustTearDown(t, m, "u1")
			mustBeGone(t, m, "u1")
		})
	}
}

// While the volume itself is dead, the container waits and is told why; what is mounted
// is removed with the pod.
func TestASubPathOfADeadVolumeSaysSo(t *testing.T) {
	dead, abort := deadMount(t)
	m := newMounter(t)
	p := subPathPod("u1", "sub", host("h", dead, ""))
	mustSetUp(t, m, p)
	abort()
	_, err := mountsOf(m, p)
	mustSay(t, err, `subPath "sub" of volume "h" for container "c"`, "once the volume is mounted anew, the container starts")
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

// kubernetes/kubernetes#139275: pods that share a volume make its subPaths at once.
func TestASubPathThatOthersMakeAtTheSameTimeIsTheirs(t *testing.T) {
	volume := tempDir(t)
	root, err := unix.Open(volume, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	for round := range 500 {
		var all sync.WaitGroup
		var begin = make(chan struct{})
		inodes := make([]uint64, 4)
		for i := range inodes {
			all.Go(func() {
				<-begin
				fd, err := makeBeneath(root, fmt.Sprintf("%d/a/b", round))
				if err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
				defer unix.Close(fd)
				var st unix.Stat_t
				if err := unix.Fstat(fd, &st); err != nil {
					t.Error(err)
				}
				inodes[i] = st.Ino
			})
		}
		close(begin)
		all.Wait()
		for _, ino := range inodes {
			if ino != inodes[0] {
				t.Fatalf("round %d: got inodes %v, want one", round, inodes)
			}
		}
	}
}

// kubernetes/kubernetes#62156: the key of a subPath is added after the container's first
// start. The empty directory, which upstream makes, gives way to it.
func TestTheDirectoryOfAMissingKeyGivesWayToTheKey(t *testing.T) {
	for name, v := range map[string]v1.Volume{
		"configMap": fromConfigMap("v", "app"), "secret": fromSecret("v", "app"), "projected": projected("v", partConfigMap("app")),
	} {
		t.Run(name, func(t *testing.T) {
			told := &store{}
			s := newStore(aConfigMap("app", "key", "1"), aSecret("app", "key", "1"))
			m := newMounter(t, s.into, func(o *Options) { o.Events = told })
			p := withMounts(aPod("u1", v), v1.VolumeMount{Name: "v", MountPath: "/etc/late", SubPath: "late"}, v1.VolumeMount{Name: "v", MountPath: "/all"},
				v1.VolumeMount{Name: "v", MountPath: "/all/nested"})
			mustSetUp(t, m, p)
			late := mustMounts(t, m, p)[0].HostPath
			if info, err := os.Stat(late); err != nil || !info.IsDir() {
				t.Fatalf("got %v (%v), want a directory", info, err)
			}
			if got := told.told(); len(got) != 1 || !strings.Contains(got[0], `Warning SubPathNotFound: subPath "late" of volume "v" for container "c" does not exist yet`) {
				t.Fatalf("got events %q, want one that tells of the missing key", got)
			}
			for _, text := range []string{"2", "3"} {
				s.put(aConfigMap("app", "key", "1", "late", text, "nested", "x"))
				s.put(aSecret("app", "key", "1", "late", text, "nested", "x"))
				mustFollow(t, m, "u1")
				mounts := mustMounts(t, m, p) // the container starts again
				mustBe(t, mounts[0].HostPath, text)
				mustBe(t, mounts[1].HostPath+"/late", text)
				if info, err := os.Lstat(filepath.Join(mounts[1].HostPath, "nested")); err != nil || !info.IsDir() {
					t.Errorf("the mount point of another volume: got %v (%v), want a directory", info, err)
				}
			}
			if got := told.told(); len(got) != 1 {
				t.Errorf("got events %q, want no other", got)
			}
			mustTearDown(t, m, "u1")
			mustBeGone(t, m, "u1")
		})
	}
}

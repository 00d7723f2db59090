package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func nfsShare(server, path string, readOnly bool) v1.Volume {
	return v1.Volume{Name: "share", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: server, Path: path, ReadOnly: readOnly}}}
}

func shareVolume(options ...string) *v1.PersistentVolume {
	v := &v1.PersistentVolume{}
	v.Name, v.Spec.NFS, v.Spec.MountOptions = "share", &v1.NFSVolumeSource{Server: "filer", Path: "/export", ReadOnly: true}, options
	return v
}

// With upstream's arguments, by a fake mount(8).
func TestNFSIsMountedWithUpstreamsArguments(t *testing.T) {
	claim := claims("share")
	for name, tc := range map[string]struct {
		volume v1.Volume
		claims claimed
		want   string
	}{
		"in a pod":              {nfsShare("filer", "/export", false), nil, "-t nfs -- filer:/export "},
		"read-only":             {nfsShare("filer", "/export", true), nil, "-t nfs -o ro -- filer:/export "},
		"an IPv6 address":       {nfsShare("fd00::1", "/export", false), nil, "-t nfs -- [fd00::1]:/export "},
		"of a claim":            {claim, claimed{"share": shareVolume("nfsvers=4.1", "hard")}, "-t nfs -o nfsvers=4.1,hard -- filer:/export "},
		"a read-only claim":     {readOnly(claims("share")), claimed{"share": shareVolume("soft")}, "-t nfs -o soft,ro -- filer:/export "},
		"a path with a dash":    {nfsShare("-o", "/x", false), nil, "-t nfs -- -o:/x "},
		"nothing of the volume": {claim, claimed{"share": shareVolume()}, "-t nfs -- filer:/export "},
	} {
		t.Run(name, func(t *testing.T) {
			said := fakePrograms(t, map[string]string{"mount.nfs": "exit 1", "mount": `echo "$@" >> $DIR/said`})
			m := newMounter(t, withClaims(tc.claims))
			p := withMounts(aPod("1", tc.volume), v1.VolumeMount{Name: "share", MountPath: "/share"})
			mustSetUp(t, m, p)
			dir := m.dirs.Volume("1", "kubernetes.io/nfs", "share")
			mustBe(t, filepath.Join(said, "said"), tc.want+dir+"\n")
			if mounts := mustMounts(t, m, p); mounts[0].HostPath != dir || mounts[0].SELinuxRelabel {
				t.Errorf("got %+v", mounts)
			}
		})
	}
}

// Also after a restart of podd; it is unmounted before anything is deleted.
func TestNFSIsMountedOnce(t *testing.T) {
	export := mkdir(t, filepath.Join(tempDir(t), "export"))
	write(t, filepath.Join(export, "canary"), "alive")
	real := "/bin/mount"
	said := fakePrograms(t, map[string]string{"mount.nfs": "exit 1", "mount": `echo mounted >> $DIR/said; for dir; do :; done; exec ` + real + ` --bind ` + export + ` "$dir"`})
	m := newMounter(t)
	p := aPod("1", nfsShare("filer", "/export", false))
	mustSetUp(t, m, p)
	mustSetUp(t, m, p)
	again := newMounter(t, func(o *Options) { o.RootDir = m.dirs.Root })
	mustSetUp(t, again, p)
	mustBe(t, filepath.Join(said, "said"), "mounted\n")
	mustBe(t, filepath.Join(m.dirs.Volume("1", "kubernetes.io/nfs", "share"), "canary"), "alive")
	mustTearDown(t, again, "1")
	mustBeGone(t, again, "1")
	mustBe(t, filepath.Join(export, "canary"), "alive")
}

func TestErrorsOfMountingNFS(t *testing.T) {
	for name, tc := range map[string]struct {
		programs map[string]string
		want     []string
	}{
		"refused": {map[string]string{"mount.nfs": "", "mount": "echo 'mount.nfs: access denied by server while mounting filer:/export' >&2; exit 32"},
			[]string{"mount filer:/export: exit status 32: mount.nfs: access denied by server"}},
		"no helper": {nil, []string{"the program mount.nfs is missing; install the package nfs-common"}},
	} {
		t.Run(name, func(t *testing.T) {
			fakePrograms(t, tc.programs)
			if tc.programs == nil && hasMountHelper("mount.nfs") {
				t.Skip("mount.nfs is installed here")
			}
			m := newMounter(t)
			mustSay(t, ensure(t, m, aPod("1", nfsShare("filer", "/export", false))), append(tc.want, `volume "share"`)...)
			mustTearDown(t, m, "1")
			mustBeGone(t, m, "1")
		})
	}
}

// Other pods are set up meanwhile, the state says what it waits for, and the pod's
// teardown ends the programs.
func TestAnNFSServerThatHangsBlocksOnlyItsOwnPod(t *testing.T) {
	said := fakePrograms(t, map[string]string{"mount.nfs": "", "mount": `sleep 1000 & echo $! > $DIR/child; echo $$ > $DIR/new; mv $DIR/new $DIR/pid; wait`})
	m := newMounter(t)
	state, err := m.Ensure(t.Context(), aPod("1", nfsShare("filer", "/export", false)))
	if err != nil || state.Ready || !strings.HasPrefix(state.Message, `volumes are being set up: [share], waiting for volume "share" since `) {
		t.Fatalf("got %+v, %v", state, err)
	}
	mustSetUp(t, m, aPod("2", empty("e")))
	waitFor(t, "the program", func() bool { return exists(filepath.Join(said, "pid")) })
	mustTearDown(t, m, "1")
	mustBeGone(t, m, "1")
	waitFor(t, "its end", func() bool { return !alive(t, filepath.Join(said, "pid")) && !alive(t, filepath.Join(said, "child")) })
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// hangingUnmounts replaces unmount(2) with a call that does not return, unless it is
// forced and heeds that.
func hangingUnmounts(m *Mounter, heeds bool) (calls chan int, release func()) {
	calls, over := make(chan int, 100), make(chan struct{})
	m.unmounter.timeout = 20 * time.Millisecond
	m.unmounter.call = func(point string, flags int) error {
		calls <- flags
		if heeds && flags&unix.MNT_FORCE != 0 {
			return unix.Unmount(point, flags)
		}
		<-over
		return unix.Unmount(point, flags)
	}
	return calls, func() { close(over) }
}

// Nothing is deleted below the mount, the pending unmount is listed, and it is retried
// without a second call that hangs.
func TestAnUnmountThatHangsDoesNotBlockTheTeardown(t *testing.T) {
	disk := mkdir(t, filepath.Join(tempDir(t), "disk"))
	write(t, filepath.Join(disk, "canary"), "alive")
	m := newMounter(t, withClaims(claimed{"data": localDisk("disk", disk)}))
	mustSetUp(t, m, aPod("1", claims("data")))
	calls, release := hangingUnmounts(m, false)
	mustTearDown(t, m, "1")
	pending := m.PendingUnmounts()
	if len(pending) != 1 || !strings.Contains(pending[0].Message, "does not respond") {
		t.Fatalf("got %+v", pending)
	}
	made := len(calls)
	mustTearDown(t, m, "1")
	if len(calls) != made || made != 1 {
		t.Errorf("%d calls hang, and then %d: want one, not forced, as podd has not mounted the disk", made, len(calls))
	}
	mustBe(t, filepath.Join(disk, "canary"), "alive")
	release()
	waitFor(t, "the unmount", func() bool { return mountOf(t, m.dirs.Volume("1", localPlugin, "data")) == nil })
	mustTearDown(t, m, "1")
	mustBeGone(t, m, "1")
	mustBe(t, filepath.Join(disk, "canary"), "alive")
}

func TestUnmountOfADeadServerIsForced(t *testing.T) {
	disk := mkdir(t, filepath.Join(tempDir(t), "disk"))
	m := newMounter(t)
	mustSetUp(t, m, aPod("1", empty("e")))
	share := mkdir(t, m.dirs.Volume("1", nfsPlugin, "share"))
	if err := unix.Mount(disk, share, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	_, release := hangingUnmounts(m, true)
	defer release()
	mustTearDown(t, m, "1")
	mustBeGone(t, m, "1")
}

func TestAnUnmountEndsWithItsContext(t *testing.T) {
	m := newMounter(t)
	_, release := hangingUnmounts(m, false)
	defer release()
	m.unmounter.timeout = time.Hour
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no longer")
	cancel(why)
	if err := m.unmounter.unmount(ctx, "/none", true); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

// It no longer holds a ReadWriteOncePod volume.
func TestACompletedPodHasLeft(t *testing.T) {
	m := newMounter(t)
	p := aPod("1", empty("e"))
	if !m.isGone("1") || !m.isGone("../x") {
		t.Error("a pod that never existed has not left")
	}
	mustSetUp(t, m, p)
	if m.isGone("1") {
		t.Error("a pod that is set up has left")
	}
	if err := m.Release(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if !m.isGone("1") {
		t.Error("a completed pod has not left")
	}
	mustSetUp(t, m, p)
	if m.isGone("1") {
		t.Error("a pod that runs again has left")
	}
	mustTearDown(t, m, "1")
	if !m.isGone("1") {
		t.Error("a removed pod has not left")
	}
	if _, err := os.Lstat(m.PodDir(pod.UID("1"))); err == nil {
		t.Error("its directory exists")
	}
}

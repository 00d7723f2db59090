package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// deadMount returns a mount whose server does not answer; abort ends the server, after
// which all pending requests fail.
func deadMount(t *testing.T) (path string, abort func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	path = t.TempDir()
	if err := unix.Mount("nobody", path, "fuse.dead", 0, fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0", server)); err != nil {
		t.Fatal(err)
	}
	abort = func() {
		if server >= 0 {
			_ = unix.Close(server)
			server = -1
		}
	}
	t.Cleanup(func() {
		abort()
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return path, abort
}

// One pod's setup stats the mount, the other's subPath is opened below it. Neither the
// syncs nor the teardown of the pods block, the messages name the mount, and when the
// server has ended nothing is left.
func TestADeadMountBlocksOnlyItsOwnPod(t *testing.T) {
	path, abort := deadMount(t)
	m := newMounter(t)
	typed, sub := aPod("u1", host("h", path, v1.HostPathDirectory), empty("e")), aPod("u2", host("h", path, ""), empty("e"))
	mustSay(t, errors.New(mustWait(t, m, typed).Message), `waiting for volume "h" since `, "("+path+", on fuse.dead from nobody mounted at "+path+")")

	mustBeReady(t, m, sub) // a hostPath without a type is not checked
	c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "h", MountPath: "/h", SubPath: "sub"}}}
	for range 2 {
		began := time.Now()
		_, err := m.Mounts(sub, c, []string{"sub"})
		mustSay(t, err, `the setup of volume "h"`, "hangs (", path, fmt.Sprintf("process %d (podd) holds it", os.Getpid()))
		if took := time.Since(began); took > 5*hangTimeout || pod.ReasonOf(err, "") != pod.ReasonCreateContainerConfigError {
			t.Errorf("got %v after %v", err, took)
		}
	}
	fine := aPod("u3", empty("e"))
	mustBeReady(t, m, fine)
	mustTearDown(t, m, "u3")
	mustBeGone(t, m, "u3")

	for _, uid := range []pod.UID{"u1", "u2"} {
		if err := m.TearDown(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
	}
	pending := m.PendingUnmounts()
	if len(pending) != 2 {
		t.Fatalf("got pending unmounts %+v, want both pods'", pending)
	}
	for _, d := range pending {
		mustSay(t, errors.New(d.Message), `the setup of volume "h"`, path, "deletes nothing until then")
	}
	abort()
	runUntil(t, m, func() bool { return len(m.PendingUnmounts()) == 0 })
	mustBeGone(t, m, "u1")
	mustBeGone(t, m, "u2")
}

// However often it is retried, and also for a pod that is no longer known.
func TestAPendingUnmountIsOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &store{}
		m := newMounter(t, func(o *Options) { o.Events = told })
		m.kinds = append(m.kinds, kind{plugin: "test/kept", driver: failingTearDown{}, handles: func(*v1.VolumeSource) bool { return false }})
		mustBeReady(t, m, aPod("known"))
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- m.Run(ctx) }()
		for _, uid := range []pod.UID{"known", "unknown"} {
			mkdir(t, m.PodDir(uid)+"/volumes/test~kept/v")
			mustTearDown(t, m, uid)
		}
		time.Sleep(time.Hour)
		for _, d := range m.PendingUnmounts() {
			if d.Tries < 20 {
				t.Errorf("%s: %d attempts in an hour", d.UID, d.Tries)
			}
		}
		got := told.told()
		if len(got) != 2 {
			t.Fatalf("got %d events, want one for each, as %q", len(got), got[:min(1, len(got))])
		}
		for i := range got {
			mustSay(t, errors.New(got[i]), "Warning FailedUnMount: ", `tear down volume "v": it is kept`)
		}
		stop()
		<-ran
	})
}

// failingTearDown is a driver whose teardown always fails.
type failingTearDown struct{ imageVolume }

func (failingTearDown) tearDown(context.Context, string) error { return errors.New("it is kept") }

func TestASearchForAHolderReportsItsTimeout(t *testing.T) {
	for limit, complete := range map[time.Duration]bool{-time.Second: false, time.Minute: true} {
		if holder, inTime := findHolder("/no/such/mount", limit); holder != "" || inTime != complete {
			t.Errorf("in %v: got %q, in time %v, want %v", limit, holder, inTime, complete)
		}
	}
}

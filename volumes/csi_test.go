package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// fakeCSI is a driver that mounts a tmpfs.
type fakeCSI struct {
	podOwns bool
	// labelled is the volume that it has mounted with the pod's label.
	labelled string

	mu       sync.Mutex
	away     bool
	calls    []string
	followed []string
}

func (f *fakeCSI) call(text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, text)
	if f.away {
		return errors.New("driver name x not found in the list of registered CSI drivers")
	}
	return nil
}

func (f *fakeCSI) setAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

func (f *fakeCSI) SetUp(_ context.Context, v pod.CSIVolume) (bool, error) {
	if err := f.call("set up " + v.Name + " of " + v.Driver()); err != nil {
		return false, err
	}
	if err := os.MkdirAll(f.Path(v), 0o755); err != nil {
		return false, err
	}
	if err := os.WriteFile(filepath.Join(v.Dir, "vol_data.json"), nil, 0o600); err != nil {
		return false, err
	}
	return f.podOwns, unix.Mount("tmpfs", f.Path(v), "tmpfs", 0, "")
}

func (*fakeCSI) Path(v pod.CSIVolume) string { return filepath.Join(v.Dir, "mount") }

func (f *fakeCSI) Labelled(v pod.CSIVolume) bool { return f.labelled == v.PodVolume }

func (f *fakeCSI) Adopt(v pod.CSIVolume) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followed = append(f.followed, v.Name)
}

func (f *fakeCSI) TearDown(_ context.Context, dir string) error {
	if err := f.call("tear down " + filepath.Base(dir)); err != nil {
		return err
	}
	if err := unix.Unmount(filepath.Join(dir, "mount"), 0); err != nil {
		return err
	}
	return errors.Join(os.Remove(filepath.Join(dir, "mount")), os.Remove(filepath.Join(dir, "vol_data.json")))
}

func (f *fakeCSI) Stats(_ context.Context, dir string) (pod.VolumeStats, error) {
	return pod.VolumeStats{UsedBytes: 7}, f.call("measure " + filepath.Base(dir))
}

func ofCSI(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "x"}}}
}

func TestACSIVolumeIsMountedAndUnmountedByItsDriver(t *testing.T) {
	f := &fakeCSI{}
	m := newMounter(t, func(o *Options) { o.CSI = f })
	yes := true
	p := withMounts(aPod("a", ofCSI("data"), empty("scratch", memory)),
		v1.VolumeMount{Name: "data", MountPath: "/data"}, v1.VolumeMount{Name: "data", MountPath: "/part", SubPath: "part"})
	mustSetUp(t, m, p)
	mounts := mustMounts(t, m, p)
	if want := filepath.Join(m.PodDir("a"), "volumes/kubernetes.io~csi/data/mount"); mounts[0].HostPath != want || mounts[0].ReadOnly {
		t.Errorf("got %+v, want %s", mounts[0], want)
	}
	p.Spec.Volumes[0].CSI.ReadOnly = &yes
	if !mustMounts(t, m, p)[0].ReadOnly {
		t.Error("a read-only volume is mounted writable")
	}
	m.Follow(p)
	mustTearDown(t, m, "a")
	mustBeGone(t, m, "a")
	if want := []string{"set up data of x", "tear down data"}; !slices.Equal(f.calls, want) {
		t.Errorf("got %q, want %q", f.calls, want)
	}
	if !slices.Equal(f.followed, []string{"data"}) {
		t.Errorf("followed: %q", f.followed)
	}
}

func TestAPersistentVolumeOfADriverIsFoundByItsClaim(t *testing.T) {
	f := &fakeCSI{}
	volume := &v1.PersistentVolume{}
	volume.Name, volume.Spec.CSI = "disk", &v1.CSIPersistentVolumeSource{Driver: "x", VolumeHandle: "h"}
	m := newMounter(t, func(o *Options) { o.CSI = f }, withClaims(claimed{"data": volume}))
	p := withMounts(aPod("a", readOnly(claims("data"))), v1.VolumeMount{Name: "data", MountPath: "/data"})
	mustSetUp(t, m, p)
	if mount := mustMounts(t, m, p)[0]; mount.HostPath != filepath.Join(m.PodDir("a"), "volumes/kubernetes.io~csi/data/mount") || !mount.ReadOnly {
		t.Errorf("got %+v", mount)
	}
	m.Follow(p)
	mustTearDown(t, m, "a")
	mustBeGone(t, m, "a")
	if want := []string{"set up disk of x", "tear down data"}; !slices.Equal(f.calls, want) || !slices.Equal(f.followed, []string{"disk"}) {
		t.Errorf("got %q and %q, want %q", f.calls, f.followed, want)
	}
}

// After a restart of podd, the apiserver has not answered when the pod is synced, and a quiet
// pod is not synced again.
func TestCSIVolumesOfAnEarlierPoddAreFollowedOnceTheApiserverHasAnswered(t *testing.T) {
	volume := &v1.PersistentVolume{}
	volume.Name, volume.Spec.CSI = "disk", &v1.CSIPersistentVolumeSource{Driver: "x", VolumeHandle: "h"}
	f, c := &fakeCSI{}, &awaitedClaims{claimed: claimed{"data": volume}}
	m := newMounter(t, func(o *Options) { o.CSI = f }, withClaims(c))
	must := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(f.followed, want) {
			t.Errorf("%s: followed are %q, want %q", when, f.followed, want)
		}
		f.followed = nil
	}
	m.Changed("a")
	must("before the pod is known")
	m.Follow(aPod("a", claims("data"), ofCSI("inline")))
	must("before the claim is known", "inline")
	c.answered = true
	m.Changed("a")
	must("once it is", "disk", "inline")
	m.Stopping("a")
	m.Changed("a")
	must("once the pod ends")
}

func TestTheFSGroupOfACSIVolumeIsAppliedUnlessItsDriverDoes(t *testing.T) {
	for _, podOwns := range []bool{true, false} {
		f := &fakeCSI{podOwns: podOwns}
		m := newMounter(t, func(o *Options) { o.CSI = f })
		p, group := withMounts(aPod("a", ofCSI("data")), v1.VolumeMount{Name: "data", MountPath: "/data"}), int64(4321)
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
		mustSetUp(t, m, p)
		var st unix.Stat_t
		if err := unix.Stat(mustMounts(t, m, p)[0].HostPath, &st); err != nil || (st.Gid == 4321) != podOwns {
			t.Errorf("applied by podd: %v; got group %d (%v)", podOwns, st.Gid, err)
		}
		mustTearDown(t, m, "a")
	}
}

// The mount of an unavailable driver is neither unmounted nor deleted. The pod's other
// volumes are unmounted, and the rest is removed when the driver is back.
func TestAnUnavailableDriverBlocksOnlyItsOwnVolume(t *testing.T) {
	f := &fakeCSI{}
	m := newMounter(t, func(o *Options) { o.CSI = f })
	p := withMounts(aPod("a", ofCSI("data"), empty("scratch", memory)), v1.VolumeMount{Name: "data", MountPath: "/data"})
	mustSetUp(t, m, p)
	data := mustMounts(t, m, p)[0].HostPath
	write(t, filepath.Join(data, "file"), "precious")
	f.setAway(true)
	mustTearDown(t, m, "a")
	pending := m.PendingUnmounts()
	if len(pending) != 1 {
		t.Fatalf("got %+v", pending)
	}
	mustSay(t, errors.New(pending[0].Message), `unmount volume "data": driver name x not found`, "podd retries and deletes nothing until then")
	mustBe(t, filepath.Join(data, "file"), "precious")
	points, err := mountsBelow(m.PodDir("a"))
	if err != nil || !slices.Equal(points, []string{data}) {
		t.Errorf("mounted: %v (%v)", points, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Run(ctx) }()
	defer func() { cancel(); <-done }()
	m.mu.Lock()
	m.stateOf("a").pending.RetryAt = time.Now().Add(time.Hour)
	m.mu.Unlock()
	f.setAway(false)
	m.RetryUnmount("a")
	m.RetryUnmount("nobody")
	for end := time.Now().Add(20 * time.Second); len(m.PendingUnmounts()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not retried: %+v", m.PendingUnmounts())
		}
	}
	mustBeGone(t, m, "a")
}

// As in podd runtime stop, which registers no drivers.
func TestWithoutDriversACSIVolumeIsKept(t *testing.T) {
	f := &fakeCSI{}
	m := newMounter(t, func(o *Options) { o.CSI = f })
	p := aPod("a", ofCSI("data"))
	mustSetUp(t, m, p)
	without := newMounter(t, func(o *Options) { o.RootDir = m.dirs.Root })
	mustSay(t, without.Remove(t.Context(), "a"), "a CSI driver has mounted it, and must unmount it")
	mustSay(t, ensure(t, without, aPod("b", ofCSI("data"))), "driver name x not found in the list of registered CSI drivers")
	mustTearDown(t, without, "b")
	mustTearDown(t, m, "a")
	mustBeGone(t, m, "a")
}

// Both inline volumes and those of claims.
func TestOnlyCSIDriversReportStats(t *testing.T) {
	f := &fakeCSI{}
	volume := &v1.PersistentVolume{}
	volume.Name, volume.Spec.CSI = "disk", &v1.CSIPersistentVolumeSource{Driver: "x", VolumeHandle: "h"}
	m := newMounter(t, func(o *Options) { o.CSI = f }, withClaims(claimed{"bound": volume}))
	p := aPod("a", ofCSI("inline"), claims("bound"), empty("scratch", memory), claims("unbound"))
	for _, name := range []string{"inline", "bound"} {
		if s, err := m.Stats(t.Context(), p, name); err != nil || s.UsedBytes != 7 {
			t.Errorf("%s: got %+v, %v, want what its driver says", name, s, err)
		}
	}
	for name, want := range map[string]string{"inline": "x", "bound": "x", "scratch": "", "unbound": "", "none": ""} {
		if got := m.DriverOf(p, name); got != want {
			t.Errorf("%s: got driver %q, want %q", name, got, want)
		}
	}
	if want := []string{"measure inline", "measure bound"}; !slices.Equal(f.calls, want) {
		t.Errorf("the driver got %q, want %q", f.calls, want)
	}
	if _, err := m.Stats(t.Context(), p, "scratch"); !errors.Is(err, pod.ErrNoStats) {
		t.Errorf("an emptyDir: got %v, want ErrNoStats", err)
	}
	for _, name := range []string{"unbound", "none"} {
		if _, err := m.Stats(t.Context(), p, name); err == nil || errors.Is(err, pod.ErrNoStats) {
			t.Errorf("%s: got %v, want an error", name, err)
		}
	}
}

package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// claimed are the volumes of claims, by name of the claim.
type claimed map[string]*v1.PersistentVolume

func (c claimed) Claim(p *v1.Pod, v *v1.Volume) (pod.BoundVolume, error) {
	b := pod.BoundVolume{Volume: c[pod.ClaimName(p, v)], Claim: &v1.PersistentVolumeClaim{}}
	if b.Volume == nil {
		return pod.BoundVolume{}, errors.New("PVC is not bound")
	}
	if v.PersistentVolumeClaim != nil {
		b.ReadOnly = v.PersistentVolumeClaim.ReadOnly
	}
	return b, nil
}

// awaitedClaims is claimed once the apiserver has answered.
type awaitedClaims struct {
	claimed
	answered bool
}

func (c *awaitedClaims) Claim(p *v1.Pod, v *v1.Volume) (pod.BoundVolume, error) {
	if !c.answered {
		return pod.BoundVolume{}, fmt.Errorf("PVC is not known yet: %w", pod.ErrObjectPending)
	}
	return c.claimed.Claim(p, v)
}

func (claimed) Use(pod.BoundVolume, pod.UID, func(pod.UID) bool) error { return nil }

func withClaims(c Claims) func(*Options) { return func(o *Options) { o.Claims = c } }

func localDisk(name, path string, change ...func(*v1.PersistentVolumeSpec)) *v1.PersistentVolume {
	v := &v1.PersistentVolume{}
	v.Name, v.Spec.Local = name, &v1.LocalVolumeSource{Path: path}
	for _, f := range change {
		f(&v.Spec)
	}
	return v
}

func asBlock(s *v1.PersistentVolumeSpec) {
	mode := v1.PersistentVolumeBlock
	s.VolumeMode = &mode
}

func options(all ...string) func(*v1.PersistentVolumeSpec) {
	return func(s *v1.PersistentVolumeSpec) { s.MountOptions = all }
}

func fsType(t string) func(*v1.PersistentVolumeSpec) {
	return func(s *v1.PersistentVolumeSpec) { s.Local.FSType = &t }
}

func (claimed) AwaitClaim(context.Context, *v1.Pod, *v1.Volume) {}

// claims returns a volume with a claim of the same name.
func claims(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

// asDevices gives the pod's volumes with a claim to its container as devices.
func asDevices(p *v1.Pod) *v1.Pod {
	p.Spec.InitContainers = nil
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.PersistentVolumeClaim != nil {
			p.Spec.Containers[0].VolumeDevices = append(p.Spec.Containers[0].VolumeDevices, v1.VolumeDevice{Name: v.Name, DevicePath: "/dev/" + v.Name})
		}
	}
	return p
}

func readOnly(v v1.Volume) v1.Volume {
	v.PersistentVolumeClaim.ReadOnly = true
	return v
}

// mountOf returns the mount at a path, or nil.
func mountOf(t *testing.T, path string) *mountinfo.Info {
	t.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(infos) == 0 {
		return nil
	}
	return infos[len(infos)-1]
}

// It is bind-mounted, written to and unmounted, and its files exist for the next pod.
func TestALocalDirectoryOutlivesItsPods(t *testing.T) {
	disk := mkdir(t, filepath.Join(tempDir(t), "disk"))
	write(t, filepath.Join(disk, "canary"), "alive")
	m := newMounter(t, withClaims(claimed{"data": localDisk("disk", disk)}))
	for _, uid := range []string{"1", "2"} {
		p := withMounts(aPod(uid, claims("data")), v1.VolumeMount{Name: "data", MountPath: "/data"})
		mustSetUp(t, m, p)
		mounts := mustMounts(t, m, p)
		if len(mounts) != 1 || mounts[0].ReadOnly || mounts[0].HostPath != m.dirs.Volume(p.UID, localPlugin, "data") {
			t.Fatalf("got %+v", mounts)
		}
		mustBe(t, filepath.Join(mounts[0].HostPath, "canary"), "alive")
		write(t, filepath.Join(mounts[0].HostPath, "of"+uid), uid)
	}
	mustTearDown(t, m, "1")
	mustBeGone(t, m, "1")
	mustBe(t, filepath.Join(m.dirs.Volume("2", localPlugin, "data"), "of1"), "1")
	mustTearDown(t, m, "2")
	mustBeGone(t, m, "2")
	for name, text := range map[string]string{"canary": "alive", "of1": "1", "of2": "2"} {
		mustBe(t, filepath.Join(disk, name), text)
	}
}

// It also unmounts it, whether it knows the claim or not.
func TestARestartFindsWhatIsMounted(t *testing.T) {
	disk := mkdir(t, filepath.Join(tempDir(t), "disk"))
	write(t, filepath.Join(disk, "canary"), "alive")
	volumes := claimed{"data": localDisk("disk", disk)}
	m := newMounter(t, withClaims(volumes))
	p := aPod("1", claims("data"))
	mustSetUp(t, m, p)
	dir := m.dirs.Volume("1", localPlugin, "data")
	before := mountOf(t, dir)
	again := newMounter(t, withClaims(volumes), func(o *Options) { o.RootDir = m.dirs.Root })
	mustSetUp(t, again, p)
	if now := mountOf(t, dir); now == nil || now.ID != before.ID {
		t.Errorf("got %+v, want the mount that was there: %+v", now, before)
	}
	unknown := newMounter(t, func(o *Options) { o.RootDir = m.dirs.Root })
	mustTearDown(t, unknown, "1")
	mustBeGone(t, unknown, "1")
	mustBe(t, filepath.Join(disk, "canary"), "alive")
}

func TestAVolumeThatIsSetUpKeepsItsBinding(t *testing.T) {
	dir := tempDir(t)
	first, second := mkdir(t, filepath.Join(dir, "first")), mkdir(t, filepath.Join(dir, "second"))
	volumes := claimed{"data": {}}
	volumes["data"].Name, volumes["data"].Spec.HostPath = "disk", &v1.HostPathVolumeSource{Path: first}
	m := newMounter(t, withClaims(volumes))
	p := withMounts(aPod("1", claims("data")), v1.VolumeMount{Name: "data", MountPath: "/data"})
	mustSetUp(t, m, p)
	delete(volumes, "data") // removed from the manifest, or the manifest is broken
	mustSetUp(t, m, p)
	if mounts := mustMounts(t, m, p); mounts[0].HostPath != first {
		t.Errorf("got %+v", mounts)
	}
	mustTearDown(t, m, "1")
	volumes["data"] = localDisk("disk", second)
	mustSetUp(t, m, p)
	if b := m.Bound(p, "data"); b == nil || b.Volume.Spec.Local == nil {
		t.Errorf("the pod's next run has the old volume: %+v", b)
	}
}

func TestAHostPathPersistentVolumeIsUsedInPlace(t *testing.T) {
	dir := tempDir(t)
	kind := v1.HostPathDirectoryOrCreate
	volume := &v1.PersistentVolume{}
	volume.Name, volume.Spec.HostPath = "disk", &v1.HostPathVolumeSource{Path: filepath.Join(dir, "made"), Type: &kind}
	m := newMounter(t, withClaims(claimed{"data": volume}))
	p := withMounts(aPod("1", readOnly(claims("data"))), v1.VolumeMount{Name: "data", MountPath: "/data"})
	mustSetUp(t, m, p)
	if mounts := mustMounts(t, m, p); mounts[0].HostPath != filepath.Join(dir, "made") || !mounts[0].ReadOnly || mounts[0].SELinuxRelabel {
		t.Errorf("got %+v", mounts)
	}
	write(t, filepath.Join(dir, "made", "canary"), "alive")
	mustTearDown(t, m, "1")
	mustBe(t, filepath.Join(dir, "made", "canary"), "alive")
	wrong := v1.HostPathFile
	volume.Spec.HostPath.Type = &wrong
	mustSay(t, ensure(t, m, p), "hostPath type check failed", "is not a file")
}

func TestAReadOnlyClaimCannotBeWritten(t *testing.T) {
	disk := mkdir(t, filepath.Join(tempDir(t), "disk"))
	for name, volume := range map[string]*v1.PersistentVolume{"plain": localDisk("a", disk), "with options": localDisk("b", disk, options("nosuid", "noatime"))} {
		t.Run(name, func(t *testing.T) {
			m := newMounter(t, withClaims(claimed{"data": volume}))
			p := withMounts(aPod("1", readOnly(claims("data"))), v1.VolumeMount{Name: "data", MountPath: "/data"})
			mustSetUp(t, m, p)
			mounts := mustMounts(t, m, p)
			if err := os.WriteFile(filepath.Join(mounts[0].HostPath, "new"), nil, 0o600); !errors.Is(err, unix.EROFS) || !mounts[0].ReadOnly {
				t.Errorf("got %v, %+v", err, mounts)
			}
			if err := os.WriteFile(filepath.Join(disk, "new"), nil, 0o600); err != nil {
				t.Errorf("the volume itself became read-only: %v", err)
			}
			if got := mountOf(t, mounts[0].HostPath).Options; len(volume.Spec.MountOptions) > 0 && !strings.Contains(got, "nosuid") {
				t.Errorf("got options %s", got)
			}
		})
	}
}

func TestAMountThatFailsLeavesNothingMounted(t *testing.T) {
	disk := mkdir(t, filepath.Join(tempDir(t), "disk"))
	fakePrograms(t, map[string]string{"mount": `for dir; do :; done; /bin/mount --bind ` + disk + ` "$dir"; echo "cannot remount" >&2; exit 32`})
	m := newMounter(t, withClaims(claimed{"data": localDisk("a", disk, options("nonsense"))}))
	mustSay(t, ensure(t, m, aPod("1", claims("data"))), `MountVolume.SetUp failed for volume "data" : exit status 32: cannot remount`)
	if got := mountOf(t, m.dirs.Volume("1", localPlugin, "data")); got != nil {
		t.Errorf("got %+v", got)
	}
}

// With upstream's messages.
func TestUnsuitableLocalVolumesAreRejected(t *testing.T) {
	dir := tempDir(t)
	file := filepath.Join(dir, "file")
	write(t, file, "")
	for name, tc := range map[string]struct {
		volume *v1.PersistentVolume
		use    func(*v1.Pod) *v1.Pod
		want   []string
	}{
		"missing":            {localDisk("d", filepath.Join(dir, "none")), nil, []string{`path "` + dir + `/none" does not exist`}},
		"a file":             {localDisk("d", file), nil, []string{"only directory and block device are supported"}},
		"not a device":       {localDisk("d", dir, asBlock), asDevices, []string{"is a directory, not a block device"}},
		"a character device": {localDisk("d", "/dev/null"), nil, []string{"only directory and block device are supported"}},
		"a device that is mounted": {localDisk("d", dir, asBlock), func(p *v1.Pod) *v1.Pod {
			return withMounts(p, v1.VolumeMount{Name: "data", MountPath: "/data"})
		}, []string{"volume data has volumeMode Block, but is specified in volumeMounts"}},
		"a directory as a device": {localDisk("d", dir), func(p *v1.Pod) *v1.Pod {
			p.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
			return p
		}, []string{"volume data has volumeMode Filesystem, but is specified in volumeDevices"}},
		"of a kind that cannot be a device": {func() *v1.PersistentVolume {
			v := &v1.PersistentVolume{}
			v.Name, v.Spec.HostPath = "d", &v1.HostPathVolumeSource{Path: dir}
			asBlock(&v.Spec)
			return v
		}(), asDevices, []string{"PersistentVolume d has volumeMode Block, which volumes of kind hostPath cannot have"}},
		"of a kind that podd does not have": {func() *v1.PersistentVolume {
			v := &v1.PersistentVolume{}
			v.Name, v.Spec.ISCSI = "d", &v1.ISCSIPersistentVolumeSource{}
			return v
		}(), nil, []string{"podd cannot use PersistentVolume d: it is of kind iscsi"}},
		"not bound": {nil, nil, []string{"PVC is not bound"}},
	} {
		t.Run(name, func(t *testing.T) {
			volumes := claimed{}
			if tc.volume != nil {
				volumes["data"] = tc.volume
			}
			m := newMounter(t, withClaims(volumes))
			p := aPod("1", claims("data"), empty("other"))
			if tc.use != nil {
				p = tc.use(p)
			}
			operation, reason := "MountVolume.SetUp", "FailedMount"
			if name == "not a device" { // the others are rejected before they are set up
				operation, reason = "MapVolume.SetUpDevice", "FailedMapVolume"
			}
			err := ensure(t, m, p)
			mustSay(t, err, append(tc.want, operation+` failed for volume "data"`)...)
			if got := pod.ReasonOf(err, ""); got != reason {
				t.Errorf("got the reason %s, want %s", got, reason)
			}
			mustSetUp(t, m, aPod("2", empty("other"))) // other pods are not affected
		})
	}
}

// As in upstream's plugin; a later pod with another fsGroup gets a warning.
func TestTheFirstPodsFSGroupIsAppliedToALocalVolume(t *testing.T) {
	disk := mkdir(t, filepath.Join(tempDir(t), "disk"))
	write(t, filepath.Join(disk, "file"), "")
	told := newStore()
	m := newMounter(t, withClaims(claimed{"data": localDisk("disk", disk)}), func(o *Options) { o.Events = told })
	of := func(uid string, group int64) *v1.Pod {
		p := aPod(uid, claims("data"))
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
		return p
	}
	mustSetUp(t, m, of("1", 4711))
	mustSetUp(t, m, of("2", 4712))
	mustSetUp(t, m, of("3", 4711))
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(disk, "file"), &st); err != nil || st.Gid != 4711 {
		t.Errorf("got group %d, %v", st.Gid, err)
	}
	want := "The requested fsGroup is 4712, but the volume disk has GID 4711. The volume may not be shareable."
	if all := told.told(); len(all) != 1 || !strings.Contains(all[0], want) {
		t.Errorf("got %q", all)
	}
}

// loop returns a loop device of that size.
func loop(t *testing.T, megabytes int64) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	file := filepath.Join(t.TempDir(), "image")
	write(t, file, "")
	if err := os.Truncate(file, megabytes<<20); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	device := strings.TrimSpace(string(out))
	if err != nil {
		t.Skipf("no loop device here: %v: %s", err, device)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %v: %s", device, err, out)
		}
	})
	return device
}

// It is shared by the pods of the node.
func TestAnEmptyDeviceIsFormattedOnce(t *testing.T) {
	device := loop(t, 64)
	m := newMounter(t, withClaims(claimed{"data": localDisk("disk", device, options("noatime"))}))
	dir := func(uid string) string { return m.dirs.Volume(pod.UID(uid), localPlugin, "data") }
	mustSay(t, ensure(t, m, aPod("0", readOnly(claims("data")))), "cannot mount unformatted disk "+device)
	mustSetUp(t, m, aPod("1", claims("data")))
	if got := mountOf(t, dir("1")); got == nil || got.FSType != "ext4" || !strings.Contains(got.Options, "noatime") {
		t.Fatalf("got %+v", got)
	}
	write(t, filepath.Join(dir("1"), "canary"), "alive")
	mustSetUp(t, m, aPod("2", readOnly(claims("data")))) // while another pod has it read-write
	mustBe(t, filepath.Join(dir("2"), "canary"), "alive")
	if err := os.WriteFile(filepath.Join(dir("2"), "new"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("got %v", err)
	}
	write(t, filepath.Join(dir("1"), "more"), "of it")
	for _, uid := range []pod.UID{"1", "2"} {
		mustTearDown(t, m, uid)
		mustBeGone(t, m, string(uid))
	}
	mustSetUp(t, m, aPod("3", readOnly(claims("data")))) // alone
	mustBe(t, filepath.Join(dir("3"), "canary"), "alive")
	if got := mountOf(t, dir("3")); !strings.Contains(got.VFSOptions, "ro") {
		t.Errorf("got %+v", got)
	}
	mustTearDown(t, m, "3")
	mustSetUp(t, m, aPod("4", claims("data")))
	mustBe(t, filepath.Join(dir("4"), "more"), "of it")
	mustTearDown(t, m, "4")
}

func TestADeviceThatIsNotEmptyIsNotFormatted(t *testing.T) {
	for name, tc := range map[string]struct {
		fill func(t *testing.T, device string)
		want string
	}{
		"another file system": {func(t *testing.T, device string) {
			if out, err := exec.Command("mkfs.ext2", "-q", device).CombinedOutput(); err != nil {
				t.Skipf("no mkfs.ext2: %v: %s", err, out)
			}
		}, `failed to mount the volume as "xfs", it already contains ext2`},
		"partitions": {func(t *testing.T, device string) {
			table := make([]byte, 512)
			table[446+4], table[446+8], table[446+12], table[510], table[511] = 0x83, 1, 8, 0x55, 0xaa
			raw(t, device, table)
		}, "it already contains unknown data, probably partitions"},
	} {
		t.Run(name, func(t *testing.T) {
			device := loop(t, 8)
			tc.fill(t, device)
			before := first(t, device)
			m := newMounter(t, withClaims(claimed{"data": localDisk("disk", device, fsType("xfs"))}))
			mustSay(t, ensure(t, m, aPod("1", claims("data"))), tc.want)
			if first(t, device) != before {
				t.Error("the device was written to")
			}
		})
	}
}

func raw(t *testing.T, device string, data []byte) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// first returns the first bytes of a device.
func first(t *testing.T, device string) string {
	t.Helper()
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, 64<<10)
	if _, err := f.Read(data); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Only a device for which blkid prints nothing, with the right exit status, is formatted.
func TestADeviceThatBlkidCannotIdentifyIsNotFormatted(t *testing.T) {
	for name, script := range map[string]string{
		"an error with the status for empty": "echo 'blkid: error: /dev/x: Input/output error' >&2; exit 2",
		"several things at once":             "exit 8",
		"no output, and success":             "exit 0",
	} {
		t.Run(name, func(t *testing.T) {
			fakePrograms(t, map[string]string{"blkid": script, "mkfs.ext4": "echo formatted > $DIR/formatted"})
			if _, err := prepareDevice(t.Context(), "/dev/x", "ext4", false); err == nil {
				t.Error("got no error")
			}
			if exists(filepath.Join(os.Getenv("DIR"), "formatted")) {
				t.Error("it was formatted")
			}
		})
	}
}

func TestADeviceReachesTheContainer(t *testing.T) {
	device := loop(t, 8)
	m := newMounter(t, withClaims(claimed{"disk": localDisk("a", device, asBlock), "look": localDisk("b", device, asBlock)}))
	p := asDevices(aPod("1", claims("disk"), readOnly(claims("look"))))
	mustSetUp(t, m, p)
	got, err := m.Devices(p, &p.Spec.Containers[0])
	want := fmt.Sprint([]pod.Device{{HostPath: device, ContainerPath: "/dev/disk"}, {HostPath: device, ContainerPath: "/dev/look", ReadOnly: true}})
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	mustTearDown(t, m, "1")
	mustBeGone(t, m, "1")
}

// fakePrograms puts shell scripts first in $PATH, and a directory for them into $DIR.
func fakePrograms(t *testing.T, scripts map[string]string) (dir string) {
	t.Helper()
	bin, dir := t.TempDir(), t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("DIR", dir)
	return dir
}

// alive says whether a process runs.
func alive(t *testing.T, file string) bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

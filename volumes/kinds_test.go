package volumes

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// volumeDir returns the directory of a pod's volume, by upstream's name of its plugin.
func volumeDir(m *Mounter, uid pod.UID, plugin, name string) string {
	return m.PodDir(uid) + "/volumes/kubernetes.io~" + plugin + "/" + name
}

// mustHold checks the files of a volume as a container sees them.
func mustHold(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	root := filepath.Join(dir, "..data") + "/"
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, root)
		text, err := os.ReadFile(filepath.Join(dir, name)) // through its link
		got[name] = string(text)
		return err
	})
	if err != nil || !slices.Equal(names(got), names(want)) {
		t.Errorf("%s: got files %q (%v), want %q", filepath.Base(dir), names(got), err, names(want))
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s/%s: got %q, want %q", filepath.Base(dir), name, got[name], want[name])
		}
	}
}

func mode(n int32) *int32 { return &n }

func mustHaveMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	if info, err := os.Stat(path); err != nil || info.Mode() != want {
		t.Errorf("%s: got %v (%v), want %v", path, info.Mode(), err, want)
	}
}

func TestConfigMapVolumeHasEveryKeyAsAFile(t *testing.T) {
	c := aConfigMap("app", "conf", "a=1\n", "empty", "")
	c.ConfigMap.BinaryData = map[string][]byte{"logo.png": {0, 0xff, '\n'}}
	m := newMounter(t, newStore(c).into)
	mustSetUp(t, m, aPod("u1", fromConfigMap("v", "app")))
	dir := volumeDir(m, "u1", "configmap", "v")
	mustHold(t, dir, map[string]string{"conf": "a=1\n", "empty": "", "logo.png": "\x00\xff\n"})
	mustHaveMode(t, dir+"/conf", 0o644)
	mustHaveMode(t, dir, fs.ModeDir|0o777)
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

func TestItemsChooseKeysPathsAndModes(t *testing.T) {
	m := newMounter(t, newStore(aConfigMap("app", "a", "1", "b", "2", "c", "3"), aSecret("key", "a", "4", "b", "5")).into)
	items := []v1.KeyToPath{{Key: "a", Path: "etc/deep/a"}, {Key: "b", Path: "b", Mode: mode(0o400)}}
	mustSetUp(t, m, aPod("u1",
		fromConfigMap("c", "app", func(s *v1.ConfigMapVolumeSource) { s.Items, s.DefaultMode = items, mode(0o640) }),
		fromSecret("s", "key", func(s *v1.SecretVolumeSource) { s.Items, s.DefaultMode = items, mode(0o600) }),
		projected("p", partConfigMap("app", v1.KeyToPath{Key: "c", Path: "./x//c", Mode: mode(0o444)}), partSecret("key", items...))))
	c, s, p := volumeDir(m, "u1", "configmap", "c"), volumeDir(m, "u1", "secret", "s"), volumeDir(m, "u1", "projected", "p")
	mustHold(t, c, map[string]string{"etc/deep/a": "1", "b": "2"})
	mustHold(t, s, map[string]string{"etc/deep/a": "4", "b": "5"})
	mustHold(t, p, map[string]string{"x/c": "3", "etc/deep/a": "4", "b": "5"})
	for path, want := range map[string]fs.FileMode{
		c + "/etc/deep/a": 0o640, c + "/b": 0o400, s + "/etc/deep/a": 0o600, s + "/b": 0o400,
		p + "/x/c": 0o444, p + "/etc/deep/a": 0o644, p + "/b": 0o400,
	} {
		mustHaveMode(t, path, want)
	}
}

func TestDownwardAPIVolumeHasFieldsOfThePod(t *testing.T) {
	m := newMounter(t, newStore().into)
	v := fromPod("d", "labels", "metadata.labels", "sub/name", "metadata.name")
	v.DownwardAPI.Items = append(v.DownwardAPI.Items, v1.DownwardAPIVolumeFile{
		Path: "cpu", Mode: mode(0o400), ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.cpu"},
	})
	mustSetUp(t, m, aPod("u1", v))
	dir := volumeDir(m, "u1", "downward-api", "d")
	mustHold(t, dir, map[string]string{"labels": `app="shop"`, "sub/name": "web", "cpu": "c limits.cpu"})
	mustHaveMode(t, dir+"/cpu", 0o400)
}

func TestTheLaterOfTwoProjectedSourcesWins(t *testing.T) {
	m := newMounter(t, newStore(aConfigMap("one", "a", "first", "b", "first"), aSecret("two", "a", "second")).into)
	mustSetUp(t, m, aPod("u1", projected("p", partConfigMap("one"), partSecret("two"), partPod("b", "metadata.name"))))
	mustHold(t, volumeDir(m, "u1", "projected", "p"), map[string]string{"a": "second", "b": "web"})
}

func TestAFileThatIsAnothersDirectoryIsRejected(t *testing.T) {
	m := newMounter(t, newStore(aConfigMap("one", "a", "1")).into)
	mustSay(t, ensure(t, m, aPod("u1", projected("p", partConfigMap("one"), partPod("a/b", "metadata.name")))), `"a/b"`, `"a" is a file of the volume`)
}

func TestMissingSourcesAreUpstreamsErrors(t *testing.T) {
	yes := true
	nowhere := []v1.KeyToPath{{Key: "k", Path: "p"}}
	token := v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "t"}}
	bundle := v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "t"}}
	certificate := v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{}}
	const failed = `MountVolume.SetUp failed for volume "v" : `
	for name, c := range map[string]struct {
		volume v1.Volume
		words  string // "": no error
	}{
		"configMap":           {fromConfigMap("v", "none"), failed + `configmap "none" not found`},
		"configMap's key":     {fromConfigMap("v", "app", func(s *v1.ConfigMapVolumeSource) { s.Items = nowhere }), failed + "configmap references non-existent config key: k"},
		"optional configMap":  {fromConfigMap("v", "none", func(s *v1.ConfigMapVolumeSource) { s.Optional = &yes }), ""},
		"optional key":        {fromConfigMap("v", "app", func(s *v1.ConfigMapVolumeSource) { s.Items, s.Optional = nowhere, &yes }), ""},
		"secret":              {fromSecret("v", "none"), failed + `secret "none" not found`},
		"secret's key":        {fromSecret("v", "key", func(s *v1.SecretVolumeSource) { s.Items = nowhere }), failed + "references non-existent secret key: k"},
		"optional secret":     {fromSecret("v", "none", func(s *v1.SecretVolumeSource) { s.Optional = &yes }), ""},
		"optional secret key": {fromSecret("v", "key", func(s *v1.SecretVolumeSource) { s.Items, s.Optional = nowhere, &yes }), ""},
		"two of projected":    {projected("v", partConfigMap("none"), partSecret("none"), partConfigMap("app")), failed + `[configmap "none" not found, secret "none" not found]`},
		"a field":             {fromPod("v", "x", "status.phase"), failed + "unsupported fieldPath: status.phase"},
		"a token":             {projected("v", token), failed + "cannot project serviceAccountToken: this node has no apiserver"},
		"a trust bundle":      {projected("v", bundle), failed + "cannot project clusterTrustBundle: this node has no apiserver"},
		"a certificate":       {projected("v", certificate), failed + "cannot project podCertificate: this node has no apiserver"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMounter(t, newStore(aConfigMap("app", "a", "1"), aSecret("key", "a", "hidden")).into)
			err := ensure(t, m, aPod("u1", c.volume))
			if c.words == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			mustSay(t, err, c.words)
			if pod.ReasonOf(err, "") != "FailedMount" || strings.Contains(err.Error(), "hidden") {
				t.Errorf("got %q with reason %q", err, pod.ReasonOf(err, ""))
			}
			if points, err := mountsBelow(m.PodDir("u1")); err != nil || len(points) > 0 {
				t.Errorf("mounted for nothing: %v (%v)", points, err)
			}
		})
	}
}

func TestANodeWithoutObjectsHasNone(t *testing.T) {
	m := newMounter(t)
	err := ensure(t, m, aPod("u1", fromConfigMap("c", "a"), fromSecret("s", "b"), fromPod("d", "n", "metadata.name")))
	mustSay(t, err, `configmap "a" not found`, `secret "b" not found`, "does not provide downward API fields")
}

// Whatever may contain a secret is in memory, in one mount that is never swapped.
func TestSecretsNeverReachADisk(t *testing.T) {
	m := newMounter(t, newStore(aConfigMap("app", "a", "1"), aSecret("key", "password", "hunter2-on-no-disk")).into)
	p := aPod("u1", fromConfigMap("c", "app"), fromSecret("s", "key"), fromPod("d", "n", "metadata.name"), projected("p", partSecret("key")))
	for range 3 { // also by a new Mounter, as after a restart
		mustSetUp(t, m, p)
		m.forgetReady()
	}
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(m.PodDir("u1")))
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for _, i := range infos {
		points = append(points, strings.TrimPrefix(i.Mountpoint, m.PodDir("u1")+"/volumes/kubernetes.io~"))
		if i.FSType != "tmpfs" || !strings.Contains(i.VFSOptions, "size=262144k") {
			t.Errorf("%s is %s with %s, want a bounded tmpfs", i.Mountpoint, i.FSType, i.VFSOptions)
		}
		if kernelHasNoswap(t) && !strings.Contains(i.VFSOptions, "noswap") {
			t.Errorf("%s may be swapped: %s", i.Mountpoint, i.VFSOptions)
		}
	}
	slices.Sort(points)
	if want := []string{"downward-api/d", "projected/p", "secret/s"}; !slices.Equal(points, want) {
		t.Errorf("mounted: %v, want %v", points, want)
	}
	for _, path := range []string{volumeDir(m, "u1", "secret", "s"), volumeDir(m, "u1", "projected", "p")} {
		mustHold(t, path, map[string]string{"password": "hunter2-on-no-disk"})
		mustHaveMode(t, path, fs.ModeDir|fs.ModeSticky|0o777)
	}
	if err := m.Release(t.Context(), "u1"); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(m.PodDir("u1"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if text, _ := os.ReadFile(path); strings.Contains(string(text), "hunter2") {
				t.Errorf("%s is on the disk", path)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func kernelHasNoswap(t *testing.T) bool {
	t.Helper()
	dir := tempDir(t)
	return unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,noswap") == nil
}

func TestOrphanedSecretIsUnmountedBeforeItsDirectoryIsDeleted(t *testing.T) {
	m := newMounter(t, newStore(aConfigMap("app", "a", "1"), aSecret("key", "a", "2")).into)
	mustSetUp(t, m, aPod("u1", fromConfigMap("c", "app"), fromSecret("s", "key"), fromPod("d", "n", "metadata.name"), projected("p", partSecret("key"))))
	holder := hold(t, volumeDir(m, "u1", "secret", "s"))
	later, err := New(Options{RootDir: m.options.RootDir}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	mustTearDown(t, later, "u1")
	mustHold(t, volumeDir(m, "u1", "secret", "s"), map[string]string{"a": "2"}) // it is in use: nothing is deleted
	if len(later.PendingUnmounts()) != 1 {
		t.Errorf("got pending unmounts %+v, want the pod's", later.PendingUnmounts())
	}
	release(t, holder)
	mustTearDown(t, later, "u1")
	mustBeGone(t, later, "u1")
}

func TestContainersHaveValuesReadOnly(t *testing.T) {
	m := newMounter(t, newStore(aConfigMap("app", "a", "1"), aSecret("key", "a", "2")).into)
	p := withMounts(aPod("u1", fromConfigMap("c", "app"), fromSecret("s", "key"), fromPod("d", "n", "metadata.name"), projected("p", partSecret("key")), empty("e")),
		v1.VolumeMount{Name: "c", MountPath: "/c"}, v1.VolumeMount{Name: "s", MountPath: "/s"}, v1.VolumeMount{Name: "d", MountPath: "/d"},
		v1.VolumeMount{Name: "p", MountPath: "/p"}, v1.VolumeMount{Name: "c", MountPath: "/x", SubPath: "a"}, v1.VolumeMount{Name: "e", MountPath: "/e"})
	mustSetUp(t, m, p)
	for _, mount := range mustMounts(t, m, p) {
		if want := mount.ContainerPath != "/e"; mount.ReadOnly != want {
			t.Errorf("%s: read-only %v, want %v", mount.ContainerPath, mount.ReadOnly, want)
		}
	}
}

func TestValuesBelongToTheFSGroup(t *testing.T) {
	m := newMounter(t, newStore(aConfigMap("app", "a", "1"), aSecret("key", "a", "2")).into)
	group := int64(2000)
	p := aPod("u1",
		fromConfigMap("c", "app", func(s *v1.ConfigMapVolumeSource) { s.DefaultMode = mode(0o400) }),
		fromSecret("s", "key", func(s *v1.SecretVolumeSource) {
			s.DefaultMode, s.Items = mode(0o400), []v1.KeyToPath{{Key: "a", Path: "sub/a", Mode: mode(0o600)}, {Key: "a", Path: "a"}}
		}))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	mustSetUp(t, m, p)
	c, s := volumeDir(m, "u1", "configmap", "c"), volumeDir(m, "u1", "secret", "s")
	for path, want := range map[string]fs.FileMode{
		c: fs.ModeDir | fs.ModeSetgid | 0o777, c + "/a": 0o440, c + "/..data": fs.ModeDir | fs.ModeSetgid | 0o755,
		s: fs.ModeDir | fs.ModeSetgid | fs.ModeSticky | 0o777, s + "/a": 0o440, s + "/sub": fs.ModeDir | fs.ModeSetgid | 0o755, s + "/sub/a": 0o640,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if gid := info.Sys().(*syscall.Stat_t).Gid; gid != 2000 || info.Mode() != want {
			t.Errorf("%s: got group %d mode %v, want %v", path, gid, info.Mode(), want)
		}
	}
}

// They would fill the node's memory or disk; nor is anything copied before it is known
// that they do not fit.
func TestItemsThatRepeatAKeyTooOftenAreRejected(t *testing.T) {
	m := newMounter(t, newStore(aConfigMap("app", "a", strings.Repeat("x", 1<<20)), aSecret("key", "a", strings.Repeat("y", 1<<20))).into)
	var items []v1.KeyToPath
	for i := range 10_000 {
		items = append(items, v1.KeyToPath{Key: "a", Path: fmt.Sprint("p", i)})
	}
	var sources []v1.VolumeProjection
	for i := range items {
		sources = append(sources, partConfigMap("app", items[i]))
	}
	for plugin, v := range map[string]v1.Volume{
		"configmap": fromConfigMap("v", "app", func(s *v1.ConfigMapVolumeSource) { s.Items = items }),
		"secret":    fromSecret("v", "key", func(s *v1.SecretVolumeSource) { s.Items = items }),
		"projected": projected("v", sources...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := ensure(t, m, aPod("u-"+plugin, v))
		runtime.ReadMemStats(&after)
		mustSay(t, err, "its files have 10000 MiB in total, more than the limit of 96 MiB")
		if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 96 {
			t.Errorf("%s: %d MiB were allocated", plugin, got)
		}
		if _, err := os.Stat(volumeDir(m, pod.UID("u-"+plugin), plugin, "v")); !os.IsNotExist(err) {
			t.Errorf("%s: something was written (%v)", plugin, err)
		}
		mustTearDown(t, m, pod.UID("u-"+plugin))
	}
	mustSetUp(t, m, aPod("u2", fromSecret("v", "key", func(s *v1.SecretVolumeSource) { s.Items = items[:96] })))
	mustTearDown(t, m, "u2")
	mustBeGone(t, m, "u2")
}

// The runtime cannot create a directory in a volume that is mounted read-only.
func TestMountPointsOfOtherVolumesAreCreatedInLiveVolumes(t *testing.T) {
	m := newMounter(t, newStore(aConfigMap("app", "a", "1")).into)
	at := func(volume, path string) v1.VolumeMount { return v1.VolumeMount{Name: volume, MountPath: path} }
	p := withMounts(aPod("u1", fromConfigMap("c", "app"), empty("e")),
		at("c", "/etc/app/"), at("e", "/etc/app/cache"), at("e", "/etc/app/deep/er"), at("e", "/etc/app/cache/below"), at("e", "/etc/app2"), at("e", "/etc/app/../other"))
	for range 2 {
		mustSetUp(t, m, p)
	}
	dir := volumeDir(m, "u1", "configmap", "c")
	mustHold(t, dir, map[string]string{"a": "1"})
	mustHaveMode(t, dir+"/cache", fs.ModeDir|0o777)
	mustHaveMode(t, dir+"/deep/er", fs.ModeDir|0o777)
	entries, _ := os.ReadDir(dir)
	if len(entries) != 5 { // ..data, its version, a, cache, deep
		t.Errorf("got %v", entries)
	}
	if below, _ := os.ReadDir(dir + "/cache"); len(below) != 0 {
		t.Errorf("a mount point within another mount belongs to that one: got %v", below)
	}
}

func TestSubPathOfALiveVolumeIsOneVersionForTheLifeOfAContainer(t *testing.T) {
	for plugin, v := range map[string]v1.Volume{"configmap": fromConfigMap("v", "app"), "secret": fromSecret("v", "app"), "projected": projected("v", partSecret("app"))} {
		t.Run(plugin, func(t *testing.T) {
			s := newStore(aConfigMap("app", "key", "one"), aSecret("app", "key", "one"))
			m := newMounter(t, s.into)
			p := withMounts(aPod("u1", v), v1.VolumeMount{Name: "v", MountPath: "/key", SubPath: "key"}, v1.VolumeMount{Name: "v", MountPath: "/all"})
			mustSetUp(t, m, p)
			mounts := mustMounts(t, m, p)
			mustBe(t, mounts[0].HostPath, "one")
			s.put(aConfigMap("app", "key", "two"))
			s.put(aSecret("app", "key", "two"))
			mustFollow(t, m, "u1")
			mustBe(t, mounts[0].HostPath, "one")
			mustBe(t, mounts[1].HostPath+"/key", "two")
			mustBe(t, mustMounts(t, m, p)[0].HostPath, "two") // the container restarts
			mustTearDown(t, m, "u1")
			mustBeGone(t, m, "u1")
		})
	}
}

// A privileged container may remount a volume and plant links in it.
func TestSubPathOfALiveVolumeCannotLeaveItsVolume(t *testing.T) {
	m := newMounter(t, newStore(aConfigMap("app", "key", "one")).into)
	outside := tempDir(t)
	write(t, outside+"/secret", "not yours")
	p := subPathPod("u1", "planted", fromConfigMap("v", "app"))
	mustSetUp(t, m, p)
	dir := volumeDir(m, "u1", "configmap", "v")
	for _, to := range []string{outside, outside + "/secret", "../../../../../..", "/proc/self/root", "planted", "..data/../../../../.."} {
		if err := os.Symlink(to, dir+"/planted"); err != nil {
			t.Fatal(err)
		}
		for _, sub := range []string{"planted", "planted/secret", "../configmap", "/etc"} {
			p.Spec.Containers[0].VolumeMounts[0].SubPath = sub
			if mounts, err := m.Mounts(p, &p.Spec.Containers[0], subPaths(p)); err == nil {
				t.Errorf("%s to %s was bound: %+v", sub, to, mounts)
			}
		}
		if err := os.Remove(dir + "/planted"); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{"key", "..data/key"} {
		p.Spec.Containers[0].VolumeMounts[0].SubPath = sub
		mustBe(t, mustMounts(t, m, p)[0].HostPath, "one")
	}
}

// tenVolumes returns the volumes for the benchmark.
func tenVolumes() (*store, []v1.Volume) {
	s := newStore()
	var out []v1.Volume
	for i := range 5 {
		s.put(aConfigMap(fmt.Sprint("c", i), "a", "1", "b", strings.Repeat("x", 4096)))
		out = append(out, fromConfigMap(fmt.Sprint("c", i), fmt.Sprint("c", i)))
	}
	for i := range 3 {
		s.put(aSecret(fmt.Sprint("s", i), "a", "1", "b", "2"))
		out = append(out, fromSecret(fmt.Sprint("s", i), fmt.Sprint("s", i)))
	}
	return s, append(out, projected("p", partConfigMap("c0"), partSecret("s0"), partPod("name", "metadata.name")), empty("e"))
}

// It measures setup only; BenchmarkPodWithoutVolumes measures setup and teardown.
func BenchmarkPodWithTenVolumes(b *testing.B) {
	s, volumes := tenVolumes()
	o := Options{RootDir: b.TempDir()}
	s.into(&o)
	m, err := New(o, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		uid := fmt.Sprint("u", i)
		if err := ensure(b, m, aPod(uid, volumes...)); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := m.TearDown(b.Context(), pod.UID(uid)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

package volumes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func TestMountsNameHostAndContainerPaths(t *testing.T) {
	m := newMounter(t)
	dir := tempDir(t)
	h2c := v1.MountPropagationHostToContainer
	p := withMounts(aPod("u1", host("h", dir, v1.HostPathDirectory), empty("e")),
		v1.VolumeMount{Name: "h", MountPath: "/host", ReadOnly: true, MountPropagation: &h2c},
		v1.VolumeMount{Name: "e", MountPath: "data"})
	mustSetUp(t, m, p)
	got := mustMounts(t, m, p)
	want := []pod.Mount{
		{HostPath: dir, ContainerPath: "/host", ReadOnly: true, Propagation: h2c},
		{HostPath: m.PodDir("u1") + "/volumes/kubernetes.io~empty-dir/e", ContainerPath: "/data", SELinuxRelabel: true},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// It has nothing on the host, and is read-only.
func TestImageVolumeIsLeftToTheRuntime(t *testing.T) {
	m := newMounter(t)
	p := withMounts(aPod("u1", v1.Volume{Name: "model", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "r/model:1"}}}),
		v1.VolumeMount{Name: "model", MountPath: "/m", SubPath: "a//b/"},
		v1.VolumeMount{Name: "model", MountPath: "/all"})
	mustSetUp(t, m, p)
	got := mustMounts(t, m, p)
	want := []pod.Mount{
		{Image: pod.ImageMount{Volume: "model", Reference: "r/model:1", SubPath: "a/b"}, ContainerPath: "/m", ReadOnly: true},
		{Image: pod.ImageMount{Volume: "model", Reference: "r/model:1"}, ContainerPath: "/all", ReadOnly: true},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if entries, err := os.ReadDir(m.PodDir("u1")); err != nil || len(entries) != 1 {
		t.Errorf("below the pod's directory: got %v (%v), want containers only", entries, err)
	}
	if _, err := m.Path(p, "model"); err == nil {
		t.Error("its content has a path on the host")
	}
	for _, sub := range []string{"/etc", "a/../../b"} {
		p.Spec.Containers[0].VolumeMounts[0].SubPath = sub
		_, err := mountsOf(m, p)
		mustSay(t, err, "must not")
	}
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

func TestMountOfAnUnknownVolumeIsAConfigError(t *testing.T) {
	m := newMounter(t)
	p := withMounts(aPod("u1"), v1.VolumeMount{Name: "nope", MountPath: "/x"})
	_, err := mountsOf(m, p)
	mustSay(t, err, `cannot find volume "nope" to mount into container "c"`)
	if r := pod.ReasonOf(err, ""); r != "CreateContainerConfigError" {
		t.Errorf("got reason %q", r)
	}
}

func TestRecursiveReadOnly(t *testing.T) {
	mode := func(m v1.RecursiveReadOnlyMode) *v1.RecursiveReadOnlyMode { return &m }
	none, h2c := v1.MountPropagationNone, v1.MountPropagationHostToContainer
	for name, c := range map[string]struct {
		mount     v1.VolumeMount
		supported bool
		want      bool
		says      string
	}{
		"not requested":            {v1.VolumeMount{ReadOnly: true}, true, false, ""},
		"disabled":                 {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: mode("Disabled")}, true, false, ""},
		"if possible, supported":   {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: mode("IfPossible"), MountPropagation: &none}, true, true, ""},
		"if possible, unsupported": {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: mode("IfPossible")}, false, false, ""},
		"enabled":                  {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: mode("Enabled")}, true, true, ""},
		"enabled, unsupported":     {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: mode("Enabled")}, false, false, "not supported by the runtime"},
		"writable":                 {v1.VolumeMount{RecursiveReadOnly: mode("Enabled")}, true, false, "not read-only"},
		"with propagation":         {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: mode("Enabled"), MountPropagation: &h2c}, true, false, "not compatible"},
		"an unknown mode":          {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: mode("Maybe")}, true, false, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := recursiveReadOnly(&c.mount, c.supported)
			if got != c.want || (err != nil) != (c.says != "") {
				t.Errorf("got %v (%v), want %v", got, err, c.want)
			}
			if c.says != "" {
				mustSay(t, err, c.says)
			}
		})
	}
}

func TestBidirectionalPropagationIsForPrivilegedContainersOnly(t *testing.T) {
	both, yes := v1.MountPropagationBidirectional, true
	m := &v1.VolumeMount{Name: "v", MountPropagation: &both}
	_, err := propagationOf(m, &v1.Container{Name: "c"})
	mustSay(t, err, "privileged")
	got, err := propagationOf(m, &v1.Container{SecurityContext: &v1.SecurityContext{Privileged: &yes}})
	if err != nil || got != both {
		t.Errorf("got %q (%v)", got, err)
	}
}

func subPathPod(uid, sub string, v v1.Volume) *v1.Pod {
	return withMounts(aPod(uid, v), v1.VolumeMount{Name: v.Name, MountPath: "/m", SubPath: sub})
}

func TestSubPathIsCreatedWithTheVolumesModeAndBound(t *testing.T) {
	m := newMounter(t)
	p := subPathPod("u1", "a/b", empty("e"))
	mustSetUp(t, m, p)
	place := mustMounts(t, m, p)[0].HostPath
	if want := m.PodDir("u1") + "/volume-subpaths/e/c/0"; place != want {
		t.Fatalf("got %s, want %s", place, want)
	}
	write(t, place+"/file", "through the bind")
	inside := m.PodDir("u1") + "/volumes/kubernetes.io~empty-dir/e/a/b"
	mustBe(t, inside+"/file", "through the bind")
	if info, _ := os.Stat(inside); info.Mode().Perm() != 0o777 {
		t.Errorf("got mode %v, want the volume's 0777", info.Mode())
	}
	mustMounts(t, m, p) // a restarted container
	if points, _ := mountsBelow(m.PodDir("u1")); len(points) != 1 {
		t.Errorf("got %v, want one mount", points)
	}
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

func TestSubPathCannotLeaveItsVolume(t *testing.T) {
	m := newMounter(t)
	outside := tempDir(t)
	write(t, outside+"/secret", "not yours")
	for name, plant := range map[string]func(volume string) error{
		"absolute link":            func(v string) error { return os.Symlink(outside, v+"/sub") },
		"relative link":            func(v string) error { return os.Symlink("../../../../../../../../../..", v+"/sub") },
		"link in the middle":       func(v string) error { return os.Symlink("/", v+"/sub") },
		"link to a path of proc":   func(v string) error { return os.Symlink("/proc/self/root", v+"/sub") },
		"loop":                     func(v string) error { return os.Symlink("sub", v+"/sub") },
		"dangling link to outside": func(v string) error { return os.Symlink(outside+"/new", v+"/sub") },
		"dangling link inside":     func(v string) error { return os.Symlink("nothing", v+"/sub") },
	} {
		t.Run(name, func(t *testing.T) {
			volume := mkdir(t, filepath.Join(tempDir(t), "v"))
			if err := plant(volume); err != nil {
				t.Fatal(err)
			}
			for _, sub := range []string{"sub", "sub/deeper"} {
				p := subPathPod("u1", sub, host("h", volume, v1.HostPathDirectory))
				mustSetUp(t, m, p)
				if mounts, err := mountsOf(m, p); err == nil {
					t.Errorf("%s was bound: %+v", sub, mounts)
				}
			}
			if points, _ := mountsBelow(m.PodDir("u1")); len(points) > 0 {
				t.Errorf("mounted: %v", points)
			}
		})
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("something was created outside: %v", entries)
	}
}

func TestSubPathIsTheOpenedFileWhateverItsNameBecomes(t *testing.T) {
	m := newMounter(t)
	outside := tempDir(t)
	volume := mkdir(t, filepath.Join(tempDir(t), "v"))
	mkdir(t, volume+"/sub")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { // a container that swaps its directory for a link, as fast as it can
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(volume+"/sub", volume+"/aside")
			_ = os.Symlink(outside, volume+"/sub")
			_ = os.Remove(volume + "/sub")
			_ = os.Rename(volume+"/aside", volume+"/sub")
		}
	}()
	var out unix.Stat_t
	if err := unix.Stat(outside, &out); err != nil {
		t.Fatal(err)
	}
	p := subPathPod("u1", "sub", host("h", volume, v1.HostPathDirectory))
	mustSetUp(t, m, p)
	for range 300 {
		mounts, err := mountsOf(m, p)
		if err != nil {
			continue // rejected, or briefly missing
		}
		var got unix.Stat_t
		if err := unix.Stat(mounts[0].HostPath, &got); err != nil {
			t.Fatal(err)
		}
		if got.Ino == out.Ino && got.Dev == out.Dev {
			t.Fatal("a directory outside of the volume was bound")
		}
	}
	close(stop)
	<-done
}

func TestSubPathOfAConfigMapsLayoutFollowsLinksInside(t *testing.T) {
	m := newMounter(t)
	volume := mkdir(t, filepath.Join(tempDir(t), "v"))
	write(t, mkdir(t, volume+"/..2026")+"/key", "value")
	for name, to := range map[string]string{"..data": "..2026", "key": "..data/key"} {
		if err := os.Symlink(to, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	p := subPathPod("u1", "key", host("h", volume, v1.HostPathDirectory))
	mustSetUp(t, m, p)
	mustBe(t, mustMounts(t, m, p)[0].HostPath, "value")
}

func TestSubPathThatChangedIsBoundAnew(t *testing.T) {
	m := newMounter(t)
	volume := mkdir(t, filepath.Join(tempDir(t), "v"))
	write(t, mkdir(t, volume+"/sub")+"/file", "old")
	p := subPathPod("u1", "sub", host("h", volume, v1.HostPathDirectory))
	mustSetUp(t, m, p)
	mustBe(t, mustMounts(t, m, p)[0].HostPath+"/file", "old")
	if err := os.RemoveAll(volume + "/sub"); err != nil {
		t.Fatal(err)
	}
	write(t, volume+"/sub", "a file now")
	mustBe(t, mustMounts(t, m, p)[0].HostPath, "a file now")
}

// An expression may have variables with values of Secrets.
func TestAnErrorOfASubPathShowsNoValue(t *testing.T) {
	m, volume := newMounter(t), tempDir(t)
	write(t, volume+"/hunter2", "a file")
	if err := os.Symlink("/etc", volume+"/hunter3"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", volume+"/hunter4"); err != nil {
		t.Fatal(err)
	}
	p := withMounts(aPod("u1", host("h", volume, v1.HostPathDirectory)), v1.VolumeMount{Name: "h", MountPath: "/m", SubPathExpr: "$(PASSWORD)"})
	mustSetUp(t, m, p)
	for _, value := range []string{"hunter2/x", "hunter3", "hunter3/x", "hunter4/x", "/hunter2", "../hunter2", "hunter2\x00", strings.Repeat("hunter2", 100)} {
		_, err := m.Mounts(p, &p.Spec.Containers[0], []string{value})
		mustSay(t, err, `subPathExpr "$(PASSWORD)" of volume "h" for container "c": `)
		if strings.Contains(err.Error(), "hunter") {
			t.Errorf("%q: the error shows the value: %v", value, err)
		}
	}
}

func TestSubPathsAreChecked(t *testing.T) {
	for sub, tc := range map[string]struct{ want, says string }{
		"web/one":   {"web/one", ""},
		"$(A)web":   {"$(A)web", ""},
		"a/":        {"a", ""},
		"":          {"", ""},
		"../../etc": {"", ".."},
		"a/../b":    {"", ".."},
		"..":        {"", ".."},
		"/etc":      {"", "must not be an absolute path"},
		"a\x00b":    {"", "NUL byte"},
	} {
		got, err := checkSubPath(sub)
		if got != tc.want || (err != nil) != (tc.says != "") {
			t.Errorf("%s: got %q (%v), want %q", sub, got, err, tc.want)
		}
		if tc.says != "" {
			mustSay(t, err, tc.says)
		}
	}
}

// A relabel of what is mounted read-only on the host fails, and with it the container.
func TestOnlyWhatIsNotMountedReadOnlyIsRelabelled(t *testing.T) {
	yes, disk := true, mkdir(t, filepath.Join(tempDir(t), "disk"))
	of := &v1.PersistentVolume{}
	of.Name, of.Spec.CSI = "pv", &v1.CSIPersistentVolumeSource{Driver: "x", VolumeHandle: "h"}
	m := newMounter(t, func(o *Options) { o.CSI = &fakeCSI{} },
		withClaims(claimed{"local": localDisk("a", disk), "local-ro": localDisk("b", disk), "driver": of, "driver-ro": of}), newStore(aSecret("key", "a", "1")).into)
	inline := ofCSI("inline-ro")
	inline.CSI.ReadOnly = &yes
	p := aPod("u1", claims("local"), readOnly(claims("local-ro")), claims("driver"), readOnly(claims("driver-ro")), ofCSI("inline"), inline,
		fromSecret("secret", "key"), empty("empty"))
	want := map[string]bool{"local": true, "driver": true, "inline": true, "secret": true, "empty": true}
	mustSetUp(t, m, p)
	all := &p.Spec.InitContainers[0]
	all.VolumeMounts[len(all.VolumeMounts)-1].ReadOnly = true // for the container alone
	mounts, err := m.Mounts(p, all, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range p.Spec.Volumes {
		if got := mounts[i].SELinuxRelabel; got != want[v.Name] {
			t.Errorf("%s: got %v, want %v", v.Name, got, want[v.Name])
		}
	}
}

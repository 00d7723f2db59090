package volumes

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

func TestPodWithoutVolumesGetsADirectoryAndNothingElse(t *testing.T) {
	m := newMounter(t)
	mustSetUp(t, m, aPod("u1"))
	entries, err := os.ReadDir(m.PodDir("u1"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "containers" {
		t.Errorf("got %v (%v), want containers/ only", entries, err)
	}
	if uids, err := m.Pods(); err != nil || !slices.Equal(uids, []pod.UID{"u1"}) {
		t.Errorf("Pods: got %v (%v)", uids, err)
	}
	write(t, m.PodDir("u1")+"/etc-hosts", "127.0.0.1 localhost\n")
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

func TestEmptyDirOnDiskIsWritableForAnyUserWhateverTheUmask(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	m := newMounter(t)
	p := aPod("u1", empty("data"))
	mustSetUp(t, m, p)
	dir := m.PodDir("u1") + "/volumes/kubernetes.io~empty-dir/data"
	info, err := os.Stat(dir)
	if err != nil || info.Mode() != os.ModeDir|0o777 {
		t.Fatalf("got %v (%v), want drwxrwxrwx", info.Mode(), err)
	}
	// A container's chmod and its files outlive another Ensure, as after a restart of podd.
	write(t, dir+"/file", "kept")
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mustSetUp(t, m, p)
	mustBe(t, dir+"/file", "kept")
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
		t.Errorf("Ensure changed the mode back to %v", info.Mode())
	}
}

func TestEmptyDirBelongsToTheFSGroup(t *testing.T) {
	m := newMounter(t)
	group := int64(2000)
	p := aPod("u1", empty("disk"), empty("tmp", memory))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	mustSetUp(t, m, p)
	for _, name := range []string{"disk", "tmp"} {
		info, err := os.Stat(m.PodDir("u1") + "/volumes/kubernetes.io~empty-dir/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if gid := info.Sys().(*syscall.Stat_t).Gid; gid != 2000 || info.Mode()&os.ModeSetgid == 0 || info.Mode().Perm() != 0o777 {
			t.Errorf("%s: got group %d mode %v, want 2000 and 0777 with setgid", name, gid, info.Mode())
		}
	}
}

func TestMemoryEmptyDirIsOneTmpfsHoweverOftenItIsSetUp(t *testing.T) {
	m := newMounter(t)
	p := aPod("u1", empty("tmp", memory))
	for range 3 { // also by a new Mounter, as after a restart
		mustSetUp(t, m, p)
		m.forgetReady()
	}
	points, err := mountsBelow(m.PodDir("u1"))
	if err != nil || len(points) != 1 {
		t.Fatalf("got %v (%v), want one mount", points, err)
	}
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

func TestTmpfsSize(t *testing.T) {
	const Mi = 1 << 20
	limited := func(quantities ...string) *v1.Pod {
		p := aPod("u1")
		p.Spec.Containers = nil
		for _, q := range quantities {
			c := v1.Container{Name: "c"}
			if q != "" {
				c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(q)}
			}
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		return p
	}
	podLevel := limited("", "")
	podLevel.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("96Mi")}}
	for name, c := range map[string]struct {
		pod   *v1.Pod
		limit string
		want  int64
	}{
		"no limit: the node's memory":                   {limited(""), "", 1024 * Mi},
		"sizeLimit":                                     {limited(""), "64Mi", 64 * Mi},
		"sizeLimit above the node's memory":             {limited(""), "4Gi", 1024 * Mi},
		"the pod's memory limit":                        {limited("100Mi", "28Mi"), "", 128 * Mi},
		"sizeLimit above the pod's limit":               {limited("100Mi"), "200Mi", 100 * Mi},
		"one container without limit: the pod has none": {limited("100Mi", ""), "", 1024 * Mi},
		"a limit of the pod itself":                     {podLevel, "", 96 * Mi},
	} {
		t.Run(name, func(t *testing.T) {
			source := &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
			if c.limit != "" {
				q := resource.MustParse(c.limit)
				source.SizeLimit = &q
			}
			if got := (&emptyDir{nodeMemory: 1024 * Mi}).tmpfsSize(c.pod, source); got != c.want {
				t.Errorf("got %d MiB, want %d", got/Mi, c.want/Mi)
			}
		})
	}
}

func TestSizeLimitOfMemoryEmptyDirIsEnforcedByTheKernel(t *testing.T) {
	m := newMounter(t)
	q := resource.MustParse("1Mi")
	mustSetUp(t, m, aPod("u1", empty("tmp", memory, func(s *v1.EmptyDirVolumeSource) { s.SizeLimit = &q })))
	err := os.WriteFile(m.PodDir("u1")+"/volumes/kubernetes.io~empty-dir/tmp/big", make([]byte, 2<<20), 0o600)
	mustSay(t, err, "no space left")
}

func TestHugePagesNeedOneRequestedSize(t *testing.T) {
	requesting := func(sizes ...string) *v1.Pod {
		p := aPod("u1")
		list := v1.ResourceList{}
		for _, s := range sizes {
			list[v1.ResourceName("hugepages-"+s)] = resource.MustParse(s)
		}
		p.Spec.Containers[0].Resources.Requests = list
		return p
	}
	for _, c := range []struct {
		pod    *v1.Pod
		medium v1.StorageMedium
		want   int64
	}{
		{requesting("2Mi"), "HugePages", 2 << 20},
		{requesting("2Mi", "1Gi"), "HugePages-1Gi", 1 << 30},
		{requesting("2Mi", "1Gi"), "HugePages", 0},
		{requesting(), "HugePages", 0},
		{requesting("2Mi"), "HugePages-1Gi", 0},
		{requesting("2Mi"), "HugePagesX", 0},
	} {
		got, err := hugePageSize(c.pod, c.medium)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s: got %d (%v), want %d", c.medium, got, err, c.want)
		}
	}
}

func TestHugePagesAreMounted(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
		t.Skip("this kernel has no huge pages of 2 MiB")
	}
	m := newMounter(t)
	p := aPod("u1", empty("huge", func(s *v1.EmptyDirVolumeSource) { s.Medium = "HugePages-2Mi" }))
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(2000))}
	mustSetUp(t, m, p)
	mustSetUp(t, m, p)
	dir := m.PodDir("u1") + "/volumes/kubernetes.io~empty-dir/huge"
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type != unix.HUGETLBFS_MAGIC || fs.Bsize != 2<<20 {
		t.Errorf("got type %#x, pages of %d (%v)", fs.Type, fs.Bsize, err)
	}
	var root unix.Stat_t
	if err := unix.Stat(dir, &root); err != nil || root.Mode&0o7777 != 0o2775 || root.Gid != 2000 {
		t.Errorf("got mode %o, group %d (%v), want 2775 and the fsGroup", root.Mode&0o7777, root.Gid, err)
	}
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

func TestHostPathTypes(t *testing.T) {
	m := newMounter(t)
	dir := tempDir(t)
	file := filepath.Join(dir, "file")
	write(t, file, "mine")
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	block := filepath.Join(dir, "block")
	if err := unix.Mknod(block, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))); err != nil {
		t.Fatal(err)
	}
	none, pipe, loop := filepath.Join(dir, "none"), filepath.Join(dir, "pipe"), filepath.Join(dir, "loop")
	for _, err := range []error{unix.Mkfifo(pipe, 0o600), os.Symlink("loop", loop), os.Symlink(none, filepath.Join(dir, "dangling"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		path string
		kind v1.HostPathType
		says []string // nil: no error
	}{
		{dir, "", nil},
		{none, "", nil},
		{dir, v1.HostPathDirectory, nil},
		{filepath.Join(dir, "link"), v1.HostPathDirectory, nil},
		{file, v1.HostPathDirectory, []string{file, "is not a directory", "it's a File"}},
		{none, v1.HostPathDirectory, []string{none, "is not a directory", "does not exist"}},
		{file, v1.HostPathFile, nil},
		{dir, v1.HostPathFile, []string{dir, "is not a file", "it's a Directory"}},
		{filepath.Join(dir, "socket"), v1.HostPathSocket, nil},
		{file, v1.HostPathSocket, []string{file, "is not a socket file", "it's a File"}},
		{"/dev/null", v1.HostPathCharDev, nil},
		{file, v1.HostPathCharDev, []string{file, "is not a character device", "it's a File"}},
		{block, v1.HostPathBlockDev, nil},
		{"/dev/null", v1.HostPathBlockDev, []string{"/dev/null", "is not a block device", "it's a CharDevice"}},
		{file, v1.HostPathDirectoryOrCreate, []string{file, "is not a directory"}},
		{dir, v1.HostPathFileOrCreate, []string{dir, "is not a file"}},
		{filepath.Join(dir, "no/parents"), v1.HostPathFileOrCreate, []string{"no/parents", "not the directories above it"}},
		{none, v1.HostPathFile, []string{none, "is not a file", "does not exist"}},
		{none, v1.HostPathSocket, []string{none, "is not a socket file", "does not exist"}},
		{none, v1.HostPathCharDev, []string{none, "is not a character device", "does not exist"}},
		{none, v1.HostPathBlockDev, []string{none, "is not a block device", "does not exist"}},
		{block, v1.HostPathCharDev, []string{block, "is not a character device", "it's a BlockDevice"}},
		{pipe, v1.HostPathFile, []string{pipe, "is not a file", "it is a named pipe"}},
		{pipe, v1.HostPathFileOrCreate, []string{pipe, "is not a file", "it is a named pipe"}},
		{filepath.Join(file, "below"), v1.HostPathDirectory, []string{"below is not a directory", "stat", "not a directory"}},
		{filepath.Join(file, "below"), v1.HostPathSocket, []string{"below is not a socket file", "stat", "not a directory"}},
		{filepath.Join(file, "below"), v1.HostPathDirectoryOrCreate, []string{"below is not a directory", "stat"}},
		{loop, v1.HostPathFile, []string{"loop is not a file", "too many levels"}},
		{filepath.Join(dir, "dangling"), v1.HostPathDirectoryOrCreate, []string{"dangling", "file exists"}},
		{dir, "Folder", []string{"Folder", "not a type of hostPath"}},
		{none, "Folder", []string{"Folder", "not a type of hostPath"}},
	} {
		err := ensure(t, m, aPod("u1", host("v", c.path, c.kind)))
		if len(c.says) == 0 {
			if err != nil {
				t.Errorf("%s as %q: %v", c.path, c.kind, err)
			}
			m.forgetReady()
			continue
		}
		mustSay(t, err, append(c.says, `volume "v"`)...)
		if pod.ReasonOf(err, "") != "FailedMount" {
			t.Errorf("got reason %q, want FailedMount", pod.ReasonOf(err, ""))
		}
	}
	mustBe(t, file, "mine")
}

// Setting up what is set up is not the start of a container, which checks the type
// (TestTheTypeOfAHostPathHoldsAtEachStartOfAContainer).
func TestTheTypeOfAHostPathKeepsNoSetUpPodFromGoingOn(t *testing.T) {
	m := newMounter(t)
	path := mkdir(t, filepath.Join(tempDir(t), "d"))
	p := aPod("u1", host("v", path, v1.HostPathDirectory))
	mustSetUp(t, m, p)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, "a file now")
	mustSetUp(t, m, p)
	mustTearDown(t, m, "u1")
	mustSay(t, ensure(t, m, p), "is not a directory") // its next run
}

func TestHostPathOrCreateUsesTheModesOfTheAPI(t *testing.T) {
	old := syscall.Umask(0o022)
	defer syscall.Umask(old)
	m := newMounter(t)
	dir := tempDir(t)
	for path, c := range map[string]struct {
		kind v1.HostPathType
		want os.FileMode
	}{
		filepath.Join(dir, "a/b"): {v1.HostPathDirectoryOrCreate, os.ModeDir | 0o755},
		filepath.Join(dir, "f"):   {v1.HostPathFileOrCreate, 0o644},
	} {
		mustSetUp(t, m, aPod("u-"+filepath.Base(path), host("v", path, c.kind)))
		if info, err := os.Stat(path); err != nil || info.Mode() != c.want {
			t.Errorf("%s: got %v (%v), want %v", path, info, err, c.want)
		}
	}
}

func TestEveryBadVolumeIsNamedAtOnce(t *testing.T) {
	m := newMounter(t)
	fc := v1.Volume{Name: "share", VolumeSource: v1.VolumeSource{FC: &v1.FCVolumeSource{}}}
	err := ensure(t, m, aPod("u1", fc, host("gone", "/nowhere/at/all", v1.HostPathDirectory), empty("odd", func(s *v1.EmptyDirVolumeSource) { s.Medium = "Paper" })))
	mustSay(t, err, `"share"`, "kind fc", `"gone"`, "/nowhere/at/all", `"odd"`, "Paper")
}

func TestUnsafeNamesAreRejected(t *testing.T) {
	m := newMounter(t)
	for _, uid := range []string{"", ".", "..", "a/b"} {
		if err := ensure(t, m, aPod(uid)); err == nil {
			t.Errorf("Ensure accepted UID %q", uid)
		}
		if err := m.TearDown(t.Context(), pod.UID(uid)); err == nil {
			t.Errorf("TearDown accepted UID %q", uid)
		}
	}
	mustSay(t, ensure(t, m, aPod("u1", empty(".."))), "volume name")
}

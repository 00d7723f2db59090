package usage

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

	"golang.org/x/sys/unix"
)

const all = 1 << 60

func fill(t *testing.T, path string, kib int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x", kib<<10)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func size(t *testing.T, dir string, enough int64) int64 {
	t.Helper()
	got, err := treeSize(t.Context(), dir, enough)
	if err != nil {
		t.Fatal(err)
	}
	return got.Bytes
}

// du runs du, after which the kubelet measures.
func du(t *testing.T, dir string) int64 {
	t.Helper()
	out, err := exec.Command("du", "-sx", "--block-size=1", dir).Output()
	if err != nil {
		t.Skip(err)
	}
	n, err := strconv.ParseInt(strings.Fields(string(out))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheSizeOfATreeIsThatOfDu(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	fill(t, outside+"/much", 1<<10)
	fill(t, dir+"/a/b/file", 100)
	fill(t, dir+"/hidden/.file", 3)
	for i := range 2000 { // more than one batch
		fill(t, fmt.Sprintf("%s/many/%d", dir, i), 1)
	}
	for _, err := range []error{
		os.Link(dir+"/a/b/file", dir+"/again"), os.Link(dir+"/a/b/file", dir+"/a/third"),
		os.Symlink(outside, dir+"/link"), os.Symlink("/", dir+"/a/link"), os.Symlink("a", dir+"/loop"),
		unix.Mkfifo(dir+"/pipe", 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	sparse, err := os.Create(dir + "/sparse")
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	if err := sparse.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	// A file with three names is counted in three parts, each rounded.
	if got, want := size(t, dir, all), du(t, dir); got > want || got < want-3 {
		t.Errorf("got %d, want du's %d", got, want)
	}
}

func TestWhatIsMountedInAVolumeIsNotCounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	dir, outside := t.TempDir(), t.TempDir()
	fill(t, outside+"/much", 4<<10)
	for place, mount := range map[string]func(string) error{
		"bind":  func(at string) error { return unix.Mount(outside, at, "", unix.MS_BIND, "") },
		"tmpfs": func(at string) error { return unix.Mount("tmpfs", at, "tmpfs", 0, "size=8m") },
	} {
		at := dir + "/" + place
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := mount(at); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	fill(t, dir+"/tmpfs/much", 4<<10)
	if got := size(t, dir, all); got > 1<<20 {
		t.Errorf("got %d bytes, want those of the directories only", got)
	}
}

func TestAWalkEndsWhenTheLimitIsExceeded(t *testing.T) {
	dir := t.TempDir()
	for i := range 10 {
		fill(t, fmt.Sprintf("%s/%d", dir, i), 1<<10)
	}
	if got := size(t, dir, 2<<20); got <= 2<<20 || got > 4<<20 {
		t.Errorf("got %d bytes, want little more than the 2 MiB that are enough", got)
	}
}

func TestAMissingDirectoryUsesNothing(t *testing.T) {
	if got := size(t, t.TempDir()+"/none", all); got != 0 {
		t.Errorf("got %d", got)
	}
	fill(t, t.TempDir()+"/x", 1)
	link := t.TempDir() + "/link"
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	if _, err := treeSize(t.Context(), link, all); err == nil {
		t.Error("a volume that is a link was followed")
	}
}

// It is still measured completely.
func TestADeepTreeNeedsFewDescriptors(t *testing.T) {
	dir := t.TempDir()
	const depth = 1000
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { unix.Close(fd) }()
	for range depth {
		if err := unix.Mkdirat(fd, "deeper", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "deeper", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		fd = next
	}
	file, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(file)
	if _, err := unix.Write(file, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = uint64(len(open) + 120)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	got, err := treeSize(t.Context(), dir, all)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if want := du(t, dir); err != nil || got.Bytes != want {
		t.Errorf("got %+v (%v), want du's %d", got, err, want)
	}
}

func TestAWalkEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir+"/a", 1)
	ctx, stop := context.WithCancelCause(t.Context())
	gone := errors.New("the pod is gone")
	stop(gone)
	if _, err := treeSize(ctx, dir, all); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

// TestATreeThatIsCutSaysSo: with more directories at the depth than are deferred.
func TestATreeThatIsCutSaysSo(t *testing.T) {
	const room = 50
	dir := t.TempDir()
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	deep := strings.Repeat("d/", maxDepth)
	if err := at.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	low, err := at.OpenRoot(deep)
	if err != nil {
		t.Fatal(err)
	}
	defer low.Close()
	for i := range room {
		if err := low.Mkdir(strconv.Itoa(i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if used, err := treeSizeWithin(t.Context(), dir, unbounded, room); err != nil || used.Inodes != 1+maxDepth+room {
		t.Errorf("as many as can be counted: got %+v, %v", used, err)
	}
	if err := low.Mkdir("more", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := treeSizeWithin(t.Context(), dir, unbounded, room); !errors.Is(err, errIncomplete) {
		t.Errorf("one more: got %v, want %v", err, errIncomplete)
	}
	if _, err := treeSizeWithin(t.Context(), dir, 1, room); err != nil {
		t.Errorf("one more, and the limit is exceeded before: got %v", err)
	}
}

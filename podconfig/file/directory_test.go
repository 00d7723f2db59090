package file

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestADirectoryThatIsMissingAppearsLater(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "etc", "podd", "manifests")
	st := watch(t, Config{Path: dir})
	if st.show() != "" {
		t.Errorf("got %q, want a complete, empty set", st.show())
	}
	st.problem("the manifest directory does not exist")
	st.do(os.MkdirAll(dir, 0o755))
	for len(st.last.Problems) > 0 {
		st.next()
	}
	st.write("a.yaml", podYAML("a", "i"))
	st.until("a=i")
}

// A directory that was made between podd's look for it and its watch on the one
// above was seen at the next rescan only.
func TestADirectoryThatAppearsDuringTheSearchIsFound(t *testing.T) {
	for i := range 100 {
		top := t.TempDir()
		dir := filepath.Join(top, "a", "b", "c", "d")
		made := make(chan error, 1)
		go func() {
			time.Sleep(time.Duration(i) * 5 * time.Microsecond) // another moment of the look each time
			made <- os.MkdirAll(dir, 0o755)
		}()
		st := watch(t, Config{Path: dir})
		st.do(<-made)
		for len(st.last.Problems) > 0 {
			st.next()
		}
		st.write("a.yaml", podYAML("a", "i"))
		st.until("a=i")
		st.end()
	}
}

func TestADirectoryReplacedByRenameStopsNothing(t *testing.T) {
	top := t.TempDir()
	dir, other := filepath.Join(top, "m"), filepath.Join(top, "new")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(other, 0o755)); err != nil {
		t.Fatal(err)
	}
	st := watch(t, Config{Path: dir})
	st.write("a.yaml", podYAML("a", "i"))
	st.until("a=i")
	st.do(os.WriteFile(filepath.Join(other, "a.yaml"), []byte(podYAML("a", "i")), 0o644))
	st.do(os.WriteFile(filepath.Join(other, "b.yaml"), []byte(podYAML("b", "i")), 0o644))
	began := time.Now()
	st.do(os.Rename(dir, filepath.Join(top, "old")))
	if p := st.problem("the manifest directory does not exist"); !p.LastGoodInUse || st.show() != "a=i" {
		t.Fatalf("got %+v and the pods %q, want the pod kept while the directory is away", p, st.show())
	}
	st.do(os.Rename(other, dir))
	swift := time.Since(began) < dirGoneDelay // else podd rightly takes the directory for gone
	for st.show() != "a=i b=i" {
		if swift && st.show() != "a=i" {
			t.Fatalf("got %q: a pod was stopped while its directory was replaced", st.show())
		}
		st.next()
	}
	st.write("c.yaml", podYAML("c", "i"))
	st.until("a=i b=i c=i")
	st.do(os.RemoveAll(dir))
	st.until("")
}

func TestASymlinkedDirectory(t *testing.T) {
	top := t.TempDir()
	link := filepath.Join(top, "m")
	for _, version := range []string{"1", "2"} {
		real := filepath.Join(top, "v"+version)
		if err := errors.Join(os.Mkdir(real, 0o755), os.WriteFile(filepath.Join(real, "a.yaml"), []byte(podYAML("a", "i:"+version)), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("v1", link); err != nil {
		t.Fatal(err)
	}
	st := watch(t, Config{Path: link})
	st.until("a=i:1")
	st.do(os.Symlink("v2", link+".new"))
	st.do(os.Rename(link+".new", link))
	st.until("a=i:2")
	st.write("b.yaml", podYAML("b", "i"))
	st.until("a=i:2 b=i")
}

// As the kubelet mounts a ConfigMap: names link into ..data, which is swapped.
func TestAConfigMapMount(t *testing.T) {
	dir := t.TempDir()
	version := func(n string) {
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "..v"+n), 0o755),
			os.WriteFile(filepath.Join(dir, "..v"+n, "a.yaml"), []byte(podYAML("a", "i:"+n)), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	version("1")
	version("2")
	if err := errors.Join(os.Symlink("..v1", filepath.Join(dir, "..data")), os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml"))); err != nil {
		t.Fatal(err)
	}
	st := watch(t, Config{Path: dir})
	st.until("a=i:1")
	st.do(os.Symlink("..v2", filepath.Join(dir, "..data_tmp")))
	st.do(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	st.until("a=i:2")
}

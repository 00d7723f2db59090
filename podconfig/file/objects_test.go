package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podd/podconfig/manifest"
)

func configMapYAML(name, value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {v: " + value + "}\n"
}

func secretYAML(name, value string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + "}\nstringData: {v: " + value + "}\n"
}

func manifestOf(documents ...string) string { return strings.Join(documents, "---\n") }

// objects are shown as "name=value", sorted.
func (st *fixture) objects() string {
	var parts []string
	for _, o := range st.last.Objects {
		if o.Secret != nil {
			parts = append(parts, o.Secret.Name+"="+string(o.Secret.Data["v"]))
		} else {
			parts = append(parts, o.ConfigMap.Name+"="+o.ConfigMap.Data["v"])
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func (st *fixture) untilObjects(want string) {
	st.t.Helper()
	for st.objects() != want {
		select {
		case st.last = <-st.out:
		case <-time.After(patience):
			st.t.Fatalf("got %q with problems %v, want %q", st.objects(), st.last.Problems, want)
		}
	}
}

func TestObjectsComeChangeAndGo(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	st.moveIn("a.yaml", manifestOf(configMapYAML("a", "x"), podYAML("web", "i")))
	st.untilObjects("a=x")
	if st.show() != "web=i" || len(st.last.Problems) > 0 {
		t.Errorf("got %q, %v", st.show(), st.last.Problems)
	}
	uid, had := st.last.Pods[0].UID(), st.last.Objects[0]
	st.moveIn("b.yaml", secretYAML("b", "w"))
	st.untilObjects("a=x b=w")
	if st.last.Objects[0] != had {
		t.Error("an object that did not change is another pointer")
	}
	st.moveIn("a.yaml", manifestOf("# moved\n"+configMapYAML("a", "z"), configMapYAML("c", "k"), podYAML("web", "i")))
	st.untilObjects("a=z b=w c=k")
	if st.last.Pods[0].UID() != uid {
		t.Error("the pod beside an object that was edited is another one")
	}
	st.moveIn("a.yaml", manifestOf(configMapYAML("a", "z"), podYAML("web", "i"))) // a document less
	st.untilObjects("a=z b=w")
	st.do(os.Remove(filepath.Join(st.dir, "a.yaml")))
	st.untilObjects("b=w")
	st.moveIn("b.yaml", "# nothing is wrong with a file without a pod\n"+secretYAML("b", "w"))
	st.do(os.Remove(filepath.Join(st.dir, "b.yaml")))
	st.untilObjects("")
	if len(st.last.Problems) > 0 {
		t.Errorf("got %v", st.last.Problems)
	}
}

func TestABrokenEditOfAnObjectKeepsItsLastGoodVersion(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	st.moveIn("a.yaml", manifestOf(configMapYAML("a", "x"), secretYAML("b", "geheim"), podYAML("web", "i:1")))
	st.untilObjects("a=x b=geheim")
	st.moveIn("a.yaml", manifestOf(configMapYAML("a", "1"), secretYAML("b", "geheim2"), podYAML("web", "i:2")))
	st.untilObjects("a=x b=geheim2")
	if p := st.problem("got the number 1"); !p.LastGoodInUse || p.Object != "ConfigMap default/a" || st.show() != "web=i:2" {
		t.Errorf("got %+v and pods %q, want the object kept and the pod as written", p, st.show())
	}
	st.moveIn("a.yaml", manifestOf(configMapYAML("a", "w"), strings.Replace(podYAML("web", "i:3"), "image", "imagee", 1)))
	st.untilObjects("a=w")
	if p := st.problem("imagee"); !p.LastGoodInUse || st.show() != "web=i:2" {
		t.Errorf("got %+v and pods %q, want the pod kept, and the objects as written", p, st.show())
	}
	st.moveIn("a.yaml", "broken: [")
	if p := st.problem("bracket"); !p.LastGoodInUse || st.objects() != "a=w" || st.show() != "web=i:2" {
		t.Errorf("got %+v, %q, %q", p, st.objects(), st.show())
	}
}

// inMemory is a directory on a tmpfs.
func inMemory(t *testing.T) string {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Skip("/dev/shm is no tmpfs here")
	}
	dir, err := os.MkdirTemp("/dev/shm", "podd-file-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "manifests")
}

func TestAManifestWithASecretIsOnNoDisk(t *testing.T) {
	dir, disk, memory := t.TempDir(), filepath.Join(t.TempDir(), "manifests"), inMemory(t)
	cfg := Config{Path: dir, StateDir: disk, VolatileDir: memory}
	files := func(dir string) int {
		all, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range all {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil || dir == disk && strings.Contains(string(text), "geheim") {
				t.Errorf("%s: %v\n%s", e.Name(), err, text)
			}
		}
		return len(all)
	}
	good := manifestOf(podYAML("web", "i:1"), secretYAML("b", "geheim"))
	st := watch(t, cfg)
	st.moveIn("a.yaml", podYAML("web", "i:1"))
	st.until("web=i:1")
	st.end()
	if files(disk) != 1 || files(memory) != 0 {
		t.Errorf("without a Secret: %d on disk, %d in memory", files(disk), files(memory))
	}
	st = watch(t, cfg)
	st.moveIn("a.yaml", good)
	st.untilObjects("b=geheim")
	st.end()
	if files(disk) != 0 || files(memory) != 1 {
		t.Errorf("it gained one: %d on disk, %d in memory", files(disk), files(memory))
	}
	st.write("a.yaml", "broken: [")
	st = watch(t, cfg) // podd starts again
	if st.show() != "web=i:1" || st.objects() != "b=geheim" {
		t.Errorf("got %q, %q, want the last good version", st.show(), st.objects())
	}
	st.end()
	st.do(os.RemoveAll(memory)) // a reboot
	st = watch(t, cfg)
	if st.show() != "" || st.objects() != "" {
		t.Errorf("got %q, %q, want nothing after a reboot", st.show(), st.objects())
	}
}

// An earlier podd did not read Secrets, and kept what it did not read.
func TestASecretThatAnOlderPoddLeftOnDiskIsRemoved(t *testing.T) {
	dir, disk, memory := t.TempDir(), filepath.Join(t.TempDir(), "manifests"), inMemory(t)
	path := filepath.Join(dir, "a.yaml")
	old := New(Config{Path: dir, StateDir: disk})
	old.lastGood.Put(path, []byte(secretYAML("b", "geheim")), false)
	old.save()
	if err := os.WriteFile(path, []byte("broken: ["), 0o644); err != nil {
		t.Fatal(err)
	}
	st := watch(t, Config{Path: dir, StateDir: disk, VolatileDir: memory})
	st.untilObjects("b=geheim")
	st.end()
	onDisk, _ := os.ReadDir(disk)
	kept, _ := os.ReadDir(memory)
	if len(onDisk) != 0 || len(kept) != 1 {
		t.Errorf("got %d on disk, %d in memory", len(onDisk), len(kept))
	}
}

// TestAStormOfEditsIsReadNowAndThen has a file replaced as fast as can be: the
// last version is told, the pod beside the object stays the same, and the readings
// have their distance.
func TestAStormOfEditsIsReadNowAndThen(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	version := func(i int) string { return manifestOf(configMapYAML("a", fmt.Sprintf("v%d", i)), podYAML("web", "i")) }
	st.moveIn("a.yaml", version(0))
	st.untilObjects("a=v0")
	web := st.last.Pods[0]
	const edits = 2000
	began, written := time.Now(), make(chan error, 1)
	go func() {
		tmp, errs := filepath.Join(st.dir, ".tmp"), []error{}
		for i := range edits {
			errs = append(errs, os.WriteFile(tmp, []byte(version(i+1)), 0o644), os.Rename(tmp, filepath.Join(st.dir, "a.yaml")))
		}
		written <- errors.Join(errs...)
	}()
	told := 0
	for last := fmt.Sprintf("a=v%d", edits); st.objects() != last; told++ {
		st.next()
		if len(st.last.Pods) != 1 || st.last.Pods[0] != web || len(st.last.Problems) > 0 {
			t.Fatalf("got %v, %v, want the pod as it is", st.last.Pods, st.last.Problems)
		}
	}
	st.do(<-written)
	if most := maxRapidReads + 2 + int(time.Since(began)/rapidReadDelay); told > most {
		t.Errorf("%d of %d edits were told within %v, want at most %d", told, edits, time.Since(began), most)
	}
}

func TestObjectsOfAllFilesAreBounded(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	many := func(prefix string, n int) string {
		var all []string
		for i := range n {
			all = append(all, configMapYAML(fmt.Sprintf("%s%d", prefix, i), "x"))
		}
		return manifestOf(all...)
	}
	const half = manifest.MaxObjects / 2
	st.moveIn("a.yaml", many("a", half))
	st.moveIn("b.yaml", many("b", half+1))
	p := st.problem("the file has 1001 ConfigMaps, Secrets and other objects")
	if len(st.last.Objects) != half || p.Origin != filepath.Join(st.dir, "b.yaml") {
		t.Errorf("got %d objects, %v", len(st.last.Objects), p)
	}
	st.do(os.Remove(filepath.Join(st.dir, "a.yaml")))
	for len(st.last.Objects) != 0 {
		st.next()
	}
}

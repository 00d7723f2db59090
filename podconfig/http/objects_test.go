package http

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	settings = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {v: x}\n"
	password = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: b}\nstringData: {v: geheim}\n"
)

func (st *station) objects() string {
	var parts []string
	for _, o := range st.last.Objects {
		if o.Secret != nil {
			parts = append(parts, o.Key().Name+"="+string(o.Secret.Data["v"]))
		} else {
			parts = append(parts, o.Key().Name+"="+o.ConfigMap.Data["v"])
		}
	}
	return strings.Join(parts, " ")
}

func (st *station) untilObjects(pods, objects, problem string) {
	st.t.Helper()
	for st.until(pods, problem); st.objects() != objects; {
		select {
		case st.last = <-st.out:
		case <-time.After(time.Minute):
			st.t.Fatalf("got %q, %v, want %q", st.objects(), st.last.Problems, objects)
		}
	}
}

func TestObjectsOfAnAnswerComeChangeAndGo(t *testing.T) {
	st := serve(t, text(podYAML("a", "i")+settings+password), nil)
	st.untilObjects("a=i", "a=x b=geheim", "")
	web, a, b := st.last.Pods[0], st.last.Objects[0], st.last.Objects[1]
	st.set(text(podYAML("a", "i") + strings.Replace(settings, "v: x", "v: w", 1) + password))
	st.untilObjects("a=i", "a=w b=geheim", "")
	if st.last.Pods[0] != web || st.last.Objects[0] == a || st.last.Objects[1] != b {
		t.Error("want the changed object new, and all else as it was")
	}
	st.set(text(podYAML("a", "i") + strings.Replace(settings, "v: x", "v: 1", 1) + password))
	st.untilObjects("a=i", "b=geheim a=w", "got the number 1")
	if p := st.last.Problems[0]; !p.LastGoodInUse || p.Object != "ConfigMap default/a" || st.last.Pods[0] != web {
		t.Errorf("got %+v", p)
	}
	st.set(text(settings)) // an answer without a pod is one
	st.untilObjects("", "a=x", "")
}

func TestAnAnswerWithASecretIsOnNoDisk(t *testing.T) {
	const shm = "/dev/shm"
	var fs unix.Statfs_t
	if err := unix.Statfs(shm, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Skipf("%s is no tmpfs here", shm)
	}
	memory, err := os.MkdirTemp(shm, "podd-http-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(memory) })
	st := newStation(t, text(podYAML("a", "i")+password))
	st.cfg.StateDir, st.cfg.VolatileDir = filepath.Join(t.TempDir(), "kept"), memory
	st.run()
	st.untilObjects("a=i", "b=geheim", "")
	st.asked.Store(0)
	for st.asked.Load() < 2 { // by then the answer is kept
		time.Sleep(time.Millisecond)
	}
	kept, err := os.ReadDir(memory)
	if onDisk, _ := os.ReadDir(st.cfg.StateDir); err != nil || len(onDisk) != 0 || len(kept) != 1 {
		t.Errorf("got %v on disk, %v in memory, %v", onDisk, kept, err)
	}
	st.set(text("<html>maintenance</html>"))
	st.run() // podd starts again
	st.untilObjects("a=i", "b=geheim", "not a Pod")
}

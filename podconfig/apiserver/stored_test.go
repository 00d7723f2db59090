package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podd/internal/checkpoint"
	"podd/internal/pod"
	"podd/podconfig"
	"podd/podconfig/apiserver"
)

// life is one life of a Source that stores its pods.
type life struct {
	t    *testing.T
	say  script
	out  chan podconfig.Snapshot
	stop func()
}

func begin(t *testing.T, edit func(*apiserver.Config)) *life {
	l := &life{t: t, say: make(script), out: make(chan podconfig.Snapshot)}
	cfg := apiserver.Config{Lister: l.say, NodeName: "node0", Server: "https://example"}
	edit(&cfg)
	s := apiserver.New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx, l.out) }()
	l.stop = func() { cancel(); <-done }
	return l
}

// next is the next Snapshot, and after how long it came.
func (l *life) next() (podconfig.Snapshot, time.Duration) {
	l.t.Helper()
	began := time.Now()
	select {
	case snap := <-l.out:
		return snap, time.Since(began)
	case <-time.After(time.Hour):
		l.t.Fatal("no snapshot within an hour")
		return podconfig.Snapshot{}, 0
	}
}

func (l *life) first() podconfig.Snapshot {
	snap, _ := l.next()
	return snap
}

// onNode is a pod as an apiserver has it.
func onNode(name, version string) *v1.Pod {
	p := bound(name, version)
	p.UID = pod.UID("0a-" + name)
	p.CreationTimestamp = metav1.Unix(1_700_000_000, 0)
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	p.Spec = v1.PodSpec{NodeName: "node0", Containers: []v1.Container{{Name: "main", Image: "busybox", Env: []v1.EnvVar{{Name: "A", Value: "<&>\u2028"}}}}}
	p.Status.Phase = v1.PodRunning
	return p
}

// store runs a Source until it has stored these pods.
func store(t *testing.T, dir string, pods ...*v1.Pod) {
	t.Helper()
	l := begin(t, func(c *apiserver.Config) { c.StateDir = dir })
	l.say.pods(pods...)
	l.first()
	synctest.Wait()
	l.stop()
}

func names(snap podconfig.Snapshot) (names []string) {
	for _, d := range snap.Pods {
		names = append(names, d.Pod.Name)
	}
	return names
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestASourceWithoutItsApiserverHasTheStoredPodsAfterAWhile(t *testing.T) {
	refused := apierrors.NewUnauthorized("expired")
	away := apierrors.NewServiceUnavailable("starting")
	for _, c := range []struct {
		what string
		says []error // at once
		want []string
	}{
		{"it does not answer at all", nil, []string{"a"}},
		{"it is away", []error{away}, []string{"a"}},
		{"it refused at first", []error{refused, away}, []string{"a"}},
		{"it refuses", []error{refused}, nil},
		{"it forbids", []error{apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "cluster", "pods")
				ending, over := onNode("ending", "2"), onNode("over", "3")
				now := metav1.Now()
				ending.DeletionTimestamp, over.Status.Phase = &now, v1.PodSucceeded
				store(t, dir, onNode("a", "1"), ending, over, mirror(onNode("shown", "4")))

				l := begin(t, func(cfg *apiserver.Config) { cfg.StateDir = dir })
				defer l.stop()
				for _, err := range c.says {
					l.say <- func(set func([]*v1.Pod, error)) { set(nil, err) }
					if snap := l.first(); !snap.Incomplete || len(snap.Problems) != 1 {
						t.Errorf("before the wait: got %+v", snap)
					}
				}
				snap, after := l.next()
				if got := names(snap); !slices.Equal(got, c.want) || after != 10*time.Second {
					t.Fatalf("got %q after %v, want %q after 10s", got, after, c.want)
				}
				if c.want == nil {
					if snap.Provisional || !snap.Incomplete {
						t.Errorf("got %+v", snap)
					}
					return
				}
				d := snap.Pods[0]
				if !snap.Provisional || snap.Incomplete || len(snap.Problems) != 1 || !snap.Problems[0].LastGoodInUse {
					t.Errorf("got %+v", snap)
				}
				if d.UID() != "0a-a" || d.Seen.IsZero() || time.Since(d.Seen) != after || d.Source != pod.SourceAPIServer || !pod.FromCluster(d.Pod) || d.Pod.ManagedFields != nil {
					t.Errorf("got %+v", d)
				}
				l.say.pods(onNode("a", "1"), onNode("b", "9"))
				whole := l.first()
				if whole.Provisional || whole.Incomplete || len(whole.Problems) != 0 || !slices.Equal(names(whole), []string{"a", "b"}) {
					t.Errorf("it is back: got %+v", whole)
				}
				if whole.Pods[0] != d {
					t.Error("a pod that did not change is another one")
				}
			})
		})
	}
}

func TestOnlyWhatTheApiserverHasStaysStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "pods")
		l := begin(t, func(c *apiserver.Config) { c.StateDir = dir })
		defer l.stop()
		say := func(pods ...*v1.Pod) {
			l.say.pods(pods...)
			l.first()
			time.Sleep(2 * time.Second)
		}
		over := onNode("b", "5")
		over.Status.Phase = v1.PodFailed
		over.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main"}}
		for _, c := range []struct {
			pods []*v1.Pod
			want []string
		}{
			{[]*v1.Pod{onNode("a", "1"), onNode("b", "2")}, []string{"0a-a.json", "0a-b.json"}},
			{[]*v1.Pod{onNode("a", "1"), over}, []string{"0a-a.json"}},
			{[]*v1.Pod{onNode("c", "6")}, []string{"0a-c.json"}},
			{nil, nil},
		} {
			say(c.pods...)
			if got := files(t, dir); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		}
		say(onNode("a", "7"))
		if info, err := os.Stat(filepath.Join(dir, "0a-a.json")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got %v, %v, want mode 0600", info.Mode(), err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("got %v, %v, want mode 0700", info.Mode(), err)
		}
		// What podd itself writes of a status is no reason to write to a disk.
		before, _ := os.Stat(filepath.Join(dir, "0a-a.json"))
		own := onNode("a", "8")
		own.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", Ready: true}}
		say(own)
		if after, _ := os.Stat(filepath.Join(dir, "0a-a.json")); !os.SameFile(before, after) {
			t.Error("a status was stored")
		}
		changed := onNode("a", "9")
		changed.Labels = map[string]string{"tier": "front"}
		say(changed)
		if text, err := os.ReadFile(filepath.Join(dir, "0a-a.json")); err != nil || !bytes.Contains(text, []byte(`"tier":"front"`)) {
			t.Errorf("got %s, %v", text, err)
		}
	})
}

func TestPodsAreStoredOnceThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "pods")
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // as good as a full disk
			t.Fatal(err)
		}
		l := begin(t, func(c *apiserver.Config) { c.StateDir = dir })
		defer l.stop()
		l.say.pods(onNode("a", "1"))
		l.first()
		time.Sleep(10 * time.Second)
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if got := files(t, dir); !slices.Equal(got, []string{"0a-a.json"}) {
			t.Errorf("got %q", got)
		}
	})
}

// edited returns a stored file with the pod changed and its checksum right: somebody's
// who means it.
func edited(t *testing.T, text []byte, edit func(p map[string]any)) []byte {
	t.Helper()
	var r map[string]json.RawMessage
	var p map[string]any
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(r["pod"], &p); err != nil {
		t.Fatal(err)
	}
	edit(p)
	r["pod"], _ = json.Marshal(p)
	r["sum"], _ = json.Marshal(checkpoint.Sum(r["pod"]))
	out, _ := json.Marshal(r)
	return out
}

func TestADamagedStoredPodIsSkippedAndNamed(t *testing.T) {
	field := func(path string, value any) func(*testing.T, string, []byte) {
		return func(t *testing.T, file string, text []byte) {
			write(t, file, edited(t, text, func(p map[string]any) {
				words := strings.Split(path, ".")
				for _, w := range words[:len(words)-1] {
					p = p[w].(map[string]any)
				}
				p[words[len(words)-1]] = value
			}))
		}
	}
	container := func(name string) []any { return []any{map[string]any{"name": name, "image": "x"}} }
	for what, c := range map[string]struct {
		damage func(t *testing.T, file string, text []byte)
		says   string // "" for a file that is only ignored
	}{
		"empty": {func(t *testing.T, f string, _ []byte) { write(t, f, nil) }, "decoded"},
		"half":  {func(t *testing.T, f string, b []byte) { write(t, f, b[:len(b)/2]) }, "decoded"},
		"another letter": {func(t *testing.T, f string, b []byte) {
			write(t, f, bytes.Replace(b, []byte("busybox"), []byte("busyb0x"), 1))
		}, "checksum"},
		"a newer format": {func(t *testing.T, f string, b []byte) {
			write(t, f, bytes.Replace(b, []byte(`"version":1`), []byte(`"version":7`), 1))
		}, "version 7"},
		"too long":    {func(t *testing.T, f string, b []byte) { write(t, f, append(b, bytes.Repeat([]byte(" "), 5<<20)...)) }, "limit"},
		"a directory": {func(t *testing.T, f string, _ []byte) { must(t, os.Remove(f), os.Mkdir(f, 0o700)) }, "regular"},
		"a link": {func(t *testing.T, f string, b []byte) {
			write(t, f+".x", b)
			must(t, os.Remove(f), os.Symlink(f+".x", f))
		}, "too many levels"},
		"for all to write":  {func(t *testing.T, f string, _ []byte) { must(t, os.Chmod(f, 0o666)) }, "others"},
		"another's UID":     {field("metadata.uid", "0a-b"), "UID"},
		"a path as its UID": {field("metadata.uid", "../../etc"), "UID"},
		"a path as name":    {field("metadata.name", "../web"), "name of a pod"},
		"a path as space":   {field("metadata.namespace", "a/b"), "namespace"},
		"no containers":     {field("spec.containers", nil), "no containers"},
		"a container's":     {field("spec.containers", container("../x")), "name of a container"},
		"an init one's":     {field("spec.initContainers", container("/")), "name of a container"},
		"a volume's":        {field("spec.volumes", []any{map[string]any{"name": ".."}}), "name of a volume"},
		"another type":      {field("spec.containers", "none"), "decoded"},
		"another node":      {field("spec.nodeName", "node1"), ""},
		"another cluster": {func(t *testing.T, f string, b []byte) {
			write(t, f, bytes.Replace(b, []byte("https://example"), []byte("https://another"), 1))
		}, ""},
		"a write cut short": {func(t *testing.T, f string, b []byte) { write(t, f+".new", b[:9]); must(t, os.Remove(f)) }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				store(t, dir, onNode("a", "1"), onNode("good", "2"))
				file := filepath.Join(dir, "0a-a.json")
				text, err := os.ReadFile(file)
				must(t, err)
				c.damage(t, file, text)
				l := begin(t, func(cfg *apiserver.Config) { cfg.StateDir = dir })
				defer l.stop()
				snap := l.first()
				if got := names(snap); !slices.Equal(got, []string{"good"}) {
					t.Errorf("got %q, want the other pod alone", got)
				}
				named := slices.ContainsFunc(snap.Problems, func(p pod.Problem) bool {
					return p.Origin == file && c.says != "" && strings.Contains(p.Message, c.says) && !p.Since.IsZero()
				})
				if want := c.says != ""; named != want || len(snap.Problems) > 2 {
					t.Errorf("got problems %+v, want one of %s: %t", snap.Problems, file, want)
				}
				l.say.pods(onNode("good", "2"))
				if snap := l.first(); len(snap.Problems) > 0 {
					t.Errorf("the apiserver has answered: got %+v", snap.Problems)
				}
				synctest.Wait()
				if got := files(t, dir); !slices.Equal(got, []string{"0a-good.json"}) {
					t.Errorf("left: %q", got)
				}
			})
		})
	}
}

func TestManyDamagedFilesAreFewProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for i := range 5000 {
			write(t, filepath.Join(dir, fmt.Sprintf("%d.json", i)), []byte("x"))
		}
		l := begin(t, func(cfg *apiserver.Config) { cfg.StateDir = dir })
		defer l.stop()
		if snap := l.first(); len(snap.Problems) > 30 || len(snap.Pods) > 0 || !snap.Provisional {
			t.Errorf("got %d problems, %d pods", len(snap.Problems), len(snap.Pods))
		}
	})
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	must(t, os.WriteFile(path, text, 0o600))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

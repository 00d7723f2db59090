package podconfig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/podconfig"
)

func configMap(source pod.Source, origin string, line int, name, value string) *pod.Object {
	return &pod.Object{Source: source, Origin: origin, Line: line,
		ConfigMap: &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"v": value}}}
}

func secret(source pod.Source, origin, name string) *pod.Object {
	return &pod.Object{Source: source, Origin: origin, Secret: &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}}
}

// sink tells what it was told in the order of the pods' updates.
type sink struct{ told chan string }

func (s sink) Replace(all []*pod.Object) {
	var names []string
	for _, o := range all {
		name := o.Key().Kind + " " + o.Key().Name
		if o.ConfigMap != nil {
			name += "=" + o.ConfigMap.Data["v"]
		}
		names = append(names, name)
	}
	s.told <- "objects " + strings.Join(names, ",")
}

func startWithObjects(t *testing.T, sources ...podconfig.Source) *world {
	told := make(chan string, 1000)
	w := startWith(t, podconfig.Config{Sources: sources, Objects: sink{told}})
	w.told, w.applies = told, time.Millisecond
	return w.read()
}

func TestObjectsAreReplacedBeforeThePodsThatCameWithThemAndAfterThoseThatWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newScript(pod.SourceFile)
		w := startWithObjects(t, f)
		w.expect()
		a, web := configMap("file", "a.yaml", 1, "a", "1"), desired("file", "a.yaml", "web", "1")
		f.say <- podconfig.Snapshot{Pods: []*pod.Desired{web}, Objects: []*pod.Object{a}}
		w.expect("objects ConfigMap a=1", "file ADD web=1")
		f.say <- podconfig.Snapshot{Pods: []*pod.Desired{web}, Objects: []*pod.Object{configMap("file", "a.yaml", 1, "a", "2")}}
		w.expect("objects ConfigMap a=2") // and nothing of the pod
		f.say <- podconfig.Snapshot{Objects: []*pod.Object{secret("file", "a.yaml", "a")}}
		w.expect("file REMOVE web=1", "objects Secret a")
		f.say <- podconfig.Snapshot{Pods: []*pod.Desired{web}, Objects: []*pod.Object{a}}
		w.expect("objects ConfigMap a=1", "file ADD web=1")
		edited := desired("file", "a.yaml", "web", "2")
		f.say <- podconfig.Snapshot{Pods: []*pod.Desired{edited}, Objects: []*pod.Object{configMap("file", "a.yaml", 1, "a", "3")}}
		w.expect("file REMOVE web=1", "objects ConfigMap a=3", "file ADD web=2")
		f.say <- podconfig.Snapshot{Objects: []*pod.Object{secret("file", "a.yaml", "a")}}
		w.expect("file REMOVE web=2", "objects Secret a")
		f.say <- podconfig.Snapshot{}
		w.expect("objects ")
	})
}

func TestObjectsThatDidNotChangeAreNotReplacedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newScript(pod.SourceFile)
		w := startWithObjects(t, f)
		a := configMap("file", "a.yaml", 1, "a", "1")
		f.say <- podconfig.Snapshot{Objects: []*pod.Object{a}}
		w.expect("objects ConfigMap a=1", "file ADD ")
		f.say <- podconfig.Snapshot{Pods: []*pod.Desired{desired("file", "b.yaml", "web", "1")}, Objects: []*pod.Object{a}}
		w.expect("file ADD web=1")
	})
}

func TestASourceThatIsSilentOrIncompleteLeavesItsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := newScript(pod.SourceFile), newScript(pod.SourceHTTP)
		w := startWithObjects(t, f, h)
		h.say <- podconfig.Snapshot{Incomplete: true}
		w.expect()
		h.say <- podconfig.Snapshot{Objects: []*pod.Object{configMap("http", "u", 1, "h", "1")}}
		w.expect("objects ConfigMap h=1", "http ADD ")
		h.say <- podconfig.Snapshot{Incomplete: true}
		w.expect()
		f.say <- podconfig.Snapshot{Objects: []*pod.Object{configMap("file", "a.yaml", 1, "f", "1")}}
		w.expect("objects ConfigMap f=1,ConfigMap h=1", "file ADD ")
	})
}

func TestTheSameObjectInTwoPlacesIsAProblemAndTheHolderKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := newScript(pod.SourceFile), newScript(pod.SourceHTTP)
		w := startWithObjects(t, f, h)
		old, beside := configMap("http", "u", 7, "a", "http"), secret("file", "a.yaml", "a")
		h.say <- podconfig.Snapshot{Objects: []*pod.Object{old}}
		w.expect("objects ConfigMap a=http", "http ADD ")
		f.say <- podconfig.Snapshot{Objects: []*pod.Object{configMap("file", "a.yaml", 3, "a", "file"), beside}}
		w.expect("objects Secret a,ConfigMap a=http", "file ADD ")
		problems := w.conf.Problems()
		if want := "a.yaml:3: metadata.name: the ConfigMap default/a is defined twice; the one at u:7 has the name"; len(problems) != 1 ||
			!strings.HasPrefix(problems[0].String(), want) || problems[0].Object != "ConfigMap default/a" {
			t.Errorf("got %v, want %s", problems, want)
		}
		h.say <- podconfig.Snapshot{Objects: []*pod.Object{configMap("http", "u", 7, "a", "edited")}}
		w.expect("objects Secret a,ConfigMap a=edited")
		h.say <- podconfig.Snapshot{}
		w.expect("objects ConfigMap a=file,Secret a")
		if got := w.conf.Problems(); len(got) != 0 {
			t.Errorf("got %v, want none", got)
		}
	})
}

func TestDuplicateObjectsAreNamedWithTheirPlaces(t *testing.T) {
	var got []string
	for _, p := range podconfig.Duplicates(nil, []*pod.Object{
		configMap("file", "/b", 1, "a", ""), configMap("file", "/a", 9, "a", ""), secret("file", "/a", "a"), configMap("file", "/a", 3, "b", ""),
	}) {
		got = append(got, fmt.Sprintf("%s:%d %s", p.Origin, p.Line, p.Message))
	}
	if want := []string{"/a:9 the ConfigMap default/a is defined twice; the one at /b:1 has the name"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An object above its pod in one file is edited, and the pod's line is another.
func TestAPodThatMovedInItsFileIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newScript(pod.SourceFile)
		w := startWithObjects(t, f)
		for i, want := range [][]string{{"objects ConfigMap a=0", "file ADD web=1"}, {"objects ConfigMap a=1"}, {"objects ConfigMap a=2"}} {
			web := desired("file", "a.yaml", "web", "1")
			web.Line = 10 + i
			f.say <- podconfig.Snapshot{Pods: []*pod.Desired{web}, Objects: []*pod.Object{configMap("file", "a.yaml", 1, "a", fmt.Sprint(i))}}
			w.expect(want...)
		}
	})
}

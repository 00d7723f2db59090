package podstore_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/internal/podstore"
)

// What a file may be that is of no use is tested with the source of an apiserver's pods.

func onePod(uid pod.UID) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: uid, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "busybox", Env: []v1.EnvVar{{Name: "PASSWORD", Value: "x"}}}}},
	}
}

func TestAPodIsStoredForRootAloneAndWrittenOnce(t *testing.T) {
	for _, durable := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "a", "pods")
		s := podstore.Store{Dir: dir, Durable: durable, MaxBytes: 1 << 20}
		write := func() fs.FileInfo {
			t.Helper()
			if err := s.Write(podstore.Entry{Origin: "/m/web.yaml", Pod: onePod("u1")}); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(filepath.Join(dir, "u1.json"))
			if err != nil {
				t.Fatal(err)
			}
			return info
		}
		first := write()
		if d, err := os.Stat(dir); err != nil || first.Mode().Perm() != 0o600 || d.Mode().Perm() != 0o700 {
			t.Errorf("got modes %v and %v, %v", first.Mode(), d.Mode(), err)
		}
		if again := write(); os.SameFile(first, again) == durable {
			t.Errorf("durable %t: the same pod was written again: %t", durable, !durable)
		}
		e, err := s.ReadOne("u1")
		if err != nil || e.Origin != "/m/web.yaml" || e.Pod.Spec.Containers[0].Env[0].Value != "x" || e.Pod.ManagedFields != nil {
			t.Errorf("got %+v, %v", e, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "u2.json.new"), nil, 0o600); err != nil { // an interrupted write
			t.Fatal(err)
		}
		if uids, err := s.UIDs(); err != nil || !slices.Equal(uids, []pod.UID{"u1", "u2"}) {
			t.Errorf("got %q, %v", uids, err)
		}
		if found, unusable := s.ReadAll(); len(found) != 1 || len(unusable) != 0 {
			t.Errorf("got %+v, %+v", found, unusable)
		}
		for range 2 {
			if err := errors.Join(s.Remove("u1"), s.Remove("u2")); err != nil {
				t.Error(err)
			}
		}
		if uids, err := s.UIDs(); err != nil || len(uids) != 0 {
			t.Errorf("left: %q, %v", uids, err)
		}
		if _, err := s.ReadOne("u1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want that it does not exist", err)
		}
	}
}

func TestWhatCannotBeReadBackIsNotWritten(t *testing.T) {
	s := podstore.Store{Dir: t.TempDir(), MaxBytes: 4096}
	long := onePod("u1")
	long.Annotations = map[string]string{"a": strings.Repeat("x", 4096)}
	for _, p := range []*v1.Pod{long, onePod("../u1"), onePod("")} {
		if err := s.Write(podstore.Entry{Pod: p}); err == nil {
			t.Errorf("UID %q: written", p.UID)
		}
	}
	if entries, err := os.ReadDir(s.Dir); err != nil || len(entries) != 0 {
		t.Errorf("got %v, %v", entries, err)
	}
	if _, err := s.ReadOne("../etc/passwd"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path as UID: got %v", err)
	}
}

func TestWithoutADirectoryNothingIsStored(t *testing.T) {
	s := podstore.Store{}
	uids, errList := s.UIDs()
	found, unusable := s.ReadAll()
	if err := errors.Join(errList, s.Write(podstore.Entry{Pod: onePod("u1")}), s.Remove("u1"), s.Retain(func(pod.UID) bool { return false })); err != nil || len(uids)+len(found)+len(unusable) != 0 {
		t.Errorf("got %v, %q, %+v, %+v", err, uids, found, unusable)
	}
}

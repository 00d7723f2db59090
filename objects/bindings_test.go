package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func TestAFirstStartHasNoProblems(t *testing.T) {
	if got := persistent(t, filepath.Join(t.TempDir(), "bindings.json")).Problems(); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
}

func TestTheProblemOfABrokenBindingsFileSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		want []string // parts of the message and the hint
	}{
		"half a file": {
			make: func(path string) error { return os.WriteFile(path, []byte(`{"version":1,`), 0o600) },
			want: []string{"cannot read the bindings of claims: unexpected end of JSON input", "the file was kept as"},
		},
		"of a newer podd": {
			make: func(path string) error { return os.WriteFile(path, []byte(`{"version":2}`), 0o600) },
			want: []string{"cannot read the bindings of claims: unsupported version 2: this podd reads version 1"},
		},
		// As a container runtime makes it of a mount whose source is missing.
		"a directory": {
			make: func(path string) error { return os.Mkdir(path, 0o700) },
			want: []string{"cannot read the bindings of claims: read ", "is a directory", "the file was kept as"},
		},
		"a directory, and another file is in the way": {
			make: func(path string) error {
				if err := os.WriteFile(path+".broken", nil, 0o600); err != nil {
					return err
				}
				return os.Mkdir(path, 0o700)
			},
			want: []string{"is a directory", "rename ", "before podd overwrites it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bindings.json")
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			all := persistent(t, path).Problems()
			if len(all) != 1 {
				t.Fatalf("got %+v, want one problem", all)
			}
			for _, want := range c.want {
				if got := all[0].Message + "; " + all[0].Hint; !strings.Contains(got, want) {
					t.Errorf("got %q, want %q in it", got, want)
				}
			}
		})
	}
}

// A binding is kept while a source may still bring its volume and claim.
func TestABindingSurvivesARestartThoughItsDocumentsComeLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bindings.json")
	s := persistent(t, path)
	p, v := claimant("a", "c1")
	s.Replace([]*pod.Object{aVolume("v2"), aClaim("c1")})
	if err := use(t, s, p, v); err != nil {
		t.Fatal(err)
	}
	both := persistent(t, path)
	both.Replace([]*pod.Object{aVolume("v1"), aVolume("v2")})
	both.Replace([]*pod.Object{aVolume("v1")}) // the claim was removed while podd did not run
	both.Replace([]*pod.Object{aVolume("v1"), aVolume("v2"), aClaim("c1")})
	if b, err := both.Claim(p, v); err != nil || b.Volume.Name != "v1" {
		t.Errorf("a claim made anew, after the volume was removed: got %+v, %v, want v1", b, err)
	}
	after := persistent(t, path)
	after.Replace([]*pod.Object{aVolume("v1")})
	after.Replace([]*pod.Object{aVolume("v1"), aVolume("v2"), aClaim("c1")})
	if b, err := after.Claim(p, v); err != nil || b.Volume.Name != "v2" {
		t.Errorf("got %+v, %v, want v2", b, err)
	}
	after.Replace([]*pod.Object{aVolume("v1")}) // now it is known that both were removed
	after.Replace([]*pod.Object{aVolume("v1"), aVolume("v2"), aClaim("c1")})
	if b, err := after.Claim(p, v); err != nil || b.Volume.Name != "v1" {
		t.Errorf("removed, and added again: got %+v, %v, want v1, the better match", b, err)
	}
}

func TestAVolumeOfTheSameNameHasNoHolder(t *testing.T) {
	s := newStore()
	a, v := claimant("a", "c1")
	b, _ := claimant("b", "c1")
	all := []*pod.Object{aVolume("v1", v1.ReadWriteOncePod), aClaim("c1")}
	s.Replace(all)
	if err := use(t, s, a, v); err != nil {
		t.Fatal(err)
	}
	s.Replace(nil)
	s.Replace(all)
	if err := use(t, s, b, v); err != nil {
		t.Errorf("the old volume's user keeps the new one's: got %v", err)
	}
}

// Whatever is in the way of the file is named to the pod.
func TestAPodLearnsWhyItsBindingCannotBeSaved(t *testing.T) {
	for name, c := range map[string]struct {
		obstruct func(path string) error
		want     string
	}{
		"no directory": {func(path string) error { return os.WriteFile(filepath.Dir(path), nil, 0o600) }, "not a directory"},
		"a directory":  {func(path string) error { return os.MkdirAll(filepath.Join(path, "full"), 0o700) }, "rename "},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bindings", "b.json")
			s := persistent(t, path)
			p, v := claimant("a", "c1")
			s.Replace([]*pod.Object{aVolume("v1"), aClaim("c1")})
			if err := c.obstruct(path); err != nil {
				t.Fatal(err)
			}
			err := use(t, s, p, v)
			if err == nil || !strings.HasPrefix(err.Error(), "cannot save the bindings of claims: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

// A start of a pod costs no write to disk when its volume was bound before.
func TestBindingsAreWrittenOnceAndInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bindings.json")
	s := persistent(t, path)
	all := []*pod.Object{}
	for i := range 8 {
		all = append(all, aVolume(fmt.Sprint("v", i)), aClaim(fmt.Sprint("c", i)))
	}
	s.Replace(all)
	p, v := claimant("a", "c1")
	if err := use(t, s, p, v); err != nil {
		t.Fatal(err)
	}
	f, err := newBindings(path).Read()
	if err != nil || len(f.Bindings) != 8 || !slices.IsSortedFunc(f.Bindings, func(a, b bindingRecord) int { return strings.Compare(a.Volume, b.Volume) }) {
		t.Errorf("got %+v, %v, want all in order", f, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := use(t, s, p, v); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("bindings that are on disk were written again: %v", err)
	}
}

func TestABindingThatCannotBeSavedIsLoggedOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var out bytes.Buffer
		s := New(Config{BindingsFile: filepath.Join(dir, "way", "b.json"), Log: slog.New(slog.NewJSONHandler(&out, nil)), Metrics: prometheus.NewRegistry()})
		if err := os.WriteFile(filepath.Join(dir, "way"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		go func() { _ = s.Run(ctx) }()
		logged := func() (n int) {
			synctest.Wait()
			for _, line := range bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n")) {
				var entry struct{ Msg, Error string }
				if json.Unmarshal(line, &entry) == nil && entry.Msg == "cannot save the bindings of claims" && entry.Error != "" {
					n++
				}
			}
			return n
		}
		volumes := []*pod.Object{aVolume("v1"), aVolume("v2"), aVolume("v3")}
		s.Replace(append(volumes, aClaim("c1")))
		if got := logged(); got != 1 {
			t.Errorf("after the first attempt: %d warnings, want 1\n%s", got, &out)
		}
		s.Replace(append(volumes, aClaim("c1"), aClaim("c2")))
		if got := logged(); got != 1 {
			t.Errorf("after another attempt: %d warnings, want 1\n%s", got, &out)
		}
		if err := os.Remove(filepath.Join(dir, "way")); err != nil {
			t.Fatal(err)
		}
		s.Replace(append(volumes, aClaim("c1")))
		logged()
		if err := os.RemoveAll(filepath.Join(dir, "way")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "way"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.Replace(append(volumes, aClaim("c3")))
		if got := logged(); got != 2 {
			t.Errorf("it worked in between: %d warnings, want 2\n%s", got, &out)
		}
	})
}

// An operator sees by it which edit was wrong.
func TestAProblemOfAClaimIsAsOldAsItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := newStore(), time.Now()
		named := func(claim, volume, origin string, line int) *pod.Object {
			o := aClaim(claim)
			o.Claim.Spec.VolumeName, o.Origin, o.Line = volume, origin, line
			return o
		}
		volumes := []*pod.Object{aVolume("v1"), aVolume("v2"), aVolume("v3"), aVolume("v4")}
		s.Replace(append(volumes, named("c1", "v1", "a", 1), named("c2", "v2", "b", 1), named("c3", "v3", "c", 1)))
		for i, step := range []struct {
			claims []*pod.Object
			want   string // claims and the minutes of their problems
		}{
			{[]*pod.Object{named("c1", "v1", "a", 1), named("c2", "v2", "b", 1), named("c3", "v3", "c", 1), named("c4", "missing", "d", 1)}, "[]"},
			{[]*pod.Object{named("c1", "v4", "a", 1), named("c2", "v2", "b", 1)}, "[shop/c1 1]"},
			{[]*pod.Object{named("c1", "v4", "a", 1), named("c2", "v4", "b", 1)}, "[shop/c1 1 shop/c2 2]"},
			{[]*pod.Object{named("c3", "v4", "a", 1), named("c2", "v4", "b", 1), named("c1", "v4", "c", 9)}, "[shop/c1 3 shop/c2 2 shop/c3 3]"},
			{[]*pod.Object{named("c3", "v4", "a", 1), named("c2", "v2", "b", 1), named("c1", "v4", "c", 9)}, "[shop/c1 3 shop/c3 3]"},
		} {
			s.Replace(append(slices.Clone(volumes), step.claims...))
			var got []string
			for _, p := range s.Problems() {
				got = append(got, fmt.Sprintf("%s %d", strings.TrimPrefix(p.Object, "PersistentVolumeClaim "), int(p.Since.Sub(began).Minutes())))
			}
			if fmt.Sprint(got) != step.want {
				t.Errorf("step %d: got %v, want %v", i, got, step.want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// hostOnly is a volume for one node.
func hostOnly(name, node string) *pod.Object {
	o := aVolume(name)
	o.Volume.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
	return o
}

func TestAClaimIsNotUsedOnAnotherNodeThanItsVolume(t *testing.T) {
	s := persistent(t, "") // of the node n1
	p, v := claimant("a", "c1")
	named := aClaim("c1")
	named.Claim.Spec.VolumeName = "v1"
	s.Replace([]*pod.Object{hostOnly("v1", "n2"), named})
	const want = `MountVolume.NodeAffinity check failed for volume "v1" : no matching NodeSelectorTerms`
	if _, err := s.Claim(p, v); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	s.Replace([]*pod.Object{hostOnly("v1", "n1"), named})
	if b, err := s.Claim(p, v); err != nil || b.Volume.Name != "v1" || b.ReadOnly {
		t.Errorf("its own node: got %+v, %v", b, err)
	}
	v.PersistentVolumeClaim.ReadOnly = true
	if b, err := s.Claim(p, v); err != nil || !b.ReadOnly {
		t.Errorf("read-only: got %+v, %v", b, err)
	}
}

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWhatPodsNameIsThereBeforeThem(t *testing.T) {
	texts := map[string]string{
		"a.yaml": "spec: {}", "b.yaml": "kind: ConfigMap\ndata: {a: b}", "c.raw": "kind: Pod\n---\nkind: Secret\n",
		"d.yaml": "kind: Secret", "e.raw": "kind: List",
	}
	want := []string{"b.yaml", "d.yaml", "a.yaml", "c.raw", "e.raw"}
	if got := podsLast(texts); !slices.Equal(got, want) {
		t.Errorf("put into place in the order %q, want %q", got, want)
	}
	slices.Reverse(want)
	if got := podsFirst(texts); !slices.Equal(got, want) {
		t.Errorf("taken away in the order %q, want %q", got, want)
	}
}

func TestADocumentBecomesAnObjectOfTheAPIServer(t *testing.T) {
	api := &throughAPI{node: "parity-a", namespace: "default-a"}
	objects, err := api.objectsOf("kind: Pod\nmetadata: {name: a}\nspec: {}\n---\nkind: ConfigMap\nmetadata: {name: b}\n---\n")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range objects {
		names = append(names, named(o))
	}
	if want := []string{"ConfigMap/default-a/b", "Pod/default-a/a-parity"}; !slices.Equal(names, want) {
		t.Fatalf("got %q, want %q", names, want)
	}
	if got := objects[1]["spec"].(map[string]any)["nodeName"]; got != "parity-a" {
		t.Errorf("the pod is bound to %v", got)
	}
	for _, text := range []string{"kind: Pod\nmetadata: {name: a}", "kind: Pod\nspec: {}", "kind: ConfigMap\ndata: {}", "a: [b"} {
		if _, err := api.objectsOf(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestAFileComesIntoTheDirectoryWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := directory(dir)
	for _, text := range []string{"one", "two"} {
		if err := d.Put(t.Context(), "a.yaml", text); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Rename(t.Context(), "a.yaml", "b.yaml"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "b.yaml")); string(text) != "two" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	if err := d.Remove(t.Context(), "b.yaml"); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{dir, filepath.Dir(dir)} {
		entries, _ := os.ReadDir(place)
		for _, e := range entries {
			if e.Name() != "manifests" {
				t.Errorf("%s is left in %s", e.Name(), place)
			}
		}
	}
}

func TestANameSaysThatAScenarioNeedsAnAPIServer(t *testing.T) {
	const rest = "wait pod phase=Running\n-- pod.yaml --\nspec: {}\n"
	for name, c := range map[string]struct{ text, want string }{
		"api-a": {"# About.\nneeds apiserver\n" + rest, ""},
		"a":     {"# About.\n" + rest, ""},
		"api-b": {"# About.\n" + rest, "begin with"},
		"b":     {"# About.\nneeds apiserver\n" + rest, "begin with"},
		"api-c": {"# About.\nneeds scheduler\n" + rest, "needs apiserver is what"},
		"api-d": {"# About.\nsleep 1s\nneeds apiserver\n" + rest, "needs apiserver is what"},
	} {
		s, err := parseScenario(name, []byte(c.text))
		if c.want == "" {
			if err != nil || s.inCluster() != strings.HasPrefix(name, "api-") {
				t.Errorf("%s: got %v", name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestAnObjectIsNoPod(t *testing.T) {
	s, err := parseScenario("api-a", []byte("# About.\nneeds apiserver\nwait pod phase=Running\n-- cm.yaml --\nkind: ConfigMap\ndata: {a: b}\n-- pod.yaml --\nmetadata: {labels: {a: @NAME@-cm}}\nspec: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"cm.yaml": "name: api-a-cm\n", "pod.yaml": "a: api-a-cm\n"} {
		text, err := s.manifest(file, file, map[string]string{"NAME": s.Name})
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: got %q, %v, want %q in it", file, text, err, want)
		}
		names, err := s.podNames(file, text)
		if err != nil || (len(names) == 1) != (file == "pod.yaml") {
			t.Errorf("%s: its pods are %q, %v", file, names, err)
		}
	}
}

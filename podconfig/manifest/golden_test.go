package manifest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"podd/internal/pod"
)

var update = flag.Bool("update", false, "rewrite the golden messages; read them in review")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func options(origin string) Options {
	return Options{NodeName: "node1", Source: pod.SourceFile, Origin: origin, Now: noon}
}

// TestGoldenMessages reads every manifest of testdata/*.txtar and compares what
// podd says about it with the file of that name and .want, which a person has
// read and found helpful.
func TestGoldenMessages(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	manifests := 0
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			manifests += golden(t, path)
		})
	}
	const least = 100
	if manifests < least && !t.Failed() {
		t.Errorf("got %d manifests, want at least %d", manifests, least)
	}
}

func golden(t *testing.T, path string) (manifests int) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, f := range archive.Files {
		if strings.HasSuffix(f.Name, ".want") {
			want[f.Name] = string(f.Data)
		}
	}
	out := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		if strings.HasSuffix(f.Name, ".want") {
			continue
		}
		manifests++
		name := f.Name + ".want"
		got := summary(Decode(f.Data, options(f.Name)))
		out.Files = append(out.Files, f, txtar.File{Name: name, Data: []byte(got)})
		if !*update && got != want[name] {
			t.Errorf("%s:\ngot\n%swant\n%s", f.Name, got, want[name])
		}
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return manifests
}

// summary is a Result as the golden files show it.
func summary(r Result) string {
	var b strings.Builder
	for _, d := range r.Pods {
		fmt.Fprintf(&b, "pod %s, line %d\n", d.Name(), d.Line)
	}
	for _, o := range r.Objects {
		fmt.Fprintf(&b, "%s, line %d\n", o.Key(), o.Line)
	}
	for _, p := range r.Problems {
		where := p.Location()
		if p.Warning {
			where += ": warning"
		}
		if p.Field != "" {
			where += ": " + p.Field
		}
		fmt.Fprintf(&b, "%s: %s\n", where, p.Message)
		if p.Hint != "" {
			fmt.Fprintf(&b, "    %s\n", p.Hint)
		}
	}
	for _, f := range r.Failed {
		switch {
		case f.Object.Kind != "":
			fmt.Fprintf(&b, "failed: %q\n", f.Object)
		case f.Object.Name != "":
			fmt.Fprintf(&b, "failed: %q, or an object of that name\n", f.Pod)
		default:
			fmt.Fprintf(&b, "failed: %q\n", f.Pod)
		}
	}
	return b.String()
}

package manifest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

const (
	settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: blue}\n"
	password = "apiVersion: v1\nkind: Secret\nmetadata: {name: password}\nstringData: {password: geheim}\n"
)

func TestAnObjectIsWhatAnApiserverWouldStore(t *testing.T) {
	r := Decode([]byte("\n"+settings+"---\n"+strings.Replace(password, "stringData", "data: {password: eA==, user: YWRtaW4=}\nstringData", 1)), options("x.yaml"))
	if len(r.Objects) != 2 || len(r.Problems) > 0 {
		t.Fatalf("got %d objects, %v", len(r.Objects), r.Problems)
	}
	c, s := r.Objects[0], r.Objects[1]
	if c.ConfigMap.Data["colour"] != "blue" || c.ConfigMap.Namespace != v1.NamespaceDefault || c.Line != 2 || c.Source != pod.SourceFile || c.Origin != "x.yaml" || c.Seen != noon {
		t.Errorf("got %+v", c)
	}
	if got := s.Secret; string(got.Data["password"]) != "geheim" || string(got.Data["user"]) != "admin" || got.Type != v1.SecretTypeOpaque || got.StringData != nil || got.Kind != "Secret" {
		t.Errorf("got %+v", got)
	}
	if !r.HasSecret() || (Content{Objects: r.Objects[:1]}).HasSecret() {
		t.Error("HasSecret: want it of the Secret alone")
	}
}

// TestWhatAnApiserverWroteIsDropped: kubectl keeps the whole object, its values
// too, in an annotation.
func TestWhatAnApiserverWroteIsDropped(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/objects.txtar")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "exported.yaml" })
	r := Decode(archive.Files[i].Data, options("x"))
	if m := r.Objects[0].Secret.ObjectMeta; m.UID != "" || m.ResourceVersion != "" || len(m.ManagedFields) > 0 || !m.CreationTimestamp.IsZero() || len(m.Annotations) > 0 {
		t.Errorf("got %+v", m)
	}
}

// TestAPodsIdentityIsItsOwnDocuments: an object is edited beside its pod, and the
// pod goes on as it is.
func TestAPodsIdentityIsItsOwnDocuments(t *testing.T) {
	var uids []pod.UID
	for _, text := range []string{
		podFlow("web"), settings + "---\n" + podFlow("web"), strings.Replace(settings, "blue", "red", 1) + "# more\n---\n" + podFlow("web"),
		podFlow("web") + "---\n" + password, podFlow("web") + "---\nkind: ConfigMap\n",
	} {
		r := Decode([]byte(text), options("x.yaml"))
		if len(r.Pods) != 1 {
			t.Fatalf("%s: got %v", text, r.Problems)
		}
		uids = append(uids, r.Pods[0].UID())
	}
	if len(slices.Compact(uids)) != 1 {
		t.Errorf("got UIDs %v, want one", uids)
	}
}

// TestWhatABrokenPartKeeps has a manifest of two pods and two objects, of which
// the new version breaks or lacks some.
func TestWhatABrokenPartKeeps(t *testing.T) {
	a, b := podFlow("a"), podFlow("b")
	badPod, badSettings := strings.Replace(a, "image", "imagee", 1), strings.Replace(settings, "blue", "1", 1)
	for name, tt := range map[string]struct{ next, kept, told string }{
		"nothing broken":             {a, "", ""},
		"an object":                  {a + b + badSettings + password, "settings", "settings"},
		"an object, others gone":     {a + badSettings, "settings", "settings"},
		"a pod":                      {badPod + b + settings + password, "a", "a"},
		"a pod, others gone":         {badPod, "a", "a"},
		"both":                       {badPod + b + badSettings + password, "a settings", "a settings"},
		"an object that was not":     {strings.Replace(badSettings, "name: settings", "name: other", 1) + a, "settings password", "other"},
		"an object without a name":   {strings.Replace(badSettings, "name: settings", "x: y", 1) + a, "settings password", "? ?"},
		"a pod that was not":         {strings.Replace(badPod, "name: a", "name: c", 1) + b, "a", "c"},
		"the kind of an object":      {strings.Replace(settings, "ConfigMap", "ConfigMpa", 1) + a, "settings", "settings"},
		"the kind of a Secret":       {strings.Replace(password, "kind: Secret", "kind: secret", 1) + a, "password", "password"},
		"the kind of a pod":          {strings.Replace(a, "kind: Pod", "kind: pod", 1) + b, "a", "a"},
		"another of an unknown kind": {"kind: X\nmetadata: {name: x}\n---\n" + a, "b settings password", "x"},
		"syntax":                     {a + "}", "a b settings password", "?"},
	} {
		t.Run(name, func(t *testing.T) {
			old := Decode(join(a, b, settings, password), options("x")).Content
			r := Decode(join(strings.SplitAfter(strings.ReplaceAll(tt.next, "apiVersion", "---\napiVersion"), "---\n")...), options("x"))
			kept := Retain(r.Content, old, r.Failed)
			var got []string
			for _, p := range kept.Pods {
				got = append(got, strings.TrimSuffix(p.Pod.Name, "-node1"))
			}
			for _, o := range kept.Objects {
				got = append(got, o.Key().Name)
			}
			if strings.Join(got, " ") != tt.kept {
				t.Errorf("got %q, want %q; failed %+v", got, tt.kept, r.Failed)
			}
			MarkRetained(r.Problems, kept, r.Failed, old)
			var told []string
			for _, p := range r.Problems {
				if p.LastGoodInUse {
					name := p.Pod + p.Object
					name = strings.TrimSuffix(name[strings.IndexByte(name, '/')+1:], "-node1")
					told = append(told, orElse(name, "?"))
				}
			}
			if strings.Join(told, " ") != tt.told {
				t.Errorf("problems with a kept version: got %q, want %q; %v", told, tt.told, r.Problems)
			}
		})
	}
}

func join(documents ...string) []byte { return []byte(strings.Join(documents, "---\n")) }

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func TestWhatDidNotChangeIsTheSameAgain(t *testing.T) {
	old := Decode(join(podFlow("a"), settings, password), options("x")).Content
	same := Decode(join(podFlow("a"), "# moved\n\n"+settings, password+"type: Opaque\n"), options("x")).Content.Reuse(old)
	if same.Pods[0] != old.Pods[0] || same.Objects[0] != old.Objects[0] || same.Objects[1] != old.Objects[1] {
		t.Error("equal ones: want the pointers that were there before")
	}
	twice := Decode(join(settings, settings), options("x")).Content
	if again := Decode(join(settings, settings, password), options("x")).Content.Reuse(twice); again.Objects[0] != twice.Objects[0] || again.Objects[1] != twice.Objects[1] {
		t.Error("an object that is there twice: want each to be the one before")
	}
	changed := Decode(join(podFlow("a"), strings.Replace(settings, "blue", "red", 1), password), options("x")).Content.Reuse(old)
	if changed.Objects[0] == old.Objects[0] || changed.Objects[0].ConfigMap.Data["colour"] != "red" || changed.Objects[1] != old.Objects[1] {
		t.Error("a changed object: want the new one, and the other as it was")
	}
}

func TestObjectsAreBounded(t *testing.T) {
	r := Decode([]byte(strings.Repeat("---\n"+settings, MaxObjects+1)), options("x"))
	if len(r.Objects) > 0 || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Message, "more than 2000 ConfigMaps, Secrets and other objects") {
		t.Errorf("got %d objects, %v", len(r.Objects), r.Problems)
	}
	large := strings.Repeat("x", 1<<20)
	for name, tt := range map[string]struct{ text, want string }{
		"1 MiB":         {strings.Replace(settings, "blue", large, 1), ""},
		"beyond":        {strings.Replace(settings, "blue", large+"x", 1), "Too long: may not be more than 1048576 bytes"},
		"Secret beyond": {strings.Replace(password, "geheim", large+"x", 1), "Too long: may not be more than 1048576 bytes"},
		"base64, copied": {"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n  a: &a " + strings.Repeat("eHh4", 1<<17) + "\n  b0: *a\n" +
			numberedLines(25, "  b%d: *a\n"), "the Secret exceeds the limit of 8.0 MiB of memory"},
	} {
		r := Decode([]byte(tt.text), options("x"))
		if tt.want == "" && (len(r.Problems) > 0 || len(r.Objects) != 1) || tt.want != "" && (len(r.Objects) > 0 || len(r.Problems) == 0 || !strings.Contains(r.Problems[0].Message, tt.want)) {
			t.Errorf("%s: got %d objects, %v, want %q", name, len(r.Objects), r.Problems, tt.want)
		}
	}
}

func numberedLines(n int, line string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, line, i+1)
	}
	return b.String()
}

// TestNothingShowsAValueOfASecret breaks a Secret in all ways that one, two or
// three slips can, and looks for pieces of its values in what is told.
func TestNothingShowsAValueOfASecret(t *testing.T) {
	golden, err := os.ReadFile("testdata/objects.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range txtar.Parse(golden).Files {
		if said := string(f.Data); strings.HasSuffix(f.Name, ".want") && (strings.Contains(said, "geheim") || strings.Contains(said, "424242") || strings.Contains(said, "Z2Vo")) {
			t.Errorf("%s shows a value:\n%s", f.Name, said)
		}
	}
	const first, second, third = "QmFzZTY0VGV4dA==", "Zauberwort", "mellon-mellon"
	texts := []string{
		"apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ntype: kubernetes.io/dockerconfigjson\ndata:\n  one: " + first + "\n" +
			"stringData:\n  .dockerconfigjson: '" + second + "'\n  three: |\n    " + third + "\n",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db"},"data":{"one":"` + first + `"},"stringData":{"two":"` + second + `","three":"` + third + `"}}`,
	}
	const slips = "\n\t :\"'[]{}*&!|>-%#,@`1\\$"
	// A slip can make a field's name of a value, which nobody can tell from one.
	names := regexp.MustCompile(`(data|stringData)\[[-._/a-zA-Z0-9]*\]`)
	random := rand.New(rand.NewPCG(9, 9))
	said := 0
	for range 10_000 {
		text := []byte(texts[random.IntN(len(texts))])
		for range 1 + random.IntN(3) {
			at := random.IntN(len(text))
			switch random.IntN(3) {
			case 0:
				text = slices.Delete(text, at, at+1)
			case 1:
				text[at] = slips[random.IntN(len(slips))]
			default:
				text = slices.Insert(text, at, slips[random.IntN(len(slips))])
			}
		}
		if random.IntN(10) == 0 {
			text = text[random.IntN(len(text)):] // its end alone
		}
		if !maybeSecret(text) {
			continue // who calls it something else is not protected
		}
		for _, p := range Decode(text, options("x")).Problems {
			said++
			if piece := shown(names.ReplaceAllString(p.String(), ""), first, second, third); piece != "" {
				t.Fatalf("%s\nshows %q of\n%s", p, piece, text)
			}
		}
	}
	if said < 3_000 {
		t.Errorf("only %d problems were looked at", said)
	}
}

// shown is the first piece of a value that a text has.
func shown(text string, values ...string) string {
	const length = 5
	for _, v := range values {
		for i := range len(v) - length + 1 {
			if strings.Contains(text, v[i:i+length]) {
				return v[i : i+length]
			}
		}
	}
	return ""
}

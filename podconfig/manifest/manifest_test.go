package manifest

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/strictyaml"
)

const plainManifest = `apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web}
spec:
  containers:
  - name: web
    image: localhost/podd/web:1
    ports:
    - containerPort: 80
`

func decodeOne(t *testing.T, text string, opt Options) *pod.Desired {
	t.Helper()
	r := Decode([]byte(text), opt)
	if len(r.Pods) != 1 || len(r.Problems) > 0 {
		t.Fatalf("got %d pods and problems %v, want one pod", len(r.Pods), r.Problems)
	}
	return r.Pods[0]
}

// TestUIDsAreForEver pins UIDs. If it fails, the change at hand would restart
// every static pod of every node at the next upgrade (kubernetes/kubernetes#67537):
// mend the change, never the numbers.
func TestUIDsAreForEver(t *testing.T) {
	file := Options{NodeName: "node1", Source: pod.SourceFile, Origin: "/etc/podd/manifests/web.yaml", Now: noon}
	url := Options{NodeName: "node-2", Source: pod.SourceHTTP, Origin: "http://config.test/pods", Now: noon}
	rich := plainManifest + `    resources: {limits: {cpu: 0.5, memory: 64Mi}}
    securityContext: {runAsUser: 0100}
    env: [{name: A, value: "ü\n\t\"x\""}]
  hostNetwork: yes
  restartPolicy:
`
	for name, tc := range map[string]struct {
		text string
		opt  Options
		want pod.UID
	}{
		"plain, file": {plainManifest, file, "d6a575ba37a42ce59f2ea67ce2d239b1"},
		"plain, url":  {plainManifest, url, "8069d40742d316dc8aa1b524f0da5cf9"},
		"rich, file":  {rich, file, "59dcf35bf4ca1c46797d83f3137abf80"},
	} {
		if got := decodeOne(t, tc.text, tc.opt).UID(); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestUIDIgnoresHowTheManifestIsWritten(t *testing.T) {
	opt := options("web.yaml")
	want := decodeOne(t, plainManifest, opt).UID()
	for name, text := range map[string]string{
		"comments":  "# hello\n" + strings.ReplaceAll(plainManifest, "spec:", "spec: # the spec"),
		"CRLF":      strings.ReplaceAll(plainManifest, "\n", "\r\n"),
		"BOM":       "\ufeff" + plainManifest,
		"key order": "kind: Pod\nspec:\n  containers:\n  - image: 'localhost/podd/web:1'\n    ports: [{containerPort: 80}]\n    name: web\nmetadata: {labels: {app: \"web\"}, name: web}\napiVersion: v1\n",
		"JSON":      `{"kind":"Pod","apiVersion":"v1","metadata":{"labels":{"app":"web"},"name":"web"},"spec":{"containers":[{"name":"web","ports":[{"containerPort":80}],"image":"localhost/podd/web:1"}]}}`,
		"null":      plainManifest + "  volumes:\n",
		"hex":       strings.ReplaceAll(plainManifest, "80", "0x50"),
		"anchor":    strings.ReplaceAll(strings.ReplaceAll(plainManifest, "name: web\n  labels", "name: &n web\n  labels"), "- name: web", "- name: *n"),
		"second":    "# nothing\n---\n" + plainManifest,
	} {
		if got := decodeOne(t, text, opt).UID(); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestUIDChangesWithContentNodeAndPlace(t *testing.T) {
	opt := options("web.yaml")
	seen := map[pod.UID]string{decodeOne(t, plainManifest, opt).UID(): "plain"}
	other := func(name, text string, opt Options) {
		t.Helper()
		r := Decode([]byte(text), opt)
		if len(r.Pods) != 1 || len(r.Failed) > 0 {
			t.Fatalf("%s: got %d pods and problems %v, want one pod", name, len(r.Pods), r.Problems)
		}
		uid := r.Pods[0].UID()
		if before, ok := seen[uid]; ok {
			t.Errorf("%s has the UID of %s", name, before)
		}
		seen[uid] = name
	}
	other("image", strings.ReplaceAll(plainManifest, "web:1", "web:2"), opt)
	other("explicit uid", strings.ReplaceAll(plainManifest, "  name: web\n  l", "  name: web\n  uid: abc\n  l"), opt)
	other("file", plainManifest, options("other.yaml"))
	node := opt
	node.NodeName = "node2"
	other("node", plainManifest, node)
	source := opt
	source.Source = pod.SourceHTTP
	other("source", plainManifest, source)
}

func TestStaticPodsLookAsTheKubeletsDo(t *testing.T) {
	opt := options("/m/web.yaml")
	opt.NodeName = "node-1.example"
	d := decodeOne(t, plainManifest, opt)
	p := d.Pod
	if d.Name() != "default/web-node-1.example" || p.Spec.NodeName != "node-1.example" || p.Status.Phase != v1.PodPending {
		t.Errorf("got %s on %q, phase %s", d.Name(), p.Spec.NodeName, p.Status.Phase)
	}
	want := map[string]string{"kubernetes.io/config.hash": string(p.UID), "kubernetes.io/config.source": "file",
		"kubernetes.io/config.seen": noon.Format(time.RFC3339Nano)}
	if diff := cmp.Diff(want, p.Annotations); diff != "" {
		t.Error("annotations (-want +got):", diff)
	}
	if tol := p.Spec.Tolerations; len(tol) != 1 || tol[0] != (v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}) {
		t.Errorf("tolerations: got %v", tol)
	}
	opt.Source = pod.SourceHTTP
	if tol := decodeOne(t, plainManifest, opt).Pod.Spec.Tolerations; len(tol) != 0 {
		t.Errorf("tolerations of an http pod: got %v, want none, as upstream", tol)
	}
}

// TestWhatUpstreamsDecoderRejectsIsRejected is the other half: no manifest of
// the folders of decoding faults passes upstream's strict decoder.
func TestWhatUpstreamsDecoderRejectsIsRejected(t *testing.T) {
	for _, name := range []string{"unknown-field", "wrong-type"} {
		archive, err := txtar.ParseFile("testdata/" + name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if strings.HasSuffix(f.Name, ".want") {
				continue
			}
			// See stricterOnPurpose; and of two fields of one name the last holds.
			if f.Name == "tagged.yaml" || f.Name == "yes-as-label-name.yaml" || strings.HasPrefix(f.Name, "duplicate-") {
				continue
			}
			if _, err := upstreamDecode[v1.Pod](f.Data); err == nil {
				t.Errorf("%s/%s: upstream takes it, podd does not", name, f.Name)
			}
		}
	}
}

func TestTextThatIsNoManifest(t *testing.T) {
	for name, tc := range map[string]struct {
		data []byte
		want string
	}{
		"binary":      {[]byte("\x7fELF\x02\x01\x01\x00\x00"), "binary"},
		"gzip":        {[]byte{0x1f, 0x8b, 8, 0}, "gzip"},
		"UTF-16":      {[]byte{0xff, 0xfe, 'a', 0}, "UTF-16"},
		"Latin-1":     {[]byte("apiVersion: v1\nkind: Pod\n# \xe9t\xe9\n"), "not valid UTF-8"},
		"50 MB":       {make([]byte, 50_000_000), "47.7 MiB"},
		"4 MiB":       {[]byte("a: " + strings.Repeat("x", 4<<20)), "4.0 MiB, more than the limit of 3 MiB"},
		"deep":        {[]byte(strings.Repeat("[", 5000) + strings.Repeat("]", 5000)), "nested more than 1000"},
		"deep JSON":   {[]byte(strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)), "nested"},
		"very deep":   {[]byte(strings.Repeat("[", 100_000)), ""},
		"control":     {[]byte("apiVersion: v1\nkind: \x01Pod\n"), "control characters"},
		"just spaces": {[]byte("  \n\n"), "empty"},
	} {
		r := Decode(tc.data, options("x.yaml"))
		if len(r.Pods) > 0 || len(r.Problems) != 1 || len(r.Failed) != 1 || !strings.Contains(r.Problems[0].Message, tc.want) {
			t.Errorf("%s: got %d pods, %v, want a problem with %q", name, len(r.Pods), r.Problems, tc.want)
		}
	}
}

func TestLinesCountInTheFile(t *testing.T) {
	r := Decode([]byte("\ufeff# first\r\n---\r\n"+strings.ReplaceAll(plainManifest+"  bogus: 1\n", "\n", "\r\n")), options("x.yaml"))
	if len(r.Problems) != 1 || r.Problems[0].Line != 14 {
		t.Errorf("got %v, want line 14", r.Problems)
	}
}

func FuzzDecode(f *testing.F) {
	archives, _ := filepath.Glob("testdata/*.txtar")
	for _, path := range archives {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range txtar.Parse(data).Files {
			if !strings.HasSuffix(file.Name, ".want") {
				f.Add(file.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := Decode(data, options("fuzz.yaml"))
		if len(r.Pods) == 0 && len(r.Problems) == 0 && r.Documents == 0 {
			t.Errorf("nothing is said about %q", data)
		}
		lines := strictyaml.LineBreaks(data) + 1
		for _, p := range r.Problems {
			if p.Message == "" || p.Line < 0 || p.Line > lines+1 {
				t.Errorf("problem %+v of a text of %d lines", p, lines)
			}
		}
		for _, d := range r.Pods {
			if d.Pod.Name == "" || d.Pod.UID == "" || len(d.Pod.Spec.Containers) == 0 {
				t.Errorf("an incomplete pod: %+v", d.Pod)
			}
		}
		if again := Decode(data, options("fuzz.yaml")); !reflect.DeepEqual(r, again) {
			t.Errorf("decoding twice differs: %+v, %+v", r, again)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	opt := options("web.yaml")
	for b.Loop() {
		if r := Decode([]byte(plainManifest), opt); len(r.Pods) != 1 {
			b.Fatal(r.Problems)
		}
	}
}

// TestTheOldNameOfTheServiceAccountIsRejectedAsTheNewOne: upstream's conversion
// reads both.
func TestTheOldNameOfTheServiceAccountIsRejectedAsTheNewOne(t *testing.T) {
	for _, field := range []string{"serviceAccount", "serviceAccountName"} {
		r := Decode([]byte(plainManifest+"  "+field+": x\n"), options("x.yaml"))
		if len(r.Problems) != 1 || r.Problems[0].Field != "spec."+field || r.Problems[0].Line != 12 ||
			r.Problems[0].Message != "static pods may not reference serviceaccounts" {
			t.Errorf("%s: got %v", field, r.Problems)
		}
	}
}

// TestAnUnknownFieldIsRejectedReportedOrIgnored has what kubelets run: OpenShift's
// volume of an unknown kind, which defaulting makes an emptyDir, GCE's
// metadata.component, and a field that stands twice, of which the last holds.
func TestAnUnknownFieldIsRejectedReportedOrIgnored(t *testing.T) {
	text := strings.Replace(plainManifest, "metadata:\n", "metadata:\n  component: x\n", 1) +
		"  hostname: a\n  hostname: b\n  volumes:\n  - name: v\n    empty-dir: {}\n"
	list := "apiVersion: v1\nkind: PodList\nextra: 1\nitems:\n- metadata: {name: w, name: web}\n  spec: {containers: [{name: c, image: i}]}\n"
	for _, tc := range []struct {
		text                     string
		how                      Validation
		pods, problems, warnings int
	}{
		{text, "", 0, 3, 0}, {text, Strict, 0, 3, 0}, {text, Warn, 1, 0, 3}, {text, Ignore, 1, 0, 0},
		{list, Strict, 0, 1, 0}, {list, Warn, 1, 0, 2}, {list, Ignore, 1, 0, 0},
	} {
		opt := options("x.yaml")
		opt.Validation = tc.how
		r := Decode([]byte(tc.text), opt)
		problems, warnings := 0, 0
		for _, p := range r.Problems {
			if p.Warning {
				warnings++
			} else {
				problems++
			}
		}
		if len(r.Pods) != tc.pods || problems != tc.problems || warnings != tc.warnings {
			t.Errorf("%s: got %d pods, %v, want %d, %d problems and %d warnings", tc.how, len(r.Pods), r.Problems, tc.pods, tc.problems, tc.warnings)
		}
		if len(r.Pods) != 1 {
			continue
		}
		p := r.Pods[0].Pod
		if p.Name != "web-node1" || tc.text == text && (p.Spec.Hostname != "b" || p.Spec.Volumes[0].EmptyDir == nil) {
			t.Errorf("%s: got %s, %+v, want the last of two fields, and an emptyDir", tc.how, p.Name, p.Spec)
		}
	}
}

func TestWarningsNeverHideAProblem(t *testing.T) {
	opt := options("x.yaml")
	opt.Validation = Warn
	text := plainManifest
	for i := range 50 {
		text += "  bogus" + itoa(int64(i)) + ": 1\n"
	}
	r := Decode([]byte(text+"---\nkind: Pod\n"), opt)
	if n := len(r.Problems); n != maxProblems+2 || r.Problems[n-1].Warning || len(r.Pods) != 1 {
		t.Errorf("got %d problems, the last %v", n, r.Problems[n-1])
	}
}

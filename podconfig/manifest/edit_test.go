package manifest

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"podd/podconfig/manifest/advice"
)

// choices are the hints that are not a change of one line of the text, and why.
var choices = []struct {
	reason string
	hints  []string // regular expressions
}{
	{"a name is its owner's to choose", []string{
		`use a name or a namespace that is at least \d+ characters shorter`,
	}},
	{"the field may have many lines, or be worth keeping elsewhere", []string{
		`there is no such field here, .*`,
		`known fields: .*`,
		`".*" is a field of .*`,
		`a PodList has .*`,
		`remove them`,
		`remove the gate`,
		`they may stay; the pod without them is another one, which replaces this one`,
		`write an address of IPv4, such as 127\.0\.0\.1, or leave hostIP out for all of them`,
		`this needs a cluster; remove the field`,
		`a container says in volumeMounts .*`,
		`its status and the other fields .*`,
		`remove the field`, // one that is alpha in Kubernetes
		`switch on the feature gate .*, or remove the field`,
	}},
	{"the text does not say the value", []string{
		`fill the template in first .*`,
		`write image: .*`,
		`write registry/name:tag(, in lower case)?`,
		`write (metadata: name|key|path|name|mountPath|containerPort): .*`,
		`each (container|volume) needs a name.*`,
		`a number with an optional unit: .*`,
		`cpu is counted in CPUs: .*`,
		`write it with Mi or Gi: .*`,
		`write the absolute path, .*`,
		`write the value out`,
		`a Secret of this type needs this key.*`,
		`write the whole of a docker config.*`,
		`(binaryData|data) takes base64 .*`,
		`a key becomes the name of a file: .*`,
		`use (a )?shorter .*`,
		`write it as SIGTERM, .*`,
		`until it is fixed the pod runs .*`,
		`podd has podd/.*`,
		`spec.volumes (is empty|has).*`,
		`specify how to probe: .*`,
		`a pod needs at least one container.*`,
		`remove it and write a plain string`,
		`the annotation podd/probe-until-success.*`,
	}},
	{"there is a choice", []string{
		`only one of them takes effect; remove the other`,
		`".*" is there, too; keep one of the two`,
		`remove one of (the two|them)`,
		`give (each|one of them|the pod) .*`,
		`(raise|lower) .*`,
		`write restartPolicy: .*`,
		`write os: .*`,
		`only one volume can be mounted .*`,
		`each port of the node can be used only once.*`,
		`use medium: Memory.*`,
		`write - configMapRef: .*`,
		`two of its sources write the same file.*`,
		`fix the ones above first`,
		`for example ".*", in its volumeMounts as well`,
		`write hostUsers: false under spec, or .*`,
	}},
	{"it takes more than one line", []string{
		`begin each entry with "- ".*`,
		`remove the "- ": .*`,
		`write (its fields|one "name: value") .*`,
		`a file's content is written below .*`,
		`did you mean "\w+"\? It takes .*`,
		`keep one of the two sides.*`,
		`write it as a document of its own.*`,
		`use spaces.*`,
		`a manifest begins with .*`,
		`write a Pod into it.*`,
		`podd runs Kubernetes Pods: .*`,
	}},
	{"podd does not have it, and something else takes its place", []string{
		`(mount it on the node|clone it|use its CSI driver).*`,
		`a \w+ needs a cluster's controllers.*`,
		`podd runs Pods on one node; .*`,
		`.*; remove the document, or leave it`,
	}},
	{"the text cannot be parsed, and only its writer knows what was meant", []string{
		`(look for|quote strings|close the quotes|a quote is not closed|is the file complete).*`,
		`(a field is written|the line is indented|the fields of one object).*`,
		`a string that begins with .*`,
		`within (single|double) quotes .*`,
		`is a (blank missing|template placeholder) .*`,
		`this looks like an alias bomb.*`,
		`(retype the line|it contains an invisible).*`,
	}},
}

// TestFollowingAHintMendsItsProblem applies the edit of each hint of the golden files: the
// problem is gone then, and no other has come. A hint without an edit must be among the
// choices.
func TestFollowingAHintMendsItsProblem(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	edits := 0
	used := map[string]bool{}
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if strings.HasSuffix(f.Name, ".want") {
				continue
			}
			r := decode(f.Data, options(f.Name))
			for i, p := range r.Problems {
				switch {
				case r.edits[i] != nil:
					edits++
					follow(t, f, r, i)
				case p.Hint != "" && !isChoice(p.Hint, used):
					t.Errorf("%s: %s\n\tno edit, and not among the choices: %s", path, p, p.Hint)
				}
			}
		}
	}
	const least = 60
	if edits < least && !t.Failed() {
		t.Errorf("got %d edits, want at least %d", edits, least)
	}
	for _, c := range choices {
		for _, hint := range c.hints {
			if !used[hint] && !t.Failed() {
				t.Errorf("no golden file has the hint %s", hint)
			}
		}
	}
}

func isChoice(hint string, used map[string]bool) bool {
	for _, c := range choices {
		for _, known := range c.hints {
			if regexp.MustCompile("^" + known + "$").MatchString(hint) {
				used[known] = true
				return true
			}
		}
	}
	return false
}

// follow applies the edit of the i-th problem.
func follow(t *testing.T, f txtar.File, r *reader, i int) {
	t.Helper()
	text := apply(r.edits[i], f.Data)
	if text == nil {
		t.Errorf("%s\n\tthe edit %+v does not apply", r.Problems[i], *r.edits[i])
		return
	}
	before, problem := map[string]int{}, complaint(r.Problems[i].Message, r.Problems[i].Field)
	for _, p := range r.Problems {
		before[complaint(p.Message, p.Field)]++
	}
	after := map[string]int{}
	for _, p := range decode(text, options(f.Name)).Problems {
		said := complaint(p.Message, p.Field)
		if after[said]++; after[said] > before[said] {
			t.Errorf("%s\n\tfollowing it makes: %s", r.Problems[i], p)
		}
	}
	if after[problem] >= before[problem] {
		t.Errorf("%s\n\tis still there after %+v", r.Problems[i], *r.edits[i])
	}
}

// complaint identifies a problem, wherever it has moved to.
func complaint(message, field string) string {
	return fmt.Sprintf("%s: %s", numbers.ReplaceAllString(field, "[]"), firstOn.ReplaceAllString(message, ""))
}

var (
	numbers = regexp.MustCompile(`\[\d+\]`)
	firstOn = regexp.MustCompile(` \(first on line \d+\)`)
)

// apply changes a text; nil if the text does not have what the edit replaces.
func apply(e *advice.Edit, text []byte) []byte {
	begin := 0
	for range e.Line - 1 {
		i := bytes.IndexByte(text[begin:], '\n')
		if i < 0 {
			return nil
		}
		begin += i + 1
	}
	end := len(text)
	if i := bytes.IndexByte(text[begin:], '\n'); i >= 0 {
		end = begin + i
	}
	from := min(begin+max(e.Column-1, 0), end)
	i := bytes.Index(text[from:end], []byte(e.Old))
	if i < 0 {
		return nil
	}
	from += i
	var out []byte
	out = append(out, text[:from]...)
	out = append(out, e.New...)
	return append(out, text[from+len(e.Old):]...)
}

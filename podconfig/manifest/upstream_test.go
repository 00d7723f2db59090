package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	"podd/internal/strictyaml"
	"podd/podconfig/manifest/advice"
)

// upstreamDecode is the way of one document through the kubelet and the
// apiserver: YAML to JSON, unless it is JSON already, and that decoded
// case-sensitively. An error that strict decoding alone has (unknown and
// duplicate fields) counts.
func upstreamDecode[T any](text []byte) (*T, error) {
	if !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		var err error
		if text, err = sigsyaml.YAMLToJSON(text); err != nil {
			return nil, err
		}
	}
	p := new(T)
	strict, err := kjson.UnmarshalStrict(text, p)
	any(p).(metav1.Object).SetManagedFields(nil)
	return p, errors.Join(append(strict, err)...)
}

// poddDecode is podd's, without defaulting and validation.
func poddDecode[T any](text []byte) (*T, error) {
	chunks := slices.Collect(strictyaml.Split(text))
	if len(chunks) != 1 {
		return nil, fmt.Errorf("%d documents", len(chunks))
	}
	p := new(T)
	var faults []advice.Fault
	parse(chunks[0], func(n *yaml.Node, bad *advice.Fault) bool {
		if bad != nil {
			faults = append(faults, *bad)
			return true
		}
		d := &decoding{}
		d.decode(n, p)
		faults = append(faults, d.faults...)
		return true
	})
	if len(faults) > 0 {
		return nil, fmt.Errorf("%s: %s", faults[0].Field, faults[0].Message)
	}
	any(p).(metav1.Object).SetManagedFields(nil)
	return p, nil
}

// disagreement is what the two decoders make differently of a text, of which they
// make a T; "" when both refuse it, or make the same of it.
func disagreement[T any](text []byte) string {
	want, upstream := upstreamDecode[T](text)
	got, podd := poddDecode[T](text)
	switch {
	case upstream != nil && podd != nil:
		return ""
	case upstream != nil:
		return fmt.Sprintf("podd takes it, upstream says: %v", upstream)
	case podd != nil:
		return fmt.Sprintf("upstream takes it, podd says: %v", podd)
	}
	return cmp.Diff(want, got)
}

// slots are places of each type that a Pod's fields have; $ is the scalar.
var slots = map[string]string{
	"int32":              "spec: {containers: [{ports: [{containerPort: $\n}]}]}",
	"int64":              "spec:\n  terminationGracePeriodSeconds: $\n",
	"bool":               "spec:\n  hostNetwork: $\n",
	"*bool":              "spec:\n  automountServiceAccountToken: $\n",
	"string":             "spec:\n  hostname: $\n",
	"enum":               "spec:\n  restartPolicy: $\n",
	"item":               "spec:\n  containers:\n  - args:\n    - $\n",
	"flow item":          "spec: {containers: [{args: [$\n]}]}",
	"annotation":         "metadata:\n  annotations:\n    a: $\n",
	"name":               "metadata:\n  labels:\n    $: x\n",
	"quantity":           "spec:\n  overhead:\n    cpu: $\n",
	"*quantity":          "spec:\n  volumes:\n  - emptyDir:\n      sizeLimit: $\n",
	"port":               "spec:\n  containers:\n  - livenessProbe:\n      httpGet:\n        port: $\n",
	"time":               "metadata:\n  creationTimestamp: $\n",
	"object":             "spec:\n  securityContext: $\n",
	"list":               "spec:\n  containers: $\n",
	"map":                "metadata:\n  labels: $\n",
	"JSON int":           `{"spec":{"terminationGracePeriodSeconds":$}}`,
	"JSON bool":          `{"spec":{"hostNetwork":$}}`,
	"JSON text":          `{"spec":{"hostname":$}}`,
	"JSON amount":        `{"spec":{"overhead":{"cpu":$}}}`,
	"ConfigMap's text":   "data:\n  a: $\n",
	"ConfigMap's bytes":  "binaryData:\n  a: $\n",
	"ConfigMap's data":   "data: $\n",
	"Secret's bytes":     "data: {a: $\n}\n",
	"Secret's text":      "stringData:\n  a: $\n",
	"Secret's type":      "type: $\n",
	"Secret's immutable": "immutable: $\n",
	"JSON port":          `{"spec":{"containers":[{"livenessProbe":{"tcpSocket":{"port":$}}}]}}`,
}

// scalars are what people write, and what they do not.
var scalars = strings.Fields(`
0 1 -1 +1 007 010 08 0o17 0O17 0x1F -0x1F 0X1f +0x1 0b11 -0b11 0b+1 0b-1 -0b-1 0b2 1_000 1_0.5 _1 1_ 0x_1 0_7 1__0
1.0 80.0 1000.0 1e3 1E3 1e+3 1e-3 1.5e3 .5 .5e1 5. +.5 -.5 -0 -0.0 1e20 1e21 1e400 0.10 1.10 0755 00 0.0 1.7976931348623157e308
2147483647 2147483648 -2147483649 9223372036854775807 9223372036854775808 18446744073709551615 18446744073709551616 123456789012345678901234567890
.inf -.inf +.inf .Inf .INF .nan .NaN +.nan inf NaN nan . .. .a ._5 .5_0
true True TRUE tRUE false yes Yes YES yEs no No on On ON off Off OFF y Y n N
null Null NULL nULL ~ ~a << <<x = 2001-12-14 2001-12-14t21:59:43.10-05:00 2001-12-14T21:59:43Z 2001-1-2 2001-13-45 190:20:30 1:2 12:30:45
"" '' "1" '1' "010" "true" 'no' "1e3" "~" "null" "80" "0x50" "100m" '100m' "\x31" "1.10"
!!str !!null !!int !!str|1 !!int|1 !!int|1.0 !!int|"1" !!int|x !!float|1 !!float|010 !!float|1.5 !!float|x !!float|.inf !!bool|yes !!bool|"yes" !!bool|1
!!bool|x !!null|~ !!null|x !!null|"" !!timestamp|2001-12-14 !!timestamp|"2001-12-14" !!timestamp|x !!str|yes !!str|2001-12-14 !|1 !|yes
100m 128Mi 1Ki 1ki 1K 1k 1e3Mi 0x100 0b100 1_000Mi 1_000 1.5Gi .5Gi -1 1E 1e 1Ei 12345678901234567890 0.5 .5 1.123456789012 1e-9 1n 1u 99999999999999999999Ei
a a-b http a/b a:b a#b a=b x.y.z 1.2.3 1-2 v1 0x 0xg 0b 0o 1e 1e+ - + -a +a ? ?a :a @a %a *a &a &a|1 |a >a [] {} [1] {a:|b} [a,|b] "a|b"
`)

// stricterOnPurpose says why podd refuses a scalar that upstream takes there; ""
// when it must not.
func stricterOnPurpose(slot, scalar string) string {
	switch {
	case strings.HasPrefix(scalar, "!!binary"):
		return "upstream decodes base64 into a text, which a person would not see in the file"
	case strings.HasPrefix(scalar, "!") && !coreTag.MatchString(scalar):
		return "upstream reads a value with a tag of nobody's as a text: nobody knows what its writer meant"
	case strings.HasSuffix(slot, "bytes") && strings.HasPrefix(scalar, "["):
		return "upstream takes a list of numbers for bytes, which is none that people write"
	case slot == "name":
		return "upstream renames the label: 010 becomes 8, 1.0 becomes 1, and yes becomes true"
	}
	return ""
}

var coreTag = regexp.MustCompile(`^!!(str|int|float|bool|null|timestamp)( |$)`)

// readAnother says why podd makes another value of a scalar than upstream.
func readAnother(slot, scalar string) string {
	switch {
	case scalar == "!", strings.HasPrefix(scalar, "! "):
		return "a lone ! makes a text of what follows; podd's parser does not tell of it"
	case strings.HasPrefix(slot, "JSON amount") && strings.Contains(scalar, `\`):
		return "upstream takes the escape for part of the quantity; podd reads JSON"
	}
	return ""
}

// compareScalar fails unless the decoders agree about a scalar in a slot.
func compareScalar(t *testing.T, slot, scalar string) (compared bool) {
	t.Helper()
	text := "apiVersion: v1\n" + strings.Replace(slots[slot], "$", scalar, 1)
	if strings.HasPrefix(slot, "JSON") {
		text = strings.Replace(slots[slot], "$", scalar, 1)
		if _, err := kjson.UnmarshalStrict([]byte(scalar), new(any)); err != nil {
			return false // podd reads it as YAML, the kubelet not at all
		}
	}
	decode := disagreement[v1.Pod]
	switch {
	case strings.HasPrefix(slot, "ConfigMap"):
		decode = disagreement[v1.ConfigMap]
	case strings.HasPrefix(slot, "Secret"):
		decode = disagreement[v1.Secret]
	}
	differ := decode([]byte(text))
	refused := strings.HasPrefix(differ, "upstream takes it")
	if differ == "" || refused && stricterOnPurpose(slot, scalar) != "" || readAnother(slot, scalar) != "" {
		return true
	}
	t.Errorf("%s %s: %s", slot, scalar, differ)
	return true
}

// TestScalarsAgreeWithUpstreamsDecoder writes each scalar into a field of each
// type: both decoders refuse it, or make the same of it.
func TestScalarsAgreeWithUpstreamsDecoder(t *testing.T) {
	compared := 0
	for slot := range slots {
		for _, s := range scalars {
			if compareScalar(t, slot, strings.ReplaceAll(s, "|", " ")) {
				compared++
			}
		}
	}
	// And what nobody would think of, the same ones each time.
	random := rand.New(rand.NewPCG(7, 15))
	names := make([]string, 0, len(slots))
	for slot := range slots {
		names = append(names, slot)
	}
	const alphabet, more = `00123789+-._eExXbBoOTZ:~yYnNsSfFaAlLuU<KMGi!"'`, 6_000
	for range more {
		scalar := make([]byte, 1+random.IntN(7))
		for i := range scalar {
			scalar[i] = alphabet[random.IntN(len(alphabet))]
		}
		for _, slot := range []string{names[random.IntN(len(names))], "int64", "quantity"} {
			if compareScalar(t, slot, string(scalar)) {
				compared++
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d scalars in their places were compared", compared)
}

// TestStructureAgreesWithUpstreamsDecoder is the same for what holds scalars.
func TestStructureAgreesWithUpstreamsDecoder(t *testing.T) {
	for name, text := range map[string]string{
		"merge before":       "metadata: &m {name: a, namespace: b}\nspec:\n  nodeSelector:\n    <<: {a: x, b: x}\n    b: y\n",
		"merge behind":       "spec:\n  nodeSelector:\n    b: y\n    <<: {a: x, b: x}\n",
		"merge of a list":    "spec:\n  nodeSelector:\n    <<: [{a: \"1\", b: \"1\"}, {a: \"2\", c: \"2\"}]\n    c: \"3\"\n",
		"merge by alias":     "metadata:\n  labels: &l {a: b, c: d}\n  annotations:\n    <<: *l\n    c: e\n",
		"merge of merges":    "metadata:\n  labels: &l {a: b, c: d}\n  annotations: &n {<<: *l, e: f}\nspec: {nodeSelector: {<<: *n, a: z}}\n",
		"merge of a text":    "spec: {nodeSelector: {<<: x}}\n",
		"merge of a list by": "metadata:\n  annotations: {<<: &l [{a: b}]}\n  labels: {<<: *l}\n",
		"quoted <<":          "metadata: {labels: {\"<<\": x}}\n",
		"alias":              "metadata: {name: &n web, namespace: *n}\n",
		"alias as a name":    "metadata: {name: &n web, labels: {*n : x}}\n",
		"null in a list":     "spec: {containers: [null, {name: a}]}\n",
		"null in a map":      "spec: {overhead: {cpu: }}\nmetadata: {labels: {a: }}\n",
		"null everywhere":    "metadata:\nspec:\n  containers:\n  - name:\n    ports:\n    livenessProbe:\n    resources:\n",
		"empty":              "metadata: {}\nspec: {containers: [], volumes: [{}]}\n",
		"block texts":        "metadata:\n  annotations:\n    a: |\n      1\n    b: >-\n      1\n      2\n    c: |+\n      x\n\n",
		"plain over lines":   "metadata:\n  annotations:\n    a: x\n      y\n    b: 1\n      2\n",
		"escapes":            `metadata: {annotations: {a: "\x41\u00e9\U0001F600\n\/\_\N", b: 'it''s'}}` + "\n",
		"JSON escapes":       `{"metadata":{"annotations":{"a":"\u0041\u00e9\ud83d\ude00\n\/","b":"\ud800"}}}`,
		"wrong case":         "Metadata: {name: x}\n",
		"line ends":          "metadata:\r\n  name: x\r\n  annotations:\r\n    a: \"1\r\n      2\"\r\n",
		"old line ends":      "metadata:\r  name: x\u0085  namespace: y\u2028",
		"byte order mark":    "\ufeffmetadata: {name: x}\n",
		"an end":             "metadata: {name: x}\n...\n",
		"a comment":          "metadata: {name: x} # {\n# }\n",
		"unknown":            "metadata: {nam: x}\n",
		"top list":           "- a\n",
		"two values":         "{\"metadata\":{}} {}",
	} {
		if differ := disagreement[v1.Pod]([]byte(text)); differ != "" && name != "two values" { // a stream of JSON, which the kubelet does not take
			t.Errorf("%s: %s", name, differ)
		}
	}
}

// TestManifestsAgreeWithUpstreamsDecoder decodes every manifest of testdata that
// podd takes, and compares.
func TestManifestsAgreeWithUpstreamsDecoder(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/valid.txtar")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, f := range archive.Files {
		if strings.HasSuffix(f.Name, ".want") {
			continue
		}
		for c := range strictyaml.Split(f.Data) {
			got, err := poddDecode[v1.Pod](c.Text)
			if err != nil || got.Kind != "Pod" || bytes.TrimSpace(c.Text)[0] == '{' && !json.Valid(c.Text) {
				continue // the kubelet takes no row of objects, and no {a: b}
			}
			if differ := disagreement[v1.Pod](c.Text); differ != "" {
				t.Errorf("%s: %s", f.Name, differ)
			}
			compared++
		}
	}
	if compared < 20 {
		t.Errorf("only %d manifests were compared", compared)
	}
}

// FuzzAgreesWithUpstreamsDecoder looks for texts of one document that the
// decoders read differently. What podd refuses on purpose is left aside.
func FuzzAgreesWithUpstreamsDecoder(f *testing.F) {
	archives, _ := filepath.Glob("testdata/*.txtar")
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if !strings.HasSuffix(file.Name, ".want") {
				f.Add(file.Data)
			}
		}
	}
	for _, slot := range slots {
		for _, s := range scalars {
			f.Add([]byte(strings.Replace(slot, "$", strings.ReplaceAll(s, "|", " "), 1)))
		}
	}
	lone := regexp.MustCompile(`!\s`)
	f.Fuzz(func(t *testing.T, text []byte) {
		message, _ := unreadable(text)
		if lone.Match(text) || bytes.Contains(text, []byte(`\u`)) {
			return // see readAnother
		}
		if message == "" {
			misread[v1.Pod](t, text)
			misread[v1.ConfigMap](t, text)
			misread[v1.Secret](t, text)
		}
	})
}

// misread fails where both decoders take a text, and make something else of it.
func misread[T any](t *testing.T, text []byte) {
	t.Helper()
	got, podd := poddDecode[T](text)
	want, upstream := upstreamDecode[T](text)
	if podd != nil || upstream != nil {
		return // of refusals the table tells
	}
	if differ := cmp.Diff(want, got); differ != "" {
		t.Errorf("%q: %s", text, differ)
	}
}

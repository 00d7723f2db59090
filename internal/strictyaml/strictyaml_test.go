package strictyaml

import (
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/podconfig/manifest/hostile"
)

var testBounds = Bounds{Bytes: 3 << 20, Marks: 300_000, Nodes: 250_000, Text: 16 << 20, Depth: 1000}

type sample struct {
	metav1.TypeMeta `json:",inline"`

	Name   string                       `json:"name"`
	Count  *int32                       `json:"count"`
	On     bool                         `json:"on"`
	Wait   metav1.Duration              `json:"wait"`
	Labels map[string]string            `json:"labels"`
	Sizes  map[string]resource.Quantity `json:"sizes"`
	Items  []sample                     `json:"items"`
	Data   []byte                       `json:"data"`
}

// decodeSample returns a value of a text, and the errors in it.
func decodeSample(t *testing.T, text string, memory int) (s sample, told []string) {
	t.Helper()
	n, err := Parse([]byte(text), testBounds)
	if err != nil {
		t.Fatal(err)
	}
	Decode(n, &s, Options{Memory: memory, Report: func(e *Error) bool {
		told = append(told, strings.TrimPrefix(e.Error(), "line "))
		return true
	}})
	return s, told
}

func TestEveryErrorIsReportedWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"name: 1\ncount: x\non: 'yes'\nwait: soon\n": "1: name: wrong type,2: count: wrong type,3: on: wrong type,4: wait: wrong type",
		"nam: x\nname: a\nname: b\n":                 "3: name: duplicate field,1: nam: unknown field",
		"items:\n- name: {}\n- sizes: {a: 1x}\n":     "2: items[0].name: wrong type,3: items[1].sizes[a]: wrong type",
		"labels: {yes: a, 1.10: b, 80: c}\n":         "1: labels[yes]: the name is not a string to Kubernetes: put it in quotes,1: labels[1.10]: the name is not a string to Kubernetes: put it in quotes",
		"labels: {<<: a, {b: c}: d}\n":               "1: labels: << takes an object,1: labels: the name is not a string",
		"data: [1]\nlabels: []\nitems: {}\n":         "1: data: wrong type,2: labels: wrong type,3: items: wrong type",
		"count: .inf\non: !mine true\n":              "1: count: wrong type,2: on: wrong type",
	} {
		if _, told := decodeSample(t, text, 0); strings.Join(told, ",") != want {
			t.Errorf("%s: got %q, want %s", text, told, want)
		}
	}
}

func TestValuesAreUpstreams(t *testing.T) {
	s, told := decodeSample(t, "kind: x\nname: &n <a>\ncount: 0x10\non: yes\nwait: 1m\nsizes: {cpu: 1e3}\ndata: eA==\nlabels: &l {a: *n}\nitems:\n- labels: {<<: *l, b: c}\n  name:\n", 0)
	q := s.Sizes["cpu"]
	got := fmt.Sprintf("%s %s %d %v %s %s %s %v %v", s.Kind, s.Name, *s.Count, s.On, s.Wait.Duration, q.String(), s.Data, s.Labels, s.Items[0].Labels)
	if want := "x <a> 16 true 1m0s 1k x map[a:<a>] map[a:<a> b:c]"; len(told) > 0 || got != want {
		t.Errorf("got %s, %v, want %s", got, told, want)
	}
	// Of two fields of one name the last holds, and an unknown one is left out.
	if s, _ := decodeSample(t, "name: a\nbogus: 1\nname: b\n", 0); s.Name != "b" {
		t.Errorf("got %q, want the last", s.Name)
	}
}

// TestWhatAnAliasRepeatsTakesMemory: a decoded text is a copy.
func TestWhatAnAliasRepeatsTakesMemory(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for text, want := range map[string]bool{
		"name: " + long + "\n": false,
		"name: &a " + long + "\nlabels: {a: *a, b: *a, c: *a}\n":              true,
		"labels: &l {a: " + long + "}\nitems: [{labels: {<<: *l, b: \"1\"}}]": false,
	} {
		if _, told := decodeSample(t, text, 3000); (len(told) > 0) != want {
			t.Errorf("%.30s: got %v, want an error %v", text, told, want)
		}
	}
}

// TestMarksAreNeverTooFew: what the YAML parser makes of a text is bounded by what
// was counted in it.
func TestMarksAreNeverTooFew(t *testing.T) {
	check := func(name string, text []byte) {
		first, _, err := read(text)
		if err != nil || first == nil {
			return
		}
		if nodes, most := count(first), 2+2*marksOf(text); nodes > most {
			t.Errorf("%s: %d nodes of %d marks", name, nodes, marksOf(text))
		}
	}
	for _, in := range hostile.Inputs() {
		check(in.Name, in.Text(4<<10))
	}
	for _, text := range []string{"? a\n: b\n", "- - - a: b\n", "[a: b, c: d]", "[? a : b]", "{a, b, c}", "[: , : ]", "{? a, ? b}", "- ? - a\n", "a:\n- b\n-\n", "[[[]]]", "{a: {b: }}",
		"&a ? &b x\n: *b\n", "\"a\": 'b'\n", "[\"a\":b,\"c\":d]", "a:\u0085b:\u2028c: d\n", "- !t\n- &a\n", "? ? ? a\n"} {
		check(text, []byte(text))
	}
}

// count is how many nodes there are, aliases not followed.
func count(n *yaml.Node) int {
	all := 1
	for _, c := range n.Content {
		all += count(c)
	}
	return all
}

package versions

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	all, err := Parse("# a comment\nKUBERNETES=1.2.3\n\nRUNC=4.5.6\n")
	if err != nil || len(all) != 2 || all["KUBERNETES"] != "1.2.3" || all["RUNC"] != "4.5.6" {
		t.Errorf("got %v, %v", all, err)
	}
	for text, want := range map[string]string{
		"KUBERNETES=1.2.3\nRUNC = 4.5.6":        `line 2: "RUNC = 4.5.6" is not NAME=1.2.3`,
		"KUBERNETES=v1.2.3":                     "line 1",
		"KUBERNETES=1.2":                        "line 1",
		"KUBERNETES":                            "line 1",
		"KUBERNETES=1.2.3\nKUBERNETES=1.2.4":    "line 2: KUBERNETES was given before",
		"RUNC=1.2.3":                            "no KUBERNETES",
		"KUBERNETES=1.2.3 # not a comment here": "line 1",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
}

func TestKubernetesMinor(t *testing.T) {
	if Kubernetes != "v"+All()["KUBERNETES"] || !strings.HasPrefix(Kubernetes, "v"+KubernetesMinor+".") || strings.Count(KubernetesMinor, ".") != 1 {
		t.Errorf("%s, %s", Kubernetes, KubernetesMinor)
	}
}

package imageref

import (
	"strings"
	"testing"
)

func TestNamesInFull(t *testing.T) {
	for ref, want := range map[string]string{
		"busybox":                "docker.io/library/busybox:latest",
		"busybox:1":              "docker.io/library/busybox:1",
		"localhost/podd/web:1":   "localhost/podd/web:1",
		"registry.test/a/b":      "registry.test/a/b:latest",
		"registry.test:5000/a:2": "registry.test:5000/a:2",
		"registry.test/UPPER:1":  "",
		"":                       "",
	} {
		if got := Full(ref); got != want {
			t.Errorf("%q: got %q, want %q", ref, got, want)
		}
	}
}

func TestTheTagThatIsMeant(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for ref, want := range map[string]string{
		"busybox": "busybox:latest", "busybox:1": "busybox:1", "busybox" + digest: "busybox" + digest, "reg.test:5000/a": "reg.test:5000/a:latest",
	} {
		if got, err := WithTag(ref); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", ref, got, err, want)
		}
	}
	if _, err := WithTag("A:1"); err == nil || !strings.Contains(err.Error(), `couldn't parse image name "A:1"`) {
		t.Errorf("upper case: got %v", err)
	}
}

func TestTheRegistryOfAName(t *testing.T) {
	for ref, want := range map[string]string{"busybox": "docker.io", "reg.test:5000/a:1": "reg.test:5000", "localhost/a": "localhost", "A:1": "A:1"} {
		if got := Registry(ref); got != want {
			t.Errorf("%q: got %q, want %q", ref, got, want)
		}
	}
}

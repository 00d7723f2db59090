package capacity

import (
	"os"
	"path/filepath"
	"testing"
)

func TestInUserNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"the machine's first one": {"         0          0 4294967295\n", false},
		"root alone":              {"         0       1000          1\n", true},
		"a range":                 {"         0     100000      65536\n", true},
		"several ranges":          {"0 1000 1\n1 100000 65536\n", true},
		"a kernel without any":    {"", false},
	} {
		file := filepath.Join(t.TempDir(), "uid_map")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := inUserNamespace(file); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	if inUserNamespace(filepath.Join(t.TempDir(), "no-such-file")) {
		t.Error("without the file: got true, want false")
	}
}

package deptest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// sharers are modules of tests that make test compiles: where one has another version of a
// module that podd links, everything above that is compiled once more, which took minutes.
var sharers = []string{"test/csidriver", "test/deviceplugin", "test/dradriver", "test/parity"}

var (
	requirement = regexp.MustCompile(`(?m)^\s*(?:require )?([a-z0-9.-]+\.[a-z]+/\S+) (v\S+)`)
	// staging modules are replaced, all of them by one version.
	staging = regexp.MustCompile(`^k8s\.io/(api|apimachinery|apiserver|client-go|component|controller|cri|kubelet)`)
)

// required returns the versions that a go.mod requires, by module, without staging modules.
func required(t *testing.T, dir string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, m := range requirement.FindAllStringSubmatch(string(text), -1) {
		if !staging.MatchString(m[1]) {
			all[m[1]] = m[2]
		}
	}
	return all
}

func TestModulesOfTestsHavePoddsVersions(t *testing.T) {
	podds := required(t, ".")
	if len(podds) < 50 {
		t.Fatalf("podd requires %d modules only: the pattern is wrong", len(podds))
	}
	for _, dir := range sharers {
		shared := 0
		for path, version := range required(t, dir) {
			if podds[path] == "" {
				continue
			}
			if shared++; version != podds[path] {
				t.Errorf("%s/go.mod has %s %s, podd %s: go mod edit -require=%s@%s && go mod tidy", dir, path, version, podds[path], path, podds[path])
			}
		}
		if shared == 0 {
			t.Errorf("%s shares no module with podd", dir)
		}
	}
}

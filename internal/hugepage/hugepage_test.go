package hugepage_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/hugepage"
)

func TestPagesOfTheKernel(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"hugepages-2048kB/nr_hugepages": "3\n", "hugepages-1048576kB/nr_hugepages": "0\n",
		"other/nr_hugepages": "5\n", "hugepages-fewkB/nr_hugepages": "7\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := hugepage.Reserved(dir), (map[int64]int64{2 << 20: 3, 1 << 30: 0}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := hugepage.Reserved(filepath.Join(dir, "none")); len(got) != 0 {
		t.Errorf("a kernel without them: got %v, want none", got)
	}
}

func TestSizeOfAResource(t *testing.T) {
	for name, want := range map[v1.ResourceName]struct {
		size     int64
		ok, fail bool
	}{
		"hugepages-2Mi":  {2 << 20, true, false},
		"hugepages-1Gi":  {1 << 30, true, false},
		"hugepages-many": {0, true, true},
		"memory":         {},
	} {
		size, ok, err := hugepage.ResourceSize(name)
		if size != want.size || ok != want.ok || (err != nil) != want.fail {
			t.Errorf("%s: got %d, %v, %v, want %+v", name, size, ok, err, want)
		}
	}
}

func TestNameOfASize(t *testing.T) {
	for size, want := range map[int64]string{512: "512B", 64 << 10: "64KB", 2 << 20: "2MB", 1 << 30: "1GB", 16 << 30: "16GB"} {
		if got := hugepage.CgroupName(size); got != want {
			t.Errorf("%d: got %s, want %s", size, got, want)
		}
	}
}

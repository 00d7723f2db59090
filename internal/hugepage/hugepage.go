package hugepage

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Dir is where the kernel lists its huge pages.
const Dir = "/sys/kernel/mm/hugepages"

// Reserved returns how many pages are reserved, by size in bytes; empty for a kernel
// without huge pages. dir is Dir, except in tests.
func Reserved(dir string) map[int64]int64 {
	pages := map[int64]int64{}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		kb, ok := strings.CutPrefix(e.Name(), "hugepages-")
		size, err := strconv.ParseInt(strings.TrimSuffix(kb, "kB"), 10, 64)
		if !ok || err != nil {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(dir, e.Name(), "nr_hugepages"))
		number, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		pages[size<<10] = number
	}
	return pages
}

// ResourceSize returns the page size of a resource, in bytes. ok says that it is a huge page
// resource; the error says that its name has no valid size.
func ResourceSize(name v1.ResourceName) (bytes int64, ok bool, err error) {
	text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !ok {
		return 0, false, nil
	}
	size, err := resource.ParseQuantity(text)
	return size.Value(), true, err
}

// CgroupName returns a size as in the kernel's cgroup files and in runc: 2097152 is 2MB.
func CgroupName(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for bytes >= 1024 && bytes%1024 == 0 && i < len(units)-1 {
		bytes /= 1024
		i++
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}

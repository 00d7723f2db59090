// Package hugepage converts between the three names of huge pages: the resource of a
// pod (hugepages-2Mi), the kernel's directories (hugepages-2048kB) and its cgroup
// files, which OCI runtimes use (2MB). It has no state.
package hugepage

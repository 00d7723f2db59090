// Package hugepage knows huge pages by their three names: the resource of a pod
// (hugepages-2Mi), the kernel's directories (hugepages-2048kB) and its cgroup
// files, which OCI runtimes follow (2MB). It keeps no state.
package hugepage

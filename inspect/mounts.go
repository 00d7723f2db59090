package inspect

import (
	"fmt"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
)

// compareMounts compares each mount of the manifest, and lists what else the
// runtime mounts.
func (x *comparison) compareMounts() {
	known := map[string]bool{}
	for i := range x.Container.VolumeMounts {
		m := &x.Container.VolumeMounts[i]
		path := "/" + strings.Trim(m.MountPath, "/")
		known[path] = true
		given := x.mountAt(path)
		if given == nil {
			x.row(path, wantedMount(m), "", true)
			continue
		}
		x.row(path, wantedMount(m), actualMount(given, x.source(given)), !mountMatches(m, x.readOnly(m), given))
	}
	for i := range x.Spec.Mounts {
		m := &x.Spec.Mounts[i]
		if known[m.Destination] {
			continue
		}
		manifest := ""
		if m.Destination == x.Container.TerminationMessagePath {
			manifest = "terminationMessagePath"
		}
		x.row(m.Destination, manifest, actualMount(m, m.Source), false)
	}
}

// readOnly says whether a mount must be read-only. Some volumes always are, such as those
// with values from the API (upstream's Attributes.ReadOnly).
func (x *comparison) readOnly(m *v1.VolumeMount) bool {
	for i := range x.Pod.Spec.Volumes {
		if v := &x.Pod.Spec.Volumes[i]; v.Name == m.Name {
			return m.ReadOnly || v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil || v.Image != nil ||
				v.CSI != nil && v.CSI.ReadOnly != nil && *v.CSI.ReadOnly || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
		}
	}
	return m.ReadOnly
}

// mountAt returns the last mount at a path, which hides the others.
func (x *comparison) mountAt(path string) *specs.Mount {
	for i, m := range slices.Backward(x.Spec.Mounts) {
		if "/"+strings.Trim(m.Destination, "/") == path {
			return &x.Spec.Mounts[i]
		}
	}
	return nil
}

// wantedMount describes a mount of the manifest.
func wantedMount(m *v1.VolumeMount) string {
	words := []string{"volume " + m.Name}
	if m.SubPath != "" {
		words = append(words, "subPath "+m.SubPath)
	}
	if m.SubPathExpr != "" {
		words = append(words, "subPathExpr "+m.SubPathExpr)
	}
	if m.ReadOnly {
		words = append(words, "readOnly")
	}
	if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled {
		words = append(words, "recursiveReadOnly "+string(*m.RecursiveReadOnly))
	}
	if m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
		words = append(words, string(*m.MountPropagation))
	}
	return strings.Join(words, ", ")
}

func actualMount(m *specs.Mount, source string) string {
	return fmt.Sprintf("%s (%s: %s)", source, m.Type, strings.Join(m.Options, ","))
}

// mountMatches reports whether the mount's options are those that the manifest asks
// for.
func mountMatches(m *v1.VolumeMount, readOnly bool, given *specs.Mount) bool {
	has := func(option string) bool { return slices.Contains(given.Options, option) }
	if readOnly != (has("ro") || has("rro")) {
		return false
	}
	if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled && !has("rro") {
		return false
	}
	switch mode := m.MountPropagation; {
	case mode == nil || *mode == v1.MountPropagationNone:
		return !has("rshared") && !has("shared")
	case *mode == v1.MountPropagationHostToContainer:
		return has("rslave")
	default:
		return has("rshared")
	}
}

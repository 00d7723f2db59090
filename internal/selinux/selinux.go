// Package selinux computes the labels of files for pods with seLinuxOptions, so that volumes
// can be mounted with them (KEP-1710). Everything but Find and LabelOf is pure.
package selinux

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Labels computes labels on a node with SELinux. A nil Labels is a node without SELinux, where
// no volume has a label.
type Labels struct {
	// file is the policy's label of containers' files: user, role, type, level.
	file [4]string
}

// Find returns the node's labels, or nil if SELinux is off or its policy knows no
// containers. Like the container runtimes (opencontainers/selinux), it reads the policy's label
// of containers' files from the first of two files that has it. It then asks the kernel whether
// the label is valid: Debian 12's file names a type that its policy does not have, and the
// kernel would reject every mount.
func Find() *Labels {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil {
		return nil
	}
	policy := value("/etc/selinux/config", "SELINUXTYPE")
	label := cmp.Or(
		value("/usr/share/containers/selinux/contexts", "file"),
		value(filepath.Join("/etc/selinux", policy, "contexts/lxc_contexts"), "file"),
	)
	if label == "" || os.WriteFile("/sys/fs/selinux/context", []byte(label), 0) != nil {
		return nil
	}
	return New(label)
}

// New returns the Labels for the policy's label of containers' files, such as
// system_u:object_r:container_file_t:s0. It returns nil for a label without a level.
func New(file string) *Labels {
	parts := strings.SplitN(file, ":", 4)
	if len(parts) < 4 {
		return nil
	}
	return &Labels{[4]string(parts)}
}

// value returns a key's value in a file of "key = value" lines; "" if there is none.
func value(file, key string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "="); ok && strings.TrimSpace(name) == key {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return ""
}

// LabelError says that seLinuxOptions do not make a valid label.
type LabelError struct{ message string }

func (e *LabelError) Error() string { return e.message }

// ConflictError says that containers of a pod have different labels and share a volume.
type ConflictError struct{ labels []string }

func (e *ConflictError) Error() string {
	return "multiple SELinux labels found: " + strings.Join(e.labels, ",") // upstream's words
}

// OfVolume returns the label with which to mount a pod's volume, so that the runtime need not
// relabel its files. It is "" if SELinux is off, if the pod's seLinuxChangePolicy is Recursive,
// or if a container sets no level, because the runtime then chooses one. As upstream,
// containers without seLinuxOptions do not count. The error is a *LabelError or a
// *ConflictError.
func (l *Labels) OfVolume(p *v1.Pod, volume string) (string, error) {
	if l == nil || relabels(p) {
		return "", nil
	}
	var labels []string
	for c := range pod.ContainerSpecs(&p.Spec) {
		if !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume }) {
			continue
		}
		o := pod.SecurityContext(p, c).SELinuxOptions
		if o == nil {
			continue
		}
		if o.Level == "" {
			return "", nil
		}
		label, err := l.label(o)
		if err != nil {
			return "", err
		}
		if !slices.Contains(labels, label) {
			labels = append(labels, label)
		}
	}
	switch len(labels) {
	case 0:
		return "", nil
	case 1:
		return labels[0], nil
	default:
		slices.Sort(labels)
		return "", &ConflictError{labels}
	}
}

// OfAllContainers is OfVolume where each container that mounts the volume has the label by its
// own seLinuxOptions or the pod's; otherwise "".
func (l *Labels) OfAllContainers(p *v1.Pod, volume string) string {
	label, err := l.OfVolume(p, volume)
	if err != nil || label == "" {
		return ""
	}
	for c := range pod.ContainerSpecs(&p.Spec) {
		mounts := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume })
		if mounts && pod.SecurityContext(p, c).SELinuxOptions == nil {
			return ""
		}
	}
	return label
}

// LabelOf returns the SELinux label of a file; "" if it has none or does not exist.
func LabelOf(path string) string {
	const longest = 4096 // bytes, of any label
	b := make([]byte, longest)
	n, err := unix.Lgetxattr(path, "security.selinux", b)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(b[:n]), "\x00")
}

func relabels(p *v1.Pod) bool {
	s := p.Spec.SecurityContext
	return s != nil && s.SELinuxChangePolicy != nil && *s.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive
}

// label returns the label of files for processes with these options. The role and type of the
// options belong to processes, so files keep the policy's.
func (l *Labels) label(o *v1.SELinuxOptions) (string, error) {
	for _, s := range []string{o.User, o.Level} {
		// A label becomes a mount option, where other characters could begin another option.
		if i := strings.IndexFunc(s, func(r rune) bool { return !isLabelRune(r) }); i >= 0 {
			return "", &LabelError{fmt.Sprintf("seLinuxOptions: %q is not part of an SELinux label: use only letters, digits and _.:,-", s)}
		}
	}
	return strings.Join([]string{cmp.Or(o.User, l.file[0]), l.file[1], l.file[2], cmp.Or(o.Level, l.file[3])}, ":"), nil
}

func isLabelRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_.:,-", r)
}

// MountOption returns the mount option for a label, in quotes because labels have commas.
func MountOption(label string) string { return `context="` + label + `"` }

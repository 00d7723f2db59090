// Package ownership applies a pod's fsGroup to a volume's files, as the API documents for
// pod.spec.securityContext.fsGroup: everything in the volume belongs to the
// group, which may read it (and write, unless the volume is read-only), and
// directories are setgid, so that files created later belong to the group, too.
//
// Containers may modify the volume meanwhile. Only the volume's root is opened by its
// path: no symbolic link is followed, no mount is crossed, and a change applies to the
// file that was opened, not to its name.
//
// The root is changed last: after an interruption it still mismatches, so that
// OnRootMismatch changes the volume again.
package ownership

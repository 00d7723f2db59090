// Package ownership gives a volume's files to a pod's fsGroup, as the API has it
// of pod.spec.securityContext.fsGroup: everything in the volume belongs to the
// group, which may read it (and write, unless the volume is read-only), and
// directories are setgid, so that what is made later belongs to the group too.
//
// Containers may own what is there and change it meanwhile. Nothing is reached by
// its path but the volume's root: no symbolic link is followed, no mount crossed,
// and what is changed is the file that was looked at, not its name.
//
// The root comes last: an interrupted change shows there, and OnRootMismatch does
// it again.
package ownership

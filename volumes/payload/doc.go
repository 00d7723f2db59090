// Package payload writes a set of files into a directory as one version, atomically for
// readers. The layout is that of upstream's AtomicWriter. Programs that watch for changes
// rely on it:
//
//	<dir>/key                             ─► ..data/key
//	<dir>/sub                             ─► ..data/sub        for sub/key
//	<dir>/..data                          ─► ..2026_01_02_15_04_05.123456789
//	<dir>/..2026_01_02_15_04_05.123456789/  the files
//
// A version is written next to the current one, with its modes and its group, and
// becomes current by a rename of ..data_tmp to ..data. Names that begin with two dots
// are reserved for this package; anything else that is not one of its links, such as the
// mount points of other volumes, is left alone.
//
// Promises: equal content changes nothing on disk. A Write that fails (a full disk)
// leaves the current version intact and no leftovers. Leftovers of a crash are removed
// by the next Write, unnoticed by readers. Symbolic links in the directory are never
// followed, whoever planted them. Nothing is flushed to disk: after a power failure,
// nothing reads the volume before the next Write, which compares.
//
// Calls for one directory must not overlap.
package payload

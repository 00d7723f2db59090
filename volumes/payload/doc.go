// Package payload writes a set of files into a directory as one version, which
// readers see whole or not at all. The layout is upstream's, which programs watch:
//
//	<dir>/key                             ─► ..data/key
//	<dir>/sub                             ─► ..data/sub        for sub/key
//	<dir>/..data                          ─► ..2026_01_02_15_04_05.123456789
//	<dir>/..2026_01_02_15_04_05.123456789/  the files
//
// A version is made beside the one in use, with its modes and its group, and
// comes into use by a rename of ..data_tmp to ..data. Names that begin with two
// dots are this package's; anything else in the directory that is no link of its
// own is left alone (mount points of other volumes).
//
// Promises: equal content changes nothing on disk. What fails (a full disk)
// leaves the version in use whole, and nothing behind. What a crash leaves is
// removed by the next Write, which readers do not notice. Nothing is reached
// through a link that is in the directory, whoever put it there. Nothing is
// flushed to the disk: after a power cut nobody reads before the next Write,
// which compares.
//
// Calls for one directory must not overlap.
package payload

// Package checkpoint keeps on disk what podd must remember across a restart: one value in a
// File, or one value for each key in a Dir.
//
// A write replaces a file atomically: a reader finds either the old value or the new one,
// even after podd was killed. Format says what a file looks like and what it survives. The
// caller decides what a damaged file means: Read and Dir.ReadAll report it and leave
// it in place.
package checkpoint

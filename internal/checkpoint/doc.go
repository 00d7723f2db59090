// Package checkpoint keeps on disk what podd must remember across a restart: one value in a
// File, or one value for each key in a Dir.
//
// A write replaces a file atomically: a reader finds the old value or the new one, also
// after podd was killed. Format says what a file looks like and what it survives. What a
// damaged file means is the caller's decision: Read and Dir.All report it and leave it in
// place.
package checkpoint

// Package atomicfile writes the small files that podd remembers things in.
package atomicfile

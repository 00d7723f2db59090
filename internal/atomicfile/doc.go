// Package atomicfile writes podd's checkpoints and other small files.
package atomicfile

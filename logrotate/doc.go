// Package logrotate keeps the logs of running containers within bounds.
//
// The runtime writes each container's output to a file. A Rotator checks the sizes of
// these files; one that is too large is renamed, and the runtime is asked to reopen its
// path. Older files are compressed, and the oldest removed:
//
//	0.log                        live
//	0.log.20260102-150405        rotated last; a reader may still be at its end
//	0.log.20260102-150200.gz     older ones
//
// Names, order and limits are the kubelet's (pkg/kubelet/logs), so that log shippers and
// readers that know them find what they expect. A file is renamed, never copied or
// truncated, so a process that has it open reads it to its end.
//
// Promises:
//
//   - No line is lost: a rename is undone if the runtime does not reopen the log.
//   - A rotated file is removed only after the compressed one is synced to disk.
//   - No symlink below the pods' log directory is followed, and nothing but a
//     regular file is touched: pods may write there.
//   - A log that grows fast is checked before the interval is over, at most once a
//     second: its files exceed the limit by what is written in about a second.
//   - Compression takes a bounded share of a CPU, and delays no rotation.
//   - A container's shim is asked only to reopen the log, and the runtime only for one
//     list per interval.
package logrotate

// Package logrotate keeps the logs of running containers within bounds.
//
// The runtime writes each container's output to a file. A Rotator looks at the
// sizes of these files; one that is too large is renamed, and the runtime is
// asked to open its path anew. Older files are compressed, and the oldest
// removed:
//
//	0.log                        live
//	0.log.20260102-150405        rotated last; a reader may still be at its end
//	0.log.20260102-150200.gz     older ones
//
// Names, order and limits are the kubelet's (pkg/kubelet/logs), so that log
// shippers and readers that know them find what they expect: a file is renamed,
// never copied or truncated, so who has it open reads it to its end.
//
// Promises:
//
//   - No line is lost: a rename is taken back when the runtime does not open the
//     log anew.
//   - A rotated file goes only when the compressed one is safe on the disk.
//   - No symlink below the pods' log directory is followed, and nothing but a
//     regular file is touched: pods may write there.
//   - A container that floods its log is looked at as often as it takes, at most
//     once a second, and not only each interval: its files are at most as large
//     as the limit and what it writes in about a second.
//   - Compressing takes a bounded part of a processor, and holds up no rotation.
//   - Nothing is asked of a container's shim but to open the log, and of the
//     runtime one list each interval.
package logrotate

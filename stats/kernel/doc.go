// Package kernel reads what the kernel counts: the files of a cgroup on v1 (also hybrid)
// and v2, the network interfaces of a process, and the machine's memory, tasks and
// processors. It does not know about pods.
//
// A reading is a few system calls for each file, of a file that the kernel writes at that
// moment. Files of cgroups stay open for the next reading, up to a bound. Only the content of
// settings is kept, until somebody writes one, and nothing runs in between. What a kernel
// does not have is missing from the Sample, and no error. A cgroup or process that is gone is
// ErrGone: containers end while they are read.
//
// A Reader is safe for concurrent use. No call blocks for longer than the kernel takes.
package kernel

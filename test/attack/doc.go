// Package attack has tests of what strangers can do to podd: the real binary, in a memory
// cgroup of 256 MiB, with the kubelet's API, the read-only port and the health port open, on
// an in-memory runtime and before a stub of an apiserver. While an attack goes on, those who
// may ask are answered.
//
//	make test                        each attack for some seconds
//	make attack                      each for a minute
package attack

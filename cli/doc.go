// Package cli is what podd's commands say and ask: it asks a running podd over
// its socket, and prints the answers for a person (tables, sentences wrapped at
// the terminal's width) or for a program (-o json, -o yaml).
//
// It owns: the socket's client and what an error of it means for a person, how a
// person calls a pod, the words of the columns (those of kubectl get pods) and
// the exit codes. It leaves flags, help and completion to cmd/podd, the checking of
// manifests to podconfig/file, and what the socket answers to server.
//
// Each command is a struct with its options and a Run, which blocks until the
// command is done or its context ends:
//
//	PsOptions        podd ps: a row a pod (psColumns), below it why containers do not run
//	GetOptions       podd get: ConfigMaps and Secrets, never what they hold
//	DescribeOptions  podd describe: all about a pod, in the layout of kubectl (description)
//	InspectOptions   podd inspect: what the runtime was given, beside the manifest
//	EventsOptions    podd events
//	RetryOptions     podd retry
//	ValidateOptions  podd validate; asks no daemon
//
// # Promises
//
//   - Nothing that comes from outside (names of files, messages of programs)
//     reaches a person's terminal with control characters.
//   - A command that is interrupted says nothing about it.
//   - What programs read is the API's own JSON, with fields added and none changed.
package cli

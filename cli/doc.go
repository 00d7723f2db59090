// Package cli implements the client side of podd's commands. It queries a running podd over its
// socket, and prints the responses for a person (tables, sentences wrapped at the terminal's
// width) or for a program (-o json, -o yaml).
//
// It owns the socket's client and the explanation of its errors, the ways to name a pod on the
// command line, the columns and their wording (as in kubectl get pods) and the exit codes.
// cmd/podd owns flags, help and completion, podconfig/file the validation of manifests, and
// server the content of the socket's responses.
//
// Each command is a struct with its options and a Run method, which blocks until the command is
// done or its context ends:
//
//	PsOptions        podd ps: a row per pod (psColumns), then why containers do not run
//	GetOptions       podd get: ConfigMaps and Secrets, never their values
//	DescribeOptions  podd describe: all about a pod, in the layout of kubectl (description)
//	InspectOptions   podd inspect: what the runtime was given, beside the manifest
//	EventsOptions    podd events
//	RetryOptions     podd retry
//	ValidateOptions  podd validate; needs no daemon
//
// # Promises
//
//   - Text from outside (names of files, messages of programs) never reaches a terminal with
//     control characters.
//   - An interrupted command prints nothing about the interruption.
//   - Output for programs is the API's JSON, with fields added and none changed.
package cli

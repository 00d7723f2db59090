// Package http is the source of pods that asks a URL (staticPodURL): one Pod, a
// PodList, or several documents, decoded on the same path as files.
//
// It owns: when to ask (every httpCheckFrequency; sooner while there is no
// answer yet), conditional requests, the bounds of an answer (10 s, 10 MiB, 5
// redirects; manifest.MaxPods pods, or none of it counts), and what stays when a
// server fails. It leaves to others what a
// manifest means (podconfig/manifest).
//
// Promises: a server that is down, slow, answers with an error or with rubbish
// changes nothing: the last good set goes on running, and the problem is told
// once, stays in the list of problems until it is over, and is logged again
// every 10 minutes, for ever. Until a first answer was understood the source
// has not spoken. Of an answer with broken documents the good ones apply, and the
// broken ones stay in their last good version, which a restart of podd does not
// forget, as in package file. "No pods" is an answer that says so (a PodList without items);
// an empty body is rubbish.
package http

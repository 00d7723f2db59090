// Package http is the source of pods that polls a URL (staticPodURL): one Pod, a
// PodList, or several documents, decoded in the same way as files.
//
// It owns: when to poll (every httpCheckFrequency; sooner until the first
// response), conditional requests, the limits of a response (10 s, 10 MiB, 5
// redirects; manifest.MaxPods pods, or none of it counts), and what stays when the
// server fails. What a manifest means is decided by podconfig/manifest.
//
// Promises: a server that is down, slow, or responds with an error or with garbage
// changes nothing: the last good set keeps running, and the problem is logged
// once, stays in the list of problems until it is resolved, and is logged again
// every 10 minutes. The source is not ready before a first response was decoded.
// Of a response with broken documents the good ones apply, and the broken ones
// keep their last good version, over restarts of podd too, as in package file. "No
// pods" is a response that says so (a PodList without items); an empty body is an
// error.
package http

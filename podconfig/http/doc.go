// Package http is the source of pods that polls a URL (staticPodURL). It reads one Pod, a
// PodList, or several documents, decoded in the same way as files.
//
// It owns the times of polls (every httpCheckFrequency; sooner until the first response),
// conditional requests, the limits of a response (10 s, 10 MiB, 5 redirects; manifest.MaxPods
// pods, or none of it counts), and what stays when the server fails. podconfig/manifest decides
// what a manifest means.
//
// Promises: a server that is down or slow, or responds with an error or with garbage, changes
// nothing. The last good set keeps running. The problem is logged once and then every 10
// minutes, and stays in the list of problems until it is resolved. The source is not ready
// before it has decoded a first response. If some documents of a response are broken, the good
// ones apply, and the broken ones keep their last good version, across restarts of podd too, as
// in package file. "No pods" is a response that says so (a PodList without items); an empty
// body is an error.
package http

// Package filewatch reports that files may have changed: those that somebody else replaces
// while podd runs, such as a kubeconfig and what it refers to
// (Watch), and logs that clients follow (Dirs).
package filewatch

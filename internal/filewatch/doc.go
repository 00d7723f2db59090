// Package filewatch reports that files may have changed: those that somebody else replaces
// while podd runs, such as a kubeconfig and what it refers to (Watch), logs that clients
// follow (Dirs), and directories that are asked now and then for writes (Writes).
package filewatch

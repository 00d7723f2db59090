// Package filewatch reports that files may have changed: files that somebody else replaces
// while podd runs, such as a kubeconfig and the files that it names (Watch), logs that
// clients follow (Dirs), and directories that are checked now and then for writes
// (WriteWatcher).
package filewatch

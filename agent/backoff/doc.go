// Package backoff computes how long a container that ended waits before its next
// start. It is pure: the memory of earlier restarts is a value that the caller keeps,
// and the current time is an argument.
//
// The rule is the kubelet's: the first restart is at once, the second waits 10 s
// counted from the moment the container ended, each next twice as long up to the
// maximum, and a container that ended more than ten minutes after its last restart
// starts over. Beyond that, a policy may treat ends with exit code 0 separately,
// which then neither wait like crashes nor count as such.
package backoff

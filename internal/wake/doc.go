// Package wake is how one goroutine wakes another, and how a goroutine waits: for a Signal, for
// a time, or for the end of its context.
package wake

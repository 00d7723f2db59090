// Package wake lets one goroutine wake another, and lets a goroutine wait: for a Signal,
// for a time, or for the end of its context.
package wake

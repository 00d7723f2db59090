// Package child starts processes that end with this one. podd, or a test, must not leave
// them behind when it is killed.
package child

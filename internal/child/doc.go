// Package child starts processes that end with this one: what podd, or a test, must not
// leave behind when it is killed.
package child

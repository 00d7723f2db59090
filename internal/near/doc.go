// Package near finds the name that a person meant and misspelt. Its functions
// are pure and know nothing of what the names are of.
package near

// Package suggest finds the name that a misspelt one was meant to be ("did you
// mean …?"). Its functions are pure and know nothing of what is named.
package suggest

// Package suggest finds the name that a misspelt one was meant to be ("did you mean …?").
// Its functions are pure and do not know what the names stand for.
package suggest

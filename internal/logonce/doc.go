// Package logonce has what is tried again and again log each of its failures once.
package logonce

// Package logonce makes a repeated attempt log each of its failures only once.
package logonce

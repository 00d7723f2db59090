// Package text bounds foreign text in logs, in messages, and in what people see.
package text

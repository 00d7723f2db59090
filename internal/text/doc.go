// Package text bounds what others say: in logs, in messages, and in what people see.
package text

package cli

import "fmt"

// Exit codes other than 0 for success and 1 for a reported error.
const (
	ExitUsage       = 2 // wrong flags or arguments
	ExitUnavailable = 3 // podd is not running, or does not respond
)

// ExitError is an error with an exit code of its own.
type ExitError struct {
	Code int
	// Err is the error to print; nil if everything was already printed.
	Err error
}

// Error returns "" if there is nothing to print.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// errInterrupted is the error of a command that was interrupted before the response. It is
// silent, since the user knows.
var errInterrupted = &ExitError{Code: 1}

// UsageErrorf returns an error about wrong flags or arguments.
func UsageErrorf(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

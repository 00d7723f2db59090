package cli

import "fmt"

// Exit codes of commands beyond 0 and 1, which mean success and an error that was
// told.
const (
	ExitUsage     = 2 // wrong flags or arguments
	ExitNotServed = 3 // podd is not running, or does not answer
)

// ExitError is an error with an exit code of its own.
type ExitError struct {
	Code int
	// Err is what to say; nil when everything was said already.
	Err error
}

// Error may be empty: then there is nothing to print.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// errInterrupted is of a command that was ended before it had its answer; who
// ended it knows.
var errInterrupted = &ExitError{Code: 1}

// UsageErrorf is an error of wrong flags or arguments.
func UsageErrorf(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

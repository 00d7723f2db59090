package apiserver

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// TestMain fails when a goroutine is left after the tests: with it a connection is.
//
// client-go's handlers of errors would sleep a millisecond after the last error, by the
// clock: from a test in a bubble, where it is the year 2000, for decades.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

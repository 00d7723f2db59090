package dra

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a goroutine is left after the tests: with it a connection is.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

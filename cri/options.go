package cri

import (
	"time"

	"podd/cri/spec"
)

// Options are a Client's. The zero value of each field is usable.
type Options struct {
	// RequestTimeout and CreateTimeout are New's and Dial's, for their connection
	// (Timeouts).
	RequestTimeout, CreateTimeout time.Duration
	// Spec is what configurations are made by, whose podd this is, and where
	// pods' files and logs are.
	Spec spec.Options
}

func (o Options) withDefaults() Options {
	o.Spec = o.Spec.WithDefaults()
	return o
}

package manifest

import (
	"go.yaml.in/yaml/v3"

	"podd/internal/strictyaml"
	"podd/podconfig/manifest/advice"
)

// decoding is the decoding of one pod or object.
type decoding struct {
	// kind is what is decoded: a Pod, an object that pods refer to, or a Secret, whose
	// faults show nothing but the names of fields, and those only if they are valid
	// names.
	kind       string
	validation Validation
	faults     []advice.Fault
	// warnings are faults that the pod may have, see Validation.
	warnings []advice.Fault
	*strictyaml.Decoded
}

// decode decodes n into the value that into points to.
func (d *decoding) decode(n *yaml.Node, into any) {
	d.Decoded = strictyaml.Decode(n, into, strictyaml.Options{Memory: maxPodValues, Report: d.report})
}

// report takes an error and says whether another one would be reported.
func (d *decoding) report(e *strictyaml.Error) bool {
	to := &d.faults
	switch {
	case e.Lenient() && d.validation == Ignore:
		return true
	case e.Lenient() && d.validation == Warn:
		to = &d.warnings
	}
	if len(*to) <= maxProblems {
		if f := advice.Field(e, d.kind); f.Message != "" {
			*to = append(*to, f)
		}
	}
	return len(d.faults) <= maxProblems
}

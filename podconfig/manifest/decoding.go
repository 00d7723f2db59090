package manifest

import (
	"go.yaml.in/yaml/v3"

	"podd/internal/strictyaml"
	"podd/podconfig/manifest/advice"
)

// decoding is the decoding of one pod, object or list.
type decoding struct {
	// kind is what is decoded: a Pod or an object that pods refer to; "" for a list.
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
	if to := d.faultList(e.Lenient()); to != nil {
		if f := advice.DecodeFault(e, d.kind); f.Message != "" {
			*to = append(*to, f)
		}
	}
	return len(d.faults) <= maxProblems
}

// faultList is where a fault goes, nil for nowhere. Validation decides about a lenient one.
func (d *decoding) faultList(lenient bool) *[]advice.Fault {
	to := &d.faults
	switch {
	case lenient && d.validation == Ignore:
		return nil
	case lenient && d.validation == Warn:
		to = &d.warnings
	}
	if len(*to) > maxProblems {
		return nil
	}
	return to
}

package manifest

import (
	"go.yaml.in/yaml/v3"

	"podd/internal/pod"
	"podd/internal/strictyaml"
)

// decoding is the decoding of one pod or object.
type decoding struct {
	// kind is what is decoded: a Pod, an object that pods refer to, or a Secret, whose
	// faults show nothing but the names of fields, and those only if they are valid
	// names.
	kind       string
	validation Validation
	faults     []fault
	// warnings are faults that the pod may have, see Validation.
	warnings []fault
	// lines has the line of each field path.
	lines map[string]int
	// values is the approximate memory of the decoded form, in bytes.
	values int
}

// decode decodes n into the value that into points to.
func (d *decoding) decode(n *yaml.Node, into any) {
	got := strictyaml.Decode(n, into, strictyaml.Options{Memory: maxPodValues, Report: d.report})
	d.lines, d.values = got.Lines, got.Memory
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
		if f := explainField(e, d.kind); f.message != "" {
			if d.kind == pod.KindSecret {
				f = hushed(f)
			}
			f.plain = "" // it is known what it is
			*to = append(*to, f)
		}
	}
	return len(d.faults) <= maxProblems
}

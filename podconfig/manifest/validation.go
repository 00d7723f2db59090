package manifest

import "fmt"

// Validation determines how unknown and duplicate fields are handled: the values and
// meanings of kubectl's --validate.
type Validation string

const (
	// Strict rejects the pod.
	Strict Validation = "strict"
	// Warn runs it and warns. Of two fields of one name the last one wins.
	Warn Validation = "warn"
	// Ignore runs it without a warning, as the kubelet does.
	Ignore Validation = "ignore"
)

// Set, String and Type make a command-line flag of it.
func (v *Validation) Set(s string) error {
	switch word := Validation(s); word {
	case Strict, Warn, Ignore:
		*v = word
		return nil
	}
	return fmt.Errorf("%q is not one of strict, warn and ignore", s)
}

func (v *Validation) String() string { return string(*v) }

// Type is the word that a flag's usage shows for its value.
func (v *Validation) Type() string { return "strict|warn|ignore" }

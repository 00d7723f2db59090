package manifest

import "fmt"

// Validation says what becomes of fields that a Pod does not have, and of fields
// that stand twice: the words and meanings of kubectl's --validate.
type Validation string

const (
	// Strict refuses the pod.
	Strict Validation = "strict"
	// Warn runs it and says so. Of two fields of one name the last holds.
	Warn Validation = "warn"
	// Ignore runs it and says nothing, as the kubelet does.
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

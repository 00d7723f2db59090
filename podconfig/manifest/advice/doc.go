// Package advice says what is wrong with a manifest, and what its writer can do about
// it. Package manifest and internal/strictyaml decide what is wrong; advice has the words.
//
//	Explain            a text that cannot be parsed
//	Leftovers          what other tools and editors left in it, which causes the rest
//	CheckHeader        a kind that podd does not run
//	DecodeFault        a field that cannot be decoded
//	ValidationFault    an error of upstream's validation (ObjectValidationFault)
//	Warnings           a valid pod that its writer probably did not mean
//
// Each returns a Fault: a sentence, a hint and, where the hint is a change of one line,
// that change. About a Secret, or a text that may be one, a Fault shows no value.
//
// Promises: all functions are pure, and cost time linear in the size of the text. A
// message or a hint changes nothing about what runs.
package advice
